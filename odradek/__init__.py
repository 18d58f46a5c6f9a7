"""Odradek: a Kafka-compatible broker, with a thin streams runtime and Spark jobs beside it.

The command line is `odradek` (or `python -m odradek`); `odradek.pytest_plugin` gives a test suite a broker of its own.
"""

from __future__ import annotations

__version__ = "0.1.0"
