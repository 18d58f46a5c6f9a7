"""`odradek records delete`: delete the records before an offset (Kafka: kafka-delete-records)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.admin import offset_reset, offsets
from odradek.commands.completion import complete_topics
from odradek.commands.failures import failure_of
from odradek.commands.get_offsets import partitions_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, usage, yes_option
from odradek.commands.times import timestamp_ms
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient

_PLAN: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BEFORE OFFSET", "before_offset"),
    Column("RECORDS", "records"),
)
_DONE: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("LOW WATERMARK", "low_watermark"),
)


@click.group()
def records() -> None:
    """Delete records."""


@records.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:PARTITION,...]]...", shell_complete=complete_topics)
@click.option("--before-offset", type=click.IntRange(0), help="Delete the records before this offset.")
@click.option("--before-time", metavar="TIME", help="Delete the records before 2026-01-31T12:00:00 (UTC).")
@click.option("--all", "every", is_flag=True, help="Delete all records up to the high watermark.")
@click.option(
    "--offset-json-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The file of kafka-delete-records: partitions with topic, partition and offset.",
)
@yes_option
@dry_run_option
@connects
def delete(
    session: CommandSession,
    topics: tuple[str, ...],
    before_offset: int | None,
    before_time: str | None,
    every: bool,
    offset_json_file: Path | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete the first records of partitions: the start of their logs moves forward."""
    given = [before_offset is not None, before_time is not None, every, offset_json_file is not None]
    if sum(given) != 1:
        usage("one of --before-offset, --before-time, --all and --offset-json-file is required, and only one")
    if bool(topics) == (offset_json_file is not None):
        usage("TOPIC is required, unless --offset-json-file has the partitions")
    client = session.client
    if offset_json_file is not None:
        wanted: dict[TopicPartition, int] = _offsets_in(offset_json_file)
    elif before_time is not None:
        wanted = _at(client, partitions_of(client, topics), timestamp_ms(before_time, "--before-time"))
    else:
        offset = offsets.HIGH_WATERMARK if before_offset is None else before_offset
        wanted = dict.fromkeys(partitions_of(client, topics), offset)
    rows = _plan(client, wanted)
    if dry_run:
        session.show(rows, TextTable(_PLAN, rows))
        return
    lines = [f"delete {row['records']} records of {row['topic']}-{row['partition']}" for row in rows]
    session.confirm(lines, yes=yes, question="Delete?")
    results = offsets.delete_records(client, wanted)
    done = [
        {"topic": topic, "partition": number, "low_watermark": low}
        for (topic, number), low in sorted(session.succeeded(results, "partition").items())
    ]
    session.show(done, TextTable(_DONE, done))
    session.end(results)


def _plan(client: AdminClient, wanted: dict[TopicPartition, int]) -> list[dict[str, object]]:
    starts = offsets.list_offsets(client, dict.fromkeys(wanted, offsets.EARLIEST))
    ends = offsets.list_offsets(client, dict.fromkeys(wanted, offsets.LATEST))
    rows: list[dict[str, object]] = []
    for (topic, number), offset in sorted(wanted.items()):
        start, end = starts[topic, number], ends[topic, number]
        for each in (start, end):
            if isinstance(each, KafkaError):
                raise failure_of(each, f"partition {topic}-{number}")
        assert isinstance(start, offsets.ListedOffset)
        assert isinstance(end, offsets.ListedOffset)
        before = end.offset if offset == offsets.HIGH_WATERMARK else offset
        count = max(0, min(before, end.offset) - start.offset)
        rows.append({"topic": topic, "partition": number, "before_offset": before, "records": count})
    return rows


def _at(client: AdminClient, places: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    found = offset_reset.offsets_at(client, places, timestamp)
    wanted = {}
    for place, offset in found.items():
        if isinstance(offset, KafkaError):
            raise failure_of(offset, f"partition {place[0]}-{place[1]}")
        wanted[place] = offset
    return wanted


def _offsets_in(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a file of kafka-delete-records; -1 is the high watermark. Raises click.UsageError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {(str(each["topic"]), int(each["partition"])): int(each["offset"]) for each in document["partitions"]}
    except (ValueError, KeyError, TypeError) as error:
        usage(f"{path} is not a file of kafka-delete-records: {error!r}")
