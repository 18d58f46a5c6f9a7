"""C extensions of the streams runtime: finds those that this installation lacks, where the pure-Python fallbacks run.

An installation without a compiler has none. Results are equal, but the work of each record is slower.
"""

from __future__ import annotations

import logging

from odradek.streams.clients import accumulator, received
from odradek.streams.stores import lru_entries

log = logging.getLogger(__name__)


def missing_extensions() -> dict[str, str]:
    """The extensions that are not in use: name -> the work that runs in Python instead."""
    fallbacks = (
        ("_lru_entries", "caches", lru_entries.LruEntries is lru_entries.LruEntriesInPython),
        ("_received", "own-consumer", received.ReceivedRecords is received.ReceivedRecordsInPython),
        ("_accumulator", "own-producer", accumulator.Accumulator is accumulator.AccumulatorInPython),
    )
    return {name: work for name, work, runs in fallbacks if runs}


def warn_of_missing_extensions() -> None:
    """Log one warning where an extension is missing."""
    if missing := missing_extensions():
        modules, works = ",".join(missing), ",".join(missing.values())
        log.warning("C extensions missing, using pure Python modules=%s slow=%s", modules, works)
