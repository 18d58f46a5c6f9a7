"""Writes the batches of a query so that each is there once, even if any process is killed at any time.

Spark passes a batch to foreachBatch at least once: after a crash it computes the batch anew, under the same id. So the
pair (query id, batch id) is committed together with the batch's rows, and a batch whose pair is there is not written.

- Parquet: a batch is written beside its place and renamed into it: OUTPUT/query_id=…/batch_id=…/part-….parquet. The
  name of the folder is the pair, and a rename is done completely or not at all. Readers skip names that begin with a
  dot, so they never read the files of a killed job; the rerun removes them. Any Parquet reader finds each row once: in
  contrast to Spark's own file sink, no log beside the files is needed to read them.
- SQLite: rows and pair are written in one transaction.

The query id belongs to the checkpoint, so it stays over restarts. Another checkpoint is another query: records that it
reads again, it writes again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.spark_jobs.errors import JobError
from odradek.spark_jobs.source import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Sink = Callable[["DataFrame", str, int], bool]
"""(rows, query id, batch id) -> whether they were written; False where they are there already."""
QUERY: Final = "query_id"
BATCH: Final = "batch_id"
_SQL_TYPES: Final = {"binary": "BLOB", "bigint": "INTEGER", "int": "INTEGER", "double": "REAL", "string": "TEXT"}


def write_each_batch(frame: DataFrame, sink: Sink) -> DataStreamWriter:
    """The writer of a query whose batches go to `sink`; the caller sets checkpoint and trigger."""

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query_id:
            raise JobError("Spark provides no query id for a batch")
        if not sink(batch, query_id, batch_id):
            # The query's state is still that of the batch before: only computing the batch updates it.
            batch.write.format("noop").mode("overwrite").save()

    return frame.writeStream.outputMode("append").foreachBatch(write)


class ParquetFolder:
    """A folder of Parquet files, a folder in it for each batch."""

    def __init__(self, folder: str) -> None:
        self._folder = local_path(folder).absolute()

    def __call__(self, rows: DataFrame, query_id: str, batch_id: int) -> bool:
        """Writes one batch. Raises OSError."""
        place = self._folder / f"{QUERY}={query_id}" / f"{BATCH}={batch_id}"
        if place.exists():
            return False
        beside = place.with_name(f".{place.name}")
        shutil.rmtree(beside, ignore_errors=True)
        rows.write.mode("overwrite").parquet(uri(beside))
        sync_folder(beside)
        beside.rename(place)
        sync(place.parent)
        return True


class SqliteTable:
    """A table of an SQLite database, and `batches` with the pairs beside it. Rows of a batch pass through the driver.

    Columns are binary, whole numbers, text; times become ms since the epoch, everything else JSON.
    """

    def __init__(self, path: str, table: str) -> None:
        self._path = local_path(path).absolute()
        self._table = table

    def __call__(self, rows: DataFrame, query_id: str, batch_id: int) -> bool:
        """Writes one batch. Raises sqlite3.Error, OSError."""
        plain = rows.selectExpr(*_plain_columns(rows))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=60)) as database:
            database.execute("PRAGMA synchronous = FULL")
            self._create(database, plain)
            found = f"SELECT 1 FROM batches WHERE {QUERY} = ? AND {BATCH} = ?"
            if database.execute(found, (query_id, batch_id)).fetchone():
                return False
            places = ", ".join("?" * (len(plain.columns) + 2))
            collected = plain.collect()
            database.execute("BEGIN IMMEDIATE")
            try:
                database.execute("INSERT INTO batches VALUES (?, ?)", (query_id, batch_id))
                database.executemany(
                    f"INSERT INTO {_quoted(self._table)} VALUES ({places})",
                    ((query_id, batch_id, *row) for row in collected),
                )
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        return True

    def _create(self, database: sqlite3.Connection, rows: DataFrame) -> None:
        types = ", ".join(f"{_quoted(name)} {_SQL_TYPES[kind]}" for name, kind in rows.dtypes)
        pair = f"{QUERY} TEXT NOT NULL, {BATCH} INTEGER NOT NULL"
        database.execute(f"CREATE TABLE IF NOT EXISTS batches ({pair}, PRIMARY KEY ({QUERY}, {BATCH}))")
        database.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self._table)} ({pair}, {types})")


def _plain_columns(rows: DataFrame) -> list[str]:
    expressions: list[str] = []
    for name, kind in rows.dtypes:
        if kind in _SQL_TYPES:
            expression = f"`{name}`"
        elif kind == "timestamp":
            expression = f"unix_millis(`{name}`)"
        else:
            expression = f"to_json(`{name}`)"
        expressions.append(f"{expression} AS `{name}`")
    return expressions


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sync_folder(folder: Path) -> None:
    """Syncs a folder and all files in it to the disk. Raises OSError."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to the disk. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def uri(path: Path) -> str:
    """An absolute path as a URI for Spark, independent of Spark's default file system. (Path.as_uri quotes; Hadoop does
    not undo that.)
    """
    return f"file://{path}"
