"""mirror: copies topics from one cluster to another, record by record, each into the same partition.

Key, value, headers and timestamp stay as they are. Offsets cannot: each copy names its source in a header
(`odradek.spark_jobs.origin`), and `reconcile` compares by that header. The sink's producers are idempotent, which keeps
the order within a partition over retries. The copy is at least once: records that Spark wrote of an unfinished batch
are written again. `reconcile` counts such copies; a reader drops them by their origin.

With `--table` each record also gets the columns of a row of a small table, as headers `odradek.table.COLUMN`: those of
the row whose `--table-key` is the record's key, as text. The table is read once and broadcast; null columns, and
records without a row, get no header. Everything else of the record stays unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.spark_jobs.client_properties import METAVAR, properties_of
from odradek.spark_jobs.command import Options, job_command, run
from odradek.spark_jobs.errors import JobError, NotThereError

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import DataFrame, SparkSession

EXAMPLE: Final = """
Everything that is in two topics now, and then the proof:

    python -m odradek.spark_jobs.mirror --bootstrap localhost:9092 --topic orders --topic clicks --once \\
        --checkpoint /var/lib/odradek/mirror --to-bootstrap backup:9092
    python -m odradek.spark_jobs.reconcile --bootstrap localhost:9092 --topic orders --topic clicks \\
        --with-bootstrap backup:9092
"""
TABLE_HEADER: Final = "odradek.table."
_FORMATS: Final = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


def transform(
    records: DataFrame, *, to_topic: str = "{topic}", table: DataFrame | None = None, table_key: str = ""
) -> DataFrame:
    """The columns that the Kafka sink writes for records of the Kafka source: topic, partition, key, value and headers.

    `{topic}` in `to_topic` is replaced by the name of the source. `table` has at most one row for a value of its column
    `table_key`.
    """
    from pyspark.sql import functions as f

    from odradek.spark_jobs import origin

    headers = [
        origin.without(f.col("headers")),
        origin.headers_of(f.col("topic"), f.col("partition"), f.col("offset"), f.col("timestamp")),
    ]
    if table is not None:
        records = records.join(
            f.broadcast(_as_headers(table, table_key)), f.decode("key", "UTF-8") == f.col("table_key"), "left"
        )
        nothing = f.array().cast("array<struct<key:string,value:binary>>")
        headers.append(f.coalesce(f.col("table_headers"), nothing))
    before, _, after = to_topic.partition("{topic}")
    named = f.concat(f.lit(before), f.col("topic"), f.lit(after)) if "{topic}" in to_topic else f.lit(to_topic)
    return records.select(named.alias("topic"), "partition", "key", "value", f.concat(*headers).alias("headers"))


def _as_headers(table: DataFrame, table_key: str) -> DataFrame:
    """A row's columns as Kafka headers, text in UTF-8."""
    from pyspark.sql import functions as f

    columns = [
        f.struct(f.lit(TABLE_HEADER + name).alias("key"), f.encode(f.col(name).cast("string"), "UTF-8").alias("value"))
        for name in table.columns
        if name != table_key
    ]
    return table.select(
        f.col(table_key).cast("string").alias("table_key"),
        f.filter(f.array(*columns), lambda header: header.value.isNotNull()).alias("table_headers"),
    )


def read_table(spark: SparkSession, path: str, key: str) -> DataFrame:
    """The table to enrich with, in its present state: CSV with a head line, JSON lines or Parquet, by its name's end.

    Raises NotThereError where the file or the column is not there, JobError where a key has several rows.
    """
    kind = _FORMATS.get(Path(path.rstrip("/")).suffix)
    if kind is None:
        raise click.UsageError(f"--table {path}: its name has to end in {', '.join(_FORMATS)}")
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    from odradek.spark_jobs.source import local_path

    place = str(local_path(path).absolute())
    try:
        table = spark.read.format(kind).option("header", "true").load(place).localCheckpoint()  # not read by each batch
    except AnalysisException as error:
        raise NotThereError(f"--table {path}: {str(error).splitlines()[0]}") from None
    if key not in table.columns:
        raise NotThereError(f"--table {path} has no column {key}; it has {', '.join(table.columns)}")
    twice = table.where(f.col(key).isNotNull()).groupBy(f.col(key).alias("key")).count().where("count > 1").first()
    if twice is not None:
        raise JobError(f"--table {path} has {twice['count']} rows for {key} {twice['key']}: each copy would be several")
    return table


@job_command("mirror", example=EXAMPLE)
@click.option("--to-bootstrap", required=True, metavar="HOST:PORT,…", help="Brokers of the cluster to copy to.")
@click.option(
    "--to-topic",
    default="{topic}",
    show_default=True,
    metavar="NAME",
    help="Topic to write; {topic} is the name of the source. It needs as many partitions.",
)
@click.option(
    "--to-kafka",
    multiple=True,
    metavar=METAVAR,
    callback=properties_of,
    help="A property of the producers, as compression.type=zstd, or a file of them. Repeat it for several.",
)
@click.option("--table", help="CSV, JSON or Parquet file with a row for each key, to be added as headers.")
@click.option("--table-key", default="key", show_default=True, metavar="COLUMN", help="Its column with the keys.")
def command(
    options: Options, to_bootstrap: str, to_topic: str, to_kafka: Mapping[str, str], table: str | None, table_key: str
) -> int:
    """Copies topics to another cluster: same partitions, keys, values, headers and timestamps.

    At least once: each copy names its origin in the header odradek.origin.
    """
    from odradek.spark_jobs.original_times import sink_settings
    from odradek.spark_jobs.progress import await_query
    from odradek.spark_jobs.session import job_session
    from odradek.spark_jobs.source import read_stream

    target = replace(
        options,
        bootstrap=to_bootstrap,
        topics=tuple(to_topic.replace("{topic}", topic) for topic in options.topics),
        kafka=to_kafka,
    )
    with job_session("mirror", options.master) as spark:
        check_target(spark, options, target)
        rows = read_table(spark, table, table_key) if table else None
        copies = transform(read_stream(spark, options), to_topic=to_topic, table=rows, table_key=table_key)
        writer = copies.writeStream.format("kafka").option("checkpointLocation", options.checkpoint)
        writer = writer.options(**{f"kafka.{key}": value for key, value in target.client.items()})
        writer = writer.options(**sink_settings(spark))
        return await_query(writer.trigger(**options.trigger).start(), options)


def check_target(spark: SparkSession, options: Options, target: Options) -> None:
    """Checks that every partition has its counterpart: topics of `target` are in the order of those of `options`.

    Raises NotThereError where a topic is missing or too small, JobError where a topic would be copied into itself.
    """
    from odradek.spark_jobs.kafka_admin import KafkaAdmin

    with KafkaAdmin(spark, options.client) as admin:
        sources, from_cluster = admin.topics(options.topics), admin.cluster_id()
    with KafkaAdmin(spark, target.client) as admin:
        targets, to_cluster = admin.topics(target.topics), admin.cluster_id()
    for source, name in zip(sources.values(), target.topics, strict=True):
        wanted, there = source.partitions, targets[name].partitions
        if name in sources and from_cluster == to_cluster:
            raise JobError(f"{name} would be copied into itself: {target.bootstrap} is the same cluster")
        if there < wanted:
            raise NotThereError(f"{name} at {target.bootstrap} has {there} partitions, and {source.name} has {wanted}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
