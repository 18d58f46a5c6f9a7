"""Forced client: runs the streams tests with the clients of one implementation, in child processes, too.

    ODRADEK_STREAMS_CLIENT=odradek pytest tests/streams

The variable replaces the default of `client.implementation` in the tests' process (tests/streams/conftest.py), and by
`sitecustomize.py` of this folder in each process that a test starts with this environment. A test that sets the
property keeps its own value. The product does not read the variable.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

FORCED: Final = os.environ.get("ODRADEK_STREAMS_CLIENT")
"""The implementation, or None for the product's default."""


def force_client(config: Any) -> None:
    """Apply the variable to the module of the configuration, and to the children of this process. Raises ValueError for
    an unknown implementation.
    """
    if FORCED is None:
        return
    if FORCED not in (config.LIBRDKAFKA, config.ODRADEK):
        raise ValueError(f"ODRADEK_STREAMS_CLIENT={FORCED}; allowed: {config.LIBRDKAFKA}, {config.ODRADEK}")
    rows = (row._replace(default=FORCED) if row.name == "client.implementation" else row for row in config.TABLE)
    config.TABLE = tuple(rows)
    folder = str(Path(__file__).parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, paths)])
