"""windows: counts records by key and by windows of time, tumbling or hopping, each window once, when it is closed.

Windows begin at multiples of --advance since the epoch; the start is inside, the end outside. A window is closed, and
its count written, when the watermark has reached its end: the latest event time, less --lateness. Spark moves the
watermark after a batch, so the records of a batch decide which records count as late: a record within the lateness is
always counted, a later one may or may not be. Odradek's streams (and Kafka Streams) move their time with every record:
where nothing is late, both give the same counts with a grace of --lateness.

Windows that are still open at the end of a run with --once stay in the checkpoint, and a later run continues with them.
Records without a key are counted together, under null (Kafka Streams drops them).
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
Orders of each customer by the minute, ten seconds of lateness, until Ctrl-C; and how to read them:

    python -m odradek.spark_jobs.windows --bootstrap localhost:9092 --topic orders --key '$.customer' \\
        --size 1m --lateness 10s --checkpoint /var/lib/odradek/windows --output /data/orders-by-minute

    spark.read.parquet("/data/orders-by-minute").orderBy("window_start", "key").show()
"""


def transform(
    records: DataFrame,
    *,
    size_ms: int,
    advance_ms: int | None = None,
    lateness_ms: int = 0,
    key: str = KEY,
    time: str = TIMESTAMP,
) -> DataFrame:
    """key, window_start, window_end, count of records of the Kafka source; `key` and `time` as in `events`.

    Of a stream, in append mode, each (key, window) is a row that never changes. Raises ValueError.
    """
    from pyspark.sql import functions as f

    window = f.window("time", interval(size_ms), interval(advance_ms or size_ms))
    return (
        records.select(part_of(key).alias("key"), time_of(time).alias("time"))
        .withWatermark("time", interval(lateness_ms))
        .groupBy("key", window.alias("window"))
        .agg(f.count(f.lit(1)).alias("count"))
        .select("key", f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"), "count")
    )


@job_command("windows", example=EXAMPLE, output="Folder of the Parquet files.")
@click.option(
    "--size",
    required=True,
    metavar="DURATION",
    callback=as_duration_of(1),
    help="Length of a window, as 250ms, 10s, 5m, 1h, 1d.",
)
@click.option(
    "--advance",
    metavar="DURATION",
    callback=as_duration_of(1),
    help="A window begins every so often; by default one after the other.",
)
@lateness_option()
@key_option("key", "--key")
@time_option()
def command(options: Options, size: int, advance: int | None, lateness: int, key: str, time: str) -> int:
    """Counts records by key and window of time, into Parquet files.

    Each key and window is written once, when its window is closed: when a record arrives that is later than the end
    of the window and --lateness.
    """
    from odradek.spark_jobs.committed import ParquetFolder, write_each_batch
    from odradek.spark_jobs.progress import await_query
    from odradek.spark_jobs.session import job_session
    from odradek.spark_jobs.source import read_stream

    if advance is not None and advance > size:
        raise click.BadParameter(f"--advance {advance}ms is longer than --size {size}ms: records would be left out")
    sink = ParquetFolder(options.output)
    with job_session("windows", options.master) as spark:
        counts = transform(
            read_stream(spark, options), size_ms=size, advance_ms=advance, lateness_ms=lateness, key=key, time=time
        )
        writer = write_each_batch(counts, sink).option("checkpointLocation", options.checkpoint)
        return await_query(writer.trigger(**options.trigger).start(), options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
