"""reconcile: compares a topic with its copy, in another topic or in an archive, and reports the differences.

It finds loss, duplicates, corruption, reordering, records in a wrong partition and records that are copies of nothing:
`odradek.spark_jobs.differences` defines each. The job writes to no topic and commits no offset. It resolves both ends
to offsets before it reads anything, and the report contains them: with the same offsets the report is the same, byte
for byte.

The job matches records with their copies by offset in an archive and in a copy that keeps offsets, else by the header
of `mirror` and `replay`, else by content. `auto` takes the first for an archive; for a topic the second, where one
record of it has the header; else the third. Copies of records outside the range of the topic are skipped: the copy may
have more, older or later records. By content the job cannot detect these: set `--from`, `--until`, `--with-from` and
`--with-until` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.spark_jobs.client_properties import METAVAR, properties_of
from odradek.spark_jobs.command import Offsets, Options, Position, job_command, run
from odradek.spark_jobs.errors import DIFFERENCES, DONE

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import Column, DataFrame, SparkSession

    from odradek.spark_jobs.differences import Match

EXAMPLE: Final = """
A topic against its mirror in another cluster; copies that a restart made are counted, but no failure:

    python -m odradek.spark_jobs.reconcile --bootstrap localhost:9092 --topic orders \\
        --with-bootstrap backup:9092 --allow duplicate

A topic against its archive, with the report in a file:

    python -m odradek.spark_jobs.reconcile --bootstrap localhost:9092 --topic orders \\
        --archive /var/lib/odradek/archive --report orders.json
"""
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def transform(left: DataFrame, right: DataFrame, match: Match, ignore: Sequence[str] = ()) -> DataFrame:
    """A row for each difference of `right` from `left`: see `odradek.spark_jobs.differences.differences`."""
    from odradek.spark_jobs.differences import differences

    return differences(left, right, match, ignore)


@dataclass(frozen=True, slots=True)
class Side:
    """The name and the records of one side. `description` is for the report."""

    records: DataFrame
    description: Mapping[str, Any]


@job_command("reconcile", example=EXAMPLE, streaming=False)
@click.option("--with-bootstrap", metavar="HOST:PORT,…", help="Brokers that have the copy.")
@click.option(
    "--with-topic",
    default="{topic}",
    show_default=True,
    metavar="NAME",
    help="Topic of the copy; {topic} is the name of the source.",
)
@click.option("--with-from", default="earliest", show_default=True, metavar="WHERE", help="Where to begin there.")
@click.option("--with-until", default="latest", show_default=True, metavar="WHERE", help="Where to end there.")
@click.option(
    "--with-kafka",
    multiple=True,
    metavar=METAVAR,
    callback=properties_of,
    help="A property of the clients there, or a file of them. Repeat it for several.",
)
@click.option("--archive", metavar="FOLDER", help="Folder of an archive, in place of a second topic.")
@click.option(
    "--match",
    type=click.Choice(["auto", "offset", "origin", "content"]),
    default="auto",
    show_default=True,
    help="How records are matched with their copies.",
)
@click.option(
    "--ignore",
    type=click.Choice(["key", "value", "headers", "timestamp"]),
    multiple=True,
    help="What is not compared. Repeat it for several.",
)
@click.option(
    "--allow",
    type=click.Choice(["loss", "duplicate", "corruption", "reordering", "misplaced", "unexpected"]),
    multiple=True,
    help="Differences that are counted, and do not make the status 4. Repeat it for several.",
)
@click.option(
    "--examples", type=click.IntRange(min=0), default=10, show_default=True, help="How many of each kind to show."
)
@click.option("--report", type=click.Path(dir_okay=False), help="File to write the report to, in place of stdout.")
def command(options: Options, **own: Any) -> int:
    """Compares a topic with a copy of it, and reports every difference as JSON.

    The status is 0 where there is none, 4 where there is one.
    """
    if (own["with_bootstrap"] is None) == (own["archive"] is None):
        raise click.UsageError("use either --with-bootstrap or --archive: what to compare with")
    from odradek.spark_jobs.session import job_session

    with job_session("reconcile", options.master) as spark:
        found = reconcile(spark, options, own)
    text = json.dumps(found, indent=2) + "\n"
    if own["report"] is None:
        click.echo(text, nl=False)
    else:
        with open(own["report"], "w", encoding="utf-8") as file:
            file.write(text)
    counts = {kind: count for kind, count in found["differences"].items() if count}
    click.echo(f"reconcile: {', '.join(f'{n:,} {kind}' for kind, n in counts.items()) or 'no difference'}", err=True)
    return DIFFERENCES if set(counts) - set(own["allow"]) else DONE


def reconcile(spark: SparkSession, options: Options, own: Mapping[str, Any]) -> dict[str, Any]:
    """The report. `own` are the job's own options by their names. Raises NotThereError and JobError."""
    from odradek.spark_jobs.kafka_admin import KafkaAdmin
    from odradek.spark_jobs.source import ranges, read_range

    with KafkaAdmin(spark, options.client, options.isolation) as admin:
        start, end = ranges(admin, options)
    left = Side(
        read_range(spark, options, start, end).select(*COLUMNS),
        {"bootstrap": options.bootstrap, "from": _sorted(start), "until": _sorted(end)},
    )
    archived = own["archive"] is not None
    right = _archive(spark, own["archive"], options.topics) if archived else _topics(spark, options, own)
    match: Match
    if own["match"] != "auto":
        match = own["match"]
    elif archived:
        match = "offset"
    else:
        match = "origin" if _names_origins(right.records) else "content"
    right = replace(right, records=_within(right.records, match, start, end))
    return {
        "match": match,
        "ignored": sorted(own["ignore"]),
        "left": dict(left.description),
        "right": dict(right.description),
        **_compared(left.records, right.records, match, own),
    }


