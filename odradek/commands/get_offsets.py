"""`odradek get-offsets`: offsets of partitions at a time (Kafka: kafka-get-offsets)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from odradek.admin import offsets
from odradek.commands.completion import complete_topics
from odradek.commands.failures import failure_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, parse_partitions
from odradek.commands.times import duration_ms, timestamp_ms
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient

SPECIAL: Final = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered")
"""Offsets with a name; `odradek.admin.offsets` has the timestamp of each as a constant."""
_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("TIMESTAMP", "timestamp", wide=True),
    Column("LEADER EPOCH", "leader_epoch", wide=True),
)
_BOUNDS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("EARLIEST", "earliest"),
    Column("LATEST", "latest"),
    Column("RECORDS", "records"),
)


@click.command("get-offsets")
@click.argument("topics", nargs=-1, metavar="[TOPIC[:PARTITION,...]]...", shell_complete=complete_topics)
@click.option(
    "--time",
    "at",
    metavar="TIME",
    help=f"{', '.join(SPECIAL)}, milliseconds since the epoch, or 2026-01-31T12:00:00 (UTC).",
)
@click.option("--since", metavar="DURATION", help="The first record since 2h, 1d or PT2H.")
@click.option("--exclude-internal", is_flag=True, help="Without TOPIC: leave out Kafka's own topics.")
@click.option("--read-committed", is_flag=True, help="The latest offset is the last stable one.")
@connects
def get_offsets(
    session: CommandSession,
    topics: tuple[str, ...],
    at: str | None,
    since: str | None,
    exclude_internal: bool,
    read_committed: bool,
) -> None:
    """Show the earliest and the latest offset of partitions, or with --time the first offset at or after a time."""
    client = session.client
    places = partitions_of(client, topics, internal=not exclude_internal)
    if at is None and since is None:
        _show_bounds(session, places, read_committed=read_committed)
        return
    if since is not None:
        timestamp = int(time.time() * 1000) - duration_ms(since, "--since")
    else:
        assert at is not None
        timestamp = _special(at) if at in SPECIAL else timestamp_ms(at, "--time")
    results = offsets.list_offsets(client, dict.fromkeys(places, timestamp), read_committed=read_committed)
    rows = [
        {
            "topic": topic,
            "partition": number,
            "offset": None if each.offset == offsets.NO_OFFSET else each.offset,
            "timestamp": None if each.timestamp < 0 else each.timestamp,
            "leader_epoch": None if each.leader_epoch < 0 else each.leader_epoch,
        }
        for (topic, number), each in sorted(session.succeeded(results, "partition").items())
    ]
    session.show(rows, TextTable(_COLUMNS, rows))
    session.end(results)


def _show_bounds(session: CommandSession, places: list[TopicPartition], *, read_committed: bool) -> None:
    starts = offsets.list_offsets(session.client, dict.fromkeys(places, offsets.EARLIEST))
    latest = dict.fromkeys(places, offsets.LATEST)
    ends = offsets.list_offsets(session.client, latest, read_committed=read_committed)
    found = session.succeeded(ends, "partition")
    rows = []
    for (topic, number), end in sorted(found.items()):
        start = starts[topic, number]
        earliest = None if isinstance(start, KafkaError) else start.offset
        rows.append(
            {
                "topic": topic,
                "partition": number,
                "earliest": earliest,
                "latest": end.offset,
                "records": None if earliest is None else end.offset - earliest,
            }
        )
    session.show(rows, TextTable(_BOUNDS, rows))
    session.end(ends)


def _special(name: str) -> int:
    timestamp: int = getattr(offsets, name.upper().replace("-", "_"))
    return timestamp


def partitions_of(client: AdminClient, texts: tuple[str, ...], *, internal: bool = True) -> list[TopicPartition]:
    """The partitions of topics, or of all topics. Raises CommandFailure for a topic that does not exist."""
    from odradek.admin.topics import describe_topics, list_topics

    if not texts:
        found = list_topics(client, internal=internal)
        return [(topic.name, part.partition) for topic in found for part in topic.partitions]
    wanted = parse_partitions(texts)
    places: list[TopicPartition] = []
    for name, described in describe_topics(client, list(wanted)).items():
        if isinstance(described, KafkaError):
            raise failure_of(described, f"topic {name}")
        chosen = wanted[name]
        numbers = [part.partition for part in described.partitions] if chosen is None else chosen
        places += [(name, number) for number in numbers]
    return places
