"""Odradek: a Kafka-compatible broker, with a thin streams runtime and Spark jobs.

The command line is `odradek` (or `python -m odradek`); `odradek.pytest_plugin` provides a broker for a test suite.
"""

from __future__ import annotations

import os
import sys

__version__: str


def __getattr__(name: str) -> str:
    """The version, from the metadata of the package when it is asked for: plugins import this module in every run."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _version()
    return str(globals()[name])


def _version() -> str:
    """The version in the name of the installed metadata, `odradek-VERSION.dist-info`.

    Only without one does it import `importlib.metadata`, which imports the packages `email` and `zipfile`: a tenth of
    the time in which a broker starts.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue  # an archive, or a folder that does not exist
        for name in names:
            if name.startswith("odradek-") and name.endswith(".dist-info"):
                return name.removeprefix("odradek-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("odradek")
