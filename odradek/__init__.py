"""Odradek: a Kafka-compatible broker, with a thin streams runtime and Spark jobs.

The command line is `odradek` (or `python -m odradek`); `odradek.pytest_plugin` provides a broker for a test suite.
"""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    """The version, from the metadata of the package when it is asked for: plugins import this module in every run."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("odradek")