def _topics(spark: SparkSession, options: Options, own: Mapping[str, Any]) -> Side:
    """The topics of the copy, under the names of their sources where these differ."""
    from pyspark.sql import functions as f

    from odradek.spark_jobs.kafka_admin import KafkaAdmin
    from odradek.spark_jobs.source import ranges, read_range

    sources = {own["with_topic"].replace("{topic}", topic): topic for topic in options.topics}
    if len(sources) < len(options.topics):
        raise click.UsageError(f"--with-topic {own['with_topic']}: several topics would be one; use {{topic}}")
    there = replace(
        options,
        bootstrap=own["with_bootstrap"],
        topics=tuple(sources),
        start=_position("--with-from", own["with_from"]),
        until=_position("--with-until", own["with_until"]),
        kafka=own["with_kafka"],
    )
    with KafkaAdmin(spark, there.client, there.isolation) as admin:
        start, end = ranges(admin, there)
    names = f.create_map(*(f.lit(name) for pair in sources.items() for name in pair))
    records = read_range(spark, there, start, end).withColumn("topic", names[f.col("topic")])
    return Side(records.select(*COLUMNS), {"bootstrap": there.bootstrap, "from": _sorted(start), "until": _sorted(end)})


def _position(option: str, text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _archive(spark: SparkSession, folder: str, topics: Sequence[str]) -> Side:
    from pyspark.sql import functions as f

    from odradek.spark_jobs.archive import read_archive

    records = read_archive(spark, folder).where(f.col("topic").isin(*topics))
    return Side(records.select(*COLUMNS), {"archive": folder})


def _names_origins(records: DataFrame) -> bool:
    from pyspark.sql import functions as f

    from odradek.spark_jobs import origin

    return records.where(origin.place_of(f.col("headers")).isNotNull()).first() is not None


def _within(records: DataFrame, match: str, start: Offsets, end: Offsets) -> DataFrame:
    """Removes the copies of records outside the range; a record without an origin stays: it is a copy of nothing."""
    from pyspark.sql import functions as f

    from odradek.spark_jobs import origin

    if match == "content":
        return records
    place = f.struct("topic", "partition", "offset") if match == "offset" else origin.place_of(f.col("headers"))

    def outside(here: Column) -> Column:
        found = f.lit(False)
        for topic, places in start.items():
            for partition, first in places.items():
                beyond = (here.offset < first) | (here.offset >= end[topic][partition])
                found = found | ((here.topic == topic) & (here.partition == partition) & beyond)
        return f.coalesce(found, f.lit(False))

    return records.where(~origin.once(place, outside))


def _compared(left: DataFrame, right: DataFrame, match: Match, own: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and examples; each side is read once.

    Records are counted where they are kept, not by `DataFrame.observe` on the way to the comparison: adaptive execution
    replaces plans that turn out to be empty, here all differences of two equal sides, together with the observations
    below them, and their metrics are lost.
    """
    from odradek.spark_jobs.differences import differences_of_prints, prints

    ours, theirs = (side.persist() for side in prints(left, right, match, own["ignore"]))
    try:
        records = {"left": ours.count(), "right": theirs.count()}
        counts, examples = _counted(differences_of_prints(ours, theirs, match), own["examples"])
    finally:
        ours.unpersist()
        theirs.unpersist()
    return {"records": records, "differences": counts, "examples": examples}


def _counted(found: DataFrame, most: int) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """The number of differences of each kind, and the first `most` of each, from one pass over all of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from odradek.spark_jobs.differences import KINDS

    order = ("topic", "partition", "offset", "found_topic", "found_partition", "found_offset")
    numbered = found.withColumn("number", f.row_number().over(Window.partitionBy("kind").orderBy(*order))).withColumn(
        "count", f.count(f.lit(1)).over(Window.partitionBy("kind"))
    )
    few = numbered.where(f.col("number") <= max(1, most)).collect()
    rows = sorted(few, key=lambda row: (row["kind"], row["number"]))  # Spark would run the last stage twice for it
    counts = dict.fromkeys(KINDS, 0) | {row["kind"]: row["count"] for row in rows}
    examples: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["number"] <= most:
            example = {name: row[name] for name in order if row[name] is not None}
            examples.setdefault(row["kind"], []).append(example)
    return counts, examples


def _sorted(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The offsets as sorted JSON."""
    return {topic: {str(n): at for n, at in sorted(places.items())} for topic, places in sorted(offsets.items())}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
