"""replay: writes archived records, or a range of a topic, into a topic again.

A record keeps its partition, key, value, headers and timestamp; added headers name the topic, partition and
offset of its source (`odradek.spark_jobs.origin`). Within a source partition the order is that of the offsets: one task
writes a partition, in order, and an idempotent producer keeps it so.

The first run fixes the range and divides it into slices, one write each. The checkpoint stores where the next slice
begins, by an atomic rename after the slice before it is acknowledged. A run after a crash continues with the unfinished
slice, so some of that slice's records may be there twice: at least once, and the header distinguishes copies.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.spark_jobs.archive import archive_id, read_archive
from odradek.spark_jobs.command import Offsets, Options, Position, job_command, offsets_json, parse_offsets, run
from odradek.spark_jobs.errors import DONE, NotThereError
from odradek.spark_jobs.kafka_admin import KafkaAdmin
from odradek.spark_jobs.original_times import sink_settings
from odradek.spark_jobs.session import job_session
from odradek.spark_jobs.source import claim_checkpoint, local_path, ranges, read_range, whose, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EXAMPLE: Final = """
An archive, into a topic of as many partitions:

  python -m odradek.spark_jobs.replay --bootstrap localhost:9092 --topic orders \\
      --archive /var/lib/odradek/archive --to orders-again --checkpoint /var/lib/odradek/replay-orders

An hour of a topic, into another cluster:

  python -m odradek.spark_jobs.replay --bootstrap localhost:9092 --topic orders \\
      --from 2026-01-31T12:00:00 --until 2026-01-31T13:00:00 \\
      --to orders --to-bootstrap staging:9092 --checkpoint /var/lib/odradek/replay-noon
