"""sessions: groups the clicks of a key into sessions that end after a gap without a click.

A session begins at its first click and ends a gap after its last, as in Spark's `session_window`: two clicks that are
exactly a gap apart are one session, unless the watermark has closed it between them. It is written once, when the
watermark (the latest event time, less --lateness) has reached its end. Kafka Streams' sessions have the same clicks,
but end at the last of them, and stay open for the click that comes exactly a gap later.

Two engines make the same sessions. `session_window` is Spark's own aggregation. `state` is transformWithState, with
the rules written out in `session_state`: the place to extend when a session needs more than a count, at the price
of a Python process for each task. A checkpoint belongs to the engine that made it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from odradek.spark_jobs.command import Options, job_command, run
from odradek.spark_jobs.events import (
    KEY,
    TIMESTAMP,
    as_duration_of,
    interval,
    key_option,
    lateness_option,
    part_of,
    time_of,
    time_option,
)

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import DataFrame

EXAMPLE: Final = """
Sessions of each user, closed by half an hour without a click, of what is there now:

    python -m odradek.spark_jobs.sessions --bootstrap localhost:9092 --topic clicks --once --gap 30m --lateness 1m \\
        --checkpoint /var/lib/odradek/sessions --output /data/sessions

    spark.read.parquet("/data/sessions").orderBy("session_start", "key").show()
"""
SESSION_WINDOW: Final = "session_window"
STATE: Final = "state"


def transform(
    records: DataFrame, *, gap_ms: int, lateness_ms: int = 0, key: str = KEY, time: str = TIMESTAMP
) -> DataFrame:
    """key, session_start, session_end (last click + gap), count, by Spark's `session_window`; see `events` for names.

    Of a stream, in append mode, each session is a row that never changes. Raises ValueError.
    """
    from pyspark.sql import functions as f

    return (
        records.select(part_of(key).alias("key"), time_of(time).alias("time"))
        .withWatermark("time", interval(lateness_ms))
        .groupBy("key", f.session_window("time", interval(gap_ms)).alias("session"))
        .agg(f.count(f.lit(1)).alias("count"))
        .select(
            "key", f.col("session.start").alias("session_start"), f.col("session.end").alias("session_end"), "count"
        )
    )


def transform_with_state(
    records: DataFrame, *, gap_ms: int, lateness_ms: int = 0, key: str = KEY, time: str = TIMESTAMP
) -> DataFrame:
    """The same rows of a stream by transformWithState. Raises ValueError."""
    from pyspark.sql import functions as f

    from odradek.spark_jobs.session_state import Sessions

    # Spark drops an input row once the watermark has passed its time, `session_window` once it has passed the end that
    # a session of this row alone would have. With that end as the time, and the gap as more delay, both drop the same.
    ends = f.timestamp_millis(f.unix_millis("time") + gap_ms)
    return (
        records.select(part_of(key).alias("key"), time_of(time).alias("time"))
        .select("key", ends.alias("end"))
        .withWatermark("end", interval(lateness_ms + gap_ms))
        .select("key", "end", f.unix_millis("end").alias("end_ms"))
        .groupBy("key")
        .transformWithState(
            statefulProcessor=Sessions(gap_ms),
            outputStructType=_output_type(records, key),
            outputMode="Append",
            timeMode="EventTime",
        )
        .select(
            "key",
            f.timestamp_millis("start_ms").alias("session_start"),
            f.timestamp_millis("end_ms").alias("session_end"),
            "count",
        )
    )


def _output_type(records: DataFrame, key: str) -> str:
    kind = records.select(part_of(key).alias("key")).dtypes[0][1]
    return f"key {kind}, start_ms bigint, end_ms bigint, count bigint"


@job_command("sessions", example=EXAMPLE, output="Folder of the Parquet files.")
@click.option(
    "--gap",
    required=True,
    metavar="DURATION",
    callback=as_duration_of(1),
    help="A session ends when nothing comes for longer, as 500ms, 10s, 30m.",
)
@lateness_option()
@key_option("key", "--key")
@time_option()
@click.option(
    "--engine",
    type=click.Choice([SESSION_WINDOW, STATE]),
    default=SESSION_WINDOW,
    show_default=True,
    help="Spark's own session windows, or transformWithState in Python. The sessions are the same.",
)
def command(options: Options, gap: int, lateness: int, key: str, time: str, engine: str) -> int:
    """Groups records of a key into sessions, into Parquet files.

    Each session is written once, when it is closed: when a record arrives that is later than its end and --lateness.
    """
    from odradek.spark_jobs.committed import ParquetFolder, write_each_batch
    from odradek.spark_jobs.progress import await_query
    from odradek.spark_jobs.session import job_session
    from odradek.spark_jobs.source import read_stream

    sink = ParquetFolder(options.output)
    make = transform if engine == SESSION_WINDOW else transform_with_state
    with job_session("sessions", options.master) as spark:
        found = make(read_stream(spark, options), gap_ms=gap, lateness_ms=lateness, key=key, time=time)
        writer = write_each_batch(found, sink).option("checkpointLocation", options.checkpoint)
        return await_query(writer.trigger(**options.trigger).start(), options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
