"""dedup_sink: writes each event once into SQLite or Parquet, even if it is produced or read several times.

Two things make an event appear twice. A producer may send it again: events with the same --id whose times differ by
less than --lateness become one (dropDuplicatesWithinWatermark; Spark remembers an id until the watermark has passed its
time and --lateness). And a job that was killed reads a batch again: a batch is committed together with the pair of
query id and batch id, and not written where that pair is there already (`committed`).

Which of several events with one id in one batch remains is undefined; their other columns may differ. An event that
comes later than --lateness is dropped. Events without an id are kept, because there is no evidence that they are equal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.spark_jobs.command import Options, job_command, run
from odradek.spark_jobs.events import (
    KEY,
    TIMESTAMP,
    as_duration_of,
    interval,
    key_option,
    part_of,
    time_of,
    time_option,
)

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import DataFrame

EXAMPLE: Final = """
Payments by the id in their header, once each within an hour, into an SQLite database:

    python -m odradek.spark_jobs.dedup_sink --bootstrap localhost:9092 --topic payments --id header:id --lateness 1h \\
        --once --batch-records 100000 --checkpoint /var/lib/odradek/payments --output /data/payments.sqlite

    sqlite3 /data/payments.sqlite 'select count(*), count(distinct event_id) from events'
"""
SQLITE: Final = "sqlite"
PARQUET: Final = "parquet"
TABLE: Final = "events"
_SQLITE_NAMES: Final = (".sqlite", ".sqlite3", ".db")


def transform(records: DataFrame, *, lateness_ms: int, event_id: str = KEY, time: str = TIMESTAMP) -> DataFrame:
    """Records of the Kafka source with event_id and event_time before their columns, each id once within the lateness.

    Raises ValueError; `event_id` and `time` as in `events`.
    """
    from pyspark.sql import functions as f

    # Without an id of its own an event is identified by its offset, or all of them would be one.
    place = f.when(f.col("event_id").isNull(), f.struct("topic", "partition", "offset"))
    return (
        records.select(part_of(event_id).alias("event_id"), time_of(time).alias("event_time"), "*")
        .withWatermark("event_time", interval(lateness_ms))
        .withColumn("nameless", place)
        .dropDuplicatesWithinWatermark(["event_id", "nameless"])
        .drop("nameless")
    )


@job_command(
    "dedup_sink",
    example=EXAMPLE,
    output="An SQLite database (…sqlite, …sqlite3, …db) whose table events gets them, or a folder of Parquet files.",
)
@key_option("id", "--id", "event_id")
@click.option(
    "--lateness",
    required=True,
    metavar="DURATION",
    callback=as_duration_of(1),
    help="How far apart in time two events of one id may be and still be one, and how late one may come; as 10s, 1h.",
)
@time_option()
@click.option("--format", "kind", type=click.Choice([SQLITE, PARQUET]), help="By default from the name in --output.")
def command(options: Options, event_id: str, lateness: int, time: str, kind: str | None) -> int:
    """Writes each event once, into SQLite or Parquet."""
    from odradek.spark_jobs.committed import ParquetFolder, SqliteTable, write_each_batch
    from odradek.spark_jobs.progress import await_query
    from odradek.spark_jobs.session import job_session
    from odradek.spark_jobs.source import read_stream

    wanted = kind or (SQLITE if Path(options.output).suffix in _SQLITE_NAMES else PARQUET)
    sink = SqliteTable(options.output, TABLE) if wanted == SQLITE else ParquetFolder(options.output)
    with job_session("dedup_sink", options.master) as spark:
        events = transform(read_stream(spark, options), lateness_ms=lateness, event_id=event_id, time=time)
        writer = write_each_batch(events, sink).option("checkpointLocation", options.checkpoint)
        return await_query(writer.trigger(**options.trigger).start(), options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
