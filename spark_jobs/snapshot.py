"""snapshot: a table with the latest value of each key of compacted topics, as of some offsets, in versions.

The table is the fold of the topic by offset: the record with the highest offset of a key counts, and one without a
value (a tombstone) removes the key. Keys of different partitions are different rows, as for Kafka's own compaction:
there is no order between partitions that would define the later record. Records without a key are skipped.

Each run adds a version, made of the one before and of the records since then; its manifest contains the offsets of its
end, and appears by an atomic rename (`snapshot_table`). The manifest is the job's checkpoint: a killed run has no
effect. Without new records a run adds no version.

Kafka removes a tombstone itself, delete.retention.ms (a day) after it was compacted. A version that is older than
--full-after may have missed some, so the job does not build on it: it reads the whole topic anew.

    from odradek.spark_jobs.snapshot_table import SnapshotTable
    SnapshotTable("/data/prices").read(spark, version=3)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.spark_jobs.command import Offsets, Options, job_command, run
from odradek.spark_jobs.errors import DONE, NotThereError
from odradek.spark_jobs.events import as_duration_of
from odradek.spark_jobs.snapshot_table import Manifest, SnapshotTable

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import DataFrame, SparkSession

    from odradek.spark_jobs.kafka_admin import KafkaAdmin, Topic

EXAMPLE: Final = """
The prices of today, with the three versions before them:

    python -m odradek.spark_jobs.snapshot --bootstrap localhost:9092 --topic prices --output /data/prices --keep 4

    SnapshotTable("/data/prices").read(spark).selectExpr("decode(key, 'UTF-8')", "decode(value, 'UTF-8')").show()
"""
_COLUMNS: Final = ("topic", "partition", "key", "value", "offset", "timestamp", "headers")
_DAY_MS: Final = 86_400_000


def transform(records: DataFrame, base: DataFrame | None = None) -> DataFrame:
    """topic, partition, key, value, offset, timestamp, headers of the latest record of each key that has a value.

    `records` are of the Kafka source: all since `base`, an earlier result, in any order.
    """
    from pyspark.sql import functions as f

    rows = records.where(f.col("key").isNotNull()).select(*_COLUMNS)
    if base is not None:
        rows = base.select(*_COLUMNS).unionByName(rows)
    latest = f.max_by(f.struct("value", "offset", "timestamp", "headers"), "offset")
    return (
        rows.groupBy("topic", "partition", "key")
        .agg(latest.alias("latest"))
        .where(f.col("latest.value").isNotNull())
        .select("topic", "partition", "key", "latest.*")
    )


@job_command("snapshot", example=EXAMPLE, streaming=False, output="Folder of the versions.", topic="Compacted topic.")
@click.option("--keep", type=click.IntRange(min=1), default=2, show_default=True, help="How many versions stay.")
@click.option(
    "--full-after",
    default="1d",
    show_default=True,
    metavar="DURATION",
    callback=as_duration_of(1),
    help="A version older than this is not built on; at most delete.retention.ms of the topics.",
)
@click.option("--full", is_flag=True, help="Do not build on an earlier version: read the topics from --from on.")
def command(options: Options, keep: int, full_after: int, full: bool) -> int:
    """Adds a version to a table: the latest value of each key of compacted topics.

    --from applies to the first version, and to one that is made anew.
    """
    from odradek.spark_jobs.kafka_admin import KafkaAdmin
    from odradek.spark_jobs.session import job_session
    from odradek.spark_jobs.source import check_topics, ranges, read_range

    table = SnapshotTable(options.output)
    with job_session("snapshot", options.master) as spark, table.writing():
        with KafkaAdmin(spark, options.client, options.isolation) as admin:
            topics = check_topics(admin, options)
            start, end = ranges(admin, options)
            now_ms = time.time_ns() // 1_000_000
            found = table.manifest() if table.versions() else None
            if found is not None:
                _check_same(found, admin.cluster_id(), topics)
            base = found if found and not full and now_ms - found.written_ms < full_after else None
            if base is not None:
                start = _continued(base, admin.beginnings({name: each.partitions for name, each in topics.items()}))
                _check_not_before(base, end)
            manifest = _manifest(options, admin, topics, end, now_ms)
        if base is not None and base.offsets == end:
            _say(f"version {base.version} is up to date: {base.rows:,} keys")
            return DONE
        rows = transform(read_range(spark, options, start, end), _rows(spark, table, base))
        made = table.publish(rows, manifest, keep)
    _say(f"version {made.version}: {made.rows:,} keys, {_length(start, end):,} offsets read, {options.output}")
    return DONE


def _rows(spark: SparkSession, table: SnapshotTable, base: Manifest | None) -> DataFrame | None:
    return table.read(spark, base.version) if base is not None else None


def _manifest(
    options: Options, admin: KafkaAdmin, topics: dict[str, Topic], end: Offsets, now_ms: int
) -> dict[str, Any]:
    return {
        "cluster": admin.cluster_id(),
        "topics": {name: topic.id for name, topic in topics.items()},
        "offsets": end,
        "isolation": options.isolation,
        "written_ms": now_ms,
    }


def _check_same(found: Manifest, cluster: str, topics: dict[str, Topic]) -> None:
    """Checks that the table belongs to these topics. Raises NotThereError."""
    if found.cluster != cluster:
        raise NotThereError(f"the versions are of another cluster ({found.cluster}, this one is {cluster})")
    if set(found.topics) != set(topics):
        raise NotThereError(f"the versions are of the topics {', '.join(sorted(found.topics))}; choose another folder")
    remade = [name for name, each in topics.items() if each.id and found.topics[name] not in ("", each.id)]
    if remade:
        raise NotThereError(f"the topic {remade[0]} was deleted since, and made anew; choose another folder")


def _continued(base: Manifest, beginnings: Offsets) -> Offsets:
    """The offsets to read on from; new partitions from their beginning. Raises NotThereError where offsets are gone."""
    start: Offsets = {}
    for topic, places in beginnings.items():
        for partition, first in places.items():
            at = base.offsets.get(topic, {}).get(partition, first)
            if at < first:
                raise NotThereError(
                    f"offset {at} of {topic}-{partition} is gone: the partition begins at {first}; --full reads anew"
                )
            start.setdefault(topic, {})[partition] = at
    return start


def _check_not_before(base: Manifest, end: Offsets) -> None:
    """Checks that a version never goes back. Raises NotThereError."""
    for topic, places in base.offsets.items():
        for partition, at in places.items():
            if end[topic].get(partition, 0) < at:
                raise NotThereError(
                    f"{topic}-{partition} ends at {end[topic].get(partition, 0)}, and version {base.version} goes up "
                    f"to {at}; --full begins anew"
                )


def _length(start: Offsets, end: Offsets) -> int:
    return sum(end[topic][n] - at for topic, places in start.items() for n, at in places.items())


def _say(text: str) -> None:
    click.echo(f"snapshot: {text}", err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
