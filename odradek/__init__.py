"""Odradek: a Kafka-compatible broker, with a thin streams runtime and Spark jobs.

The command line is `odradek` (or `python -m odradek`); `odradek.pytest_plugin` provides a broker for a test suite.
"""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("odradek")