"""
_PLAN: Final = "replay.json"


@dataclass(slots=True)
class ReplayPlan:
    """The range of the replay and its progress; kept in the checkpoint."""

    start: Offsets
    end: Offsets
    step: int
    """The number of offsets of each partition in a slice."""

    def slices(self) -> Iterator[tuple[Offsets, Offsets]]:
        """Begin and end of each remaining slice; in a partition that is done both are the same."""
        at = self.start
        while at != self.end:
            behind = {
                topic: {n: min(offset + self.step, self.end[topic][n]) for n, offset in places.items()}
                for topic, places in at.items()
            }
            yield at, behind
            at = behind


def transform(records: DataFrame, topic: str) -> DataFrame:
    """The rows for the Kafka sink: copies for `topic`, sorted within each task in the order of their partitions."""
    from pyspark.sql import functions as f

    from odradek.spark_jobs import origin

    origins = origin.headers_of(f.col("topic"), f.col("partition"), f.col("offset"), f.col("timestamp"))
    copies = records.sortWithinPartitions("topic", "partition", "offset")
    return copies.select(
        f.lit(topic).alias("topic"),
        "partition",
        "key",
        "value",
        f.concat(origin.without(f.col("headers")), origins).alias("headers"),
    )


@job_command("replay", example=EXAMPLE, streaming=False, topic="Topic to replay.")
@click.option("--to", required=True, metavar="TOPIC", help="Topic to write into; it has to exist.")
@click.option("--to-bootstrap", metavar="HOST:PORT,…", help="Its cluster, where that is another one.")
@click.option("--archive", metavar="FOLDER", help="Read this archive in place of the topic itself.")
@click.option(
    "--checkpoint", required=True, metavar="FOLDER", help="Folder of the job's progress: one for each replay."
)
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="About how many records a slice has: so many may be written twice after a crash.",
)
@click.option("--group", help="Consumer group to which done offsets are committed; odradek-replay.")
def command(options: Options, to: str, to_bootstrap: str | None, archive: str | None) -> int:
    """Write an archive, or a range of a topic, into a topic again: same partitions, order, headers and timestamps."""
    with job_session(options.job, options.master) as spark:
        source = _Source(spark, options, archive)
        plan = source.plan()
        _check_target(spark, options, to, to_bootstrap, plan)
        settings = {f"kafka.{key}": value for key, value in options.kafka.items()}
        settings |= {"kafka.bootstrap.servers": to_bootstrap or options.bootstrap, **sink_settings(spark)}
        for start, end in plan.slices():
            began = time.monotonic()
            _write(transform(source.read(start, end), to), settings)
            source.done(ReplayPlan(end, plan.end, plan.step))
            print(_line(start, end, plan.end, time.monotonic() - began), file=sys.stderr, flush=True)
    return DONE


def _write(copies: DataFrame, settings: dict[str, str]) -> None:
    """Writes a slice, and returns once every record is acknowledged."""
    copies.write.format("kafka").options(**settings).save()


def _line(start: Offsets, at: Offsets, end: Offsets, seconds: float) -> str:
    """The line for the user about a slice. It counts offsets: Spark counts no rows for its Kafka sink."""
    done, left = _distance(start, at), _distance(at, end)
    return f"replay: {done:,} offsets, {done / max(seconds, 1e-3):,.0f}/s, lag {left:,}, offsets {offsets_json(at)}"


def _distance(start: Offsets, end: Offsets) -> int:
    return sum(end[topic][n] - offset for topic, places in start.items() for n, offset in places.items())


def _check_target(spark: SparkSession, options: Options, to: str, bootstrap: str | None, plan: ReplayPlan) -> None:
    with KafkaAdmin(spark, {**options.client, **({"bootstrap.servers": bootstrap} if bootstrap else {})}) as admin:
        target = admin.topics([to])[to]
    needed = 1 + max((n for places in plan.end.values() for n in places), default=-1)
    if target.partitions < needed:
        raise NotThereError(f"{to} has {target.partitions} partitions, of the {needed} that the records come from")


class _Source:
    """The source of the records, a topic or an archive, and the checkpoint that stores which."""

    def __init__(self, spark: SparkSession, options: Options, archive: str | None) -> None:
        self._spark = spark
        self._options = options
        self._archive = archive
        self._records = read_archive(spark, archive).drop("date") if archive is not None else None
        self._note = local_path(options.checkpoint) / _PLAN

    def plan(self) -> ReplayPlan:
        """The remaining work: that of the checkpoint or, where it is new, the range of the options."""
        with KafkaAdmin(self._spark, self._options.client, self._options.isolation) as admin:
            if self._archive is None:
                claim_checkpoint(self._options, whose(admin, self._options))
            else:
                owner = {
                    "cluster": f"archive {archive_id(self._archive)}",
                    "topics": dict.fromkeys(self._options.topics, ""),
                }
                claim_checkpoint(self._options, owner)
            if self._note.exists():
                found: dict[str, Any] = json.loads(self._note.read_text())
                start, end = (parse_offsets(json.dumps(found[name])) for name in ("start", "end"))
                return ReplayPlan(start, end, int(found["step"]))
            start, end = ranges(admin, self._options) if self._records is None else self._archived(self._records)
        places = max(1, sum(map(len, start.values())))
        plan = ReplayPlan(start, end, max(1, (self._options.batch_records or 1) // places))
        self._keep(plan)
        return plan

    def read(self, start: Offsets, end: Offsets) -> DataFrame:
        """The records from `start` to `end`, those of a partition all in one task."""
        from pyspark.sql import functions as f

        if self._records is None:
            return read_range(self._spark, self._options, start, end)
        wanted = [
            (f.col("topic") == topic) & (f.col("partition") == n) & f.col("offset").between(offset, end[topic][n] - 1)
            for topic, places in start.items()
            for n, offset in places.items()
        ]
        return self._records.where(reduce(lambda left, right: left | right, wanted)).repartition("topic", "partition")

    def done(self, left: ReplayPlan) -> None:
        """Stores the progress of the replay, and commits it to the group where the source is a topic."""
        self._keep(left)
        if self._archive is None:
            with KafkaAdmin(self._spark, self._options.client) as admin:
                admin.commit(self._options.group, left.start)

    def _keep(self, plan: ReplayPlan) -> None:
        write_atomically(self._note, json.dumps(asdict(plan)))

    def _archived(self, records: DataFrame) -> tuple[Offsets, Offsets]:
        """The range within an archive; a time means the same as in Kafka: the first offset of that time or later."""
        from pyspark.sql import functions as f

        chosen = records.where(f.col("topic").isin(*self._options.topics)).groupBy("topic", "partition")
        first, last = f.min("offset"), f.max("offset") + 1
        begin, end = (_bound(position) for position in (self._options.start, self._options.until))
        rows = chosen.agg(
            first.alias("first"),
            last.alias("last"),
            (first if begin is None else f.coalesce(f.min(f.when(begin, f.col("offset"))), last)).alias("begin"),
            (last if end is None else f.coalesce(f.min(f.when(end, f.col("offset"))), last)).alias("end"),
        ).collect()
        if missing := set(self._options.topics) - {row.topic for row in rows}:
            raise NotThereError(f"the archive has nothing of {', '.join(sorted(missing))}")
        start: Offsets = {}
        until: Offsets = {}
        for row in rows:
            until.setdefault(row.topic, {})[row.partition] = _named(self._options.until, row, row.end)
            start.setdefault(row.topic, {})[row.partition] = min(
                max(row.first, _named(self._options.start, row, row.begin)), until[row.topic][row.partition]
            )
        return start, until


def _bound(position: Position) -> Column | None:
    """The condition for records at or behind a time; None for positions that are no times."""
    from pyspark.sql import functions as f

    return f.unix_millis("timestamp") >= position.time_ms if position.kind == "time" else None


def _named(position: Position, row: Any, otherwise: int) -> int:
    """The offset of a position in the partition of `row`, within the archived ones."""
    if position.kind in ("earliest", "latest"):
        return int(row["first" if position.kind == "earliest" else "last"])
    return min(int(row["last"]), position.offsets.get(row.topic, {}).get(row.partition, int(otherwise)))


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a process: `argv` without the program's name; returns the exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
