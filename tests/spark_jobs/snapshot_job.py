"""The tables of the job snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark_jobs.snapshot_table import SnapshotTable
from tests.spark_jobs import event_oracles as oracle

if TYPE_CHECKING:
    pass


def table_of(folder: Path, version: int | None = None) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    """The rows that a Parquet reader finds in the folder that the manifest names."""
    data = folder / SnapshotTable(str(folder)).manifest(version).data
    rows = oracle.parquet_rows(data, "partition", "key", "offset", "value")
    found = {(partition, key): (offset, value) for partition, key, offset, value in rows}
    assert len(found) == len(rows)
    return found
