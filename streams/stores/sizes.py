"""Sizes of stores, for their metrics (Kafka: RocksDBMetricsRecorder, KIP-607; StateStoreMetrics, KIP-1250).

A thread that reads metrics requests them, so they are read without a lock, and nothing is counted for a record.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class StoreSize(NamedTuple):
    """The size of one store of one task."""

    keys: int
    """The rows in memory; for a store on disk, RocksDB's estimate."""
    sst_bytes: int | None = None
    """The files on disk; None for a store in memory."""
    memtable_bytes: int | None = None


def size_of(rows: Any) -> StoreSize | None:
    """The size of a map; None for a closed one, and for a map of the user's own without a method `store_size`."""
    measure = getattr(rows, "store_size", None)
    found: StoreSize | None = None if measure is None else measure()
    return found
