"""`odradek reassign`: plan, run, status, cancel (Kafka: kafka-reassign-partitions).

Plans are files in the format of Kafka's tool, so either tool runs the plans of the other:

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Final

import click

from odradek.admin import reassignment_plan, reassignments
from odradek.commands.completion import complete_topics
from odradek.commands.failures import NOT_FOUND, failure_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, fail, usage, yes_option
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient
    from odradek.admin.topics import TopicDescription

_MOVES: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("REPLICAS", "current"),
    Column("NEW REPLICAS", "replicas"),
)
_STATUS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("STATUS", "status"),
    Column("REPLICAS", "replicas"),
    Column("ADDING", "adding"),
    Column("REMOVING", "removing"),
)
COMPLETE, RUNNING, DIFFERENT = "complete", "in progress", "different"
_file_argument = click.argument("file", type=click.File(encoding="utf-8"), metavar="FILE")


@click.group()
def reassign() -> None:
    """Move partitions to other brokers."""


@reassign.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option("--brokers", metavar="ID,ID,...", help="The brokers for the replicas.  [default: all of the cluster]")
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="[default: as many replicas as now]")
@connects
def plan(session: CommandSession, topics: tuple[str, ...], brokers: str | None, replication_factor: int | None) -> None:
    """Print a plan that spreads the replicas of topics over brokers and moves as few as possible.

    Without TOPIC the plan is for every topic but Kafka's own. `odradek reassign run FILE` carries it out.
    """
    client = session.client
    metadata = client.call(lambda: client.metadata([]))
    racks = {each.node_id: each.rack for each in metadata.brokers}
    wanted = _broker_ids(brokers) if brokers is not None else sorted(racks)
    absent = [each for each in wanted if each not in racks]
    if absent:
        fail(f"broker {absent[0]} is not in the cluster; it has {', '.join(map(str, sorted(racks)))}", NOT_FOUND)
    current = _current(client, topics)
    try:
        planned = reassignment_plan.plan_reassignment(
            current, {each: racks[each] for each in wanted}, replication_factor
        )
    except ValueError as error:
        usage(str(error))
    changed = {place: replicas for place, replicas in planned.items() if replicas != current[place]}
    if session.output in ("table", "wide"):
        click.echo(json.dumps(_document(changed)))
    else:
        session.show(_document(changed))


@reassign.command()
@_file_argument
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="At most so many bytes a second a broker.")
@yes_option
@dry_run_option
@connects
def run(session: CommandSession, file: IO[str], throttle: int | None, yes: bool, dry_run: bool) -> None:
    """Start the reassignment of a plan; `-` is standard input.

    The data moves in the background; `odradek reassign status FILE` shows when it is complete, and removes throttles
    with --clear-throttles.
    """
    client, wanted = session.client, _read(file)
    current = _current(client, tuple(dict.fromkeys(topic for topic, _ in wanted)))
    for topic, number in wanted:
        if (topic, number) not in current:
            fail(f"partition {topic}-{number} does not exist", NOT_FOUND)
    rows = [
        {"topic": topic, "partition": number, "current": current[topic, number], "replicas": replicas}
        for (topic, number), replicas in sorted(wanted.items())
    ]
    if dry_run:
        session.show(rows, TextTable(_MOVES, rows))
        return
    lines = [f"move {row['topic']}-{row['partition']} from {row['current']} to {row['replicas']}" for row in rows]
    session.confirm(lines, yes=yes, question="Reassign?")
    if throttle is not None:
        throttled = reassignments.set_throttles(client, current, wanted, throttle)
        for target, result in throttled.items():
            if isinstance(result, KafkaError):
                raise failure_of(result, f"throttle of {target.kind.name.lower()} {target.name}")
    results = reassignments.alter_reassignments(client, wanted)
    done = session.succeeded(results, "partition")
    started = [row for row in rows if (row["topic"], row["partition"]) in done]
    session.show(started, TextTable(_MOVES, started, "Started:"))
    session.end(results)


@reassign.command()
@click.argument("file", type=click.File(encoding="utf-8"), required=False, metavar="[FILE]")
@click.option("--clear-throttles", is_flag=True, help="Once all partitions of FILE are complete: remove the throttles.")
@connects
def status(session: CommandSession, file: IO[str] | None, clear_throttles: bool) -> None:
    """Show the partitions that move now, or with FILE how far each partition of the plan is."""
    client = session.client
    if clear_throttles and file is None:
        usage("--clear-throttles requires FILE")
    wanted = _read(file) if file is not None else None
    moving = reassignments.list_reassignments(client, wanted)
    if wanted is None:
        rows = [_moving(place, each) for place, each in sorted(moving.items())]
    else:
        current = _current(client, tuple(dict.fromkeys(topic for topic, _ in wanted)))
        rows = [_status(place, replicas, moving, current) for place, replicas in sorted(wanted.items())]
    session.show(rows, TextTable(_STATUS, rows))
    if clear_throttles and wanted is not None and all(row["status"] == COMPLETE for row in rows):
        cleared = reassignments.clear_throttles(client, {topic for topic, _ in wanted}, client.broker_ids())
        session.succeeded({target.name: each for target, each in cleared.items()}, "throttle of")
        session.end(cleared)


@reassign.command()
@click.argument("file", type=click.File(encoding="utf-8"), required=False, metavar="[FILE]")
@click.option("--all", "every", is_flag=True, help="Every partition that moves.")
@yes_option
@dry_run_option
@connects
def cancel(session: CommandSession, file: IO[str] | None, every: bool, yes: bool, dry_run: bool) -> None:
    """Cancel reassignments: the partitions of a plan, or all, keep the replicas that they had."""
    if (file is None) != every:
        usage("which reassignments: FILE or --all is required")
    client = session.client
    moving = reassignments.list_reassignments(client, _read(file) if file is not None else None)
    rows = [_moving(place, each) for place, each in sorted(moving.items())]
    if dry_run or not rows:
        session.show(rows, TextTable(_STATUS, rows))
        return
    lines = [f"cancel the reassignment of {row['topic']}-{row['partition']} to {row['replicas']}" for row in rows]
    session.confirm(lines, yes=yes, question="Cancel?")
    results = reassignments.alter_reassignments(client, dict.fromkeys(moving))
    done = session.succeeded(results, "partition")
    rows = [row for row in rows if (row["topic"], row["partition"]) in done]
    session.show(rows, TextTable(_STATUS, rows, "Cancelled:"))
    session.end(results)


def _current(client: AdminClient, topics: tuple[str, ...]) -> dict[TopicPartition, reassignments.Replicas]:
    """The replicas of topics, of all but Kafka's own without names. Raises CommandFailure."""
    from odradek.admin.topics import describe_topics, list_topics

    described: Mapping[str, TopicDescription | KafkaError]
    if topics:
        described = describe_topics(client, list(dict.fromkeys(topics)))
    else:
        described = {each.name: each for each in list_topics(client, internal=False)}
    found: dict[TopicPartition, reassignments.Replicas] = {}
    for name, each in described.items():
        if isinstance(each, KafkaError):
            raise failure_of(each, f"topic {name}")
        found |= {(name, part.partition): part.replicas for part in each.partitions}
    return found


def _broker_ids(text: str) -> list[int]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isdigit() for each in parts):
        usage(f"--brokers: {text!r} is not ID,ID,...")
    return sorted({int(each) for each in parts})


def _document(planned: Mapping[TopicPartition, reassignments.Replicas]) -> dict[str, Any]:
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas), "log_dirs": ["any"] * len(replicas)}
        for (topic, number), replicas in sorted(planned.items())
    ]
    return {"version": 1, "partitions": partitions}


def _read(file: IO[str]) -> dict[TopicPartition, reassignments.Replicas]:
    """The replicas of a plan's partitions. Raises click.UsageError."""
    try:
        partitions = json.load(file)["partitions"]
        return {
            (str(each["topic"]), int(each["partition"])): tuple(int(replica) for replica in each["replicas"])
            for each in partitions
        }
    except (ValueError, KeyError, TypeError) as error:
        usage(f"{file.name} is not a plan: {error!r}")


def _moving(place: TopicPartition, each: reassignments.OngoingReassignment) -> dict[str, Any]:
    row = {"topic": place[0], "partition": place[1], "status": RUNNING, "replicas": list(each.target)}
    return row | {"adding": list(each.adding), "removing": list(each.removing)}


def _status(
    place: TopicPartition,
    wanted: reassignments.Replicas,
    moving: Mapping[TopicPartition, reassignments.OngoingReassignment],
    current: Mapping[TopicPartition, reassignments.Replicas],
) -> dict[str, Any]:
    if place in moving:
        return _moving(place, moving[place])
    row: dict[str, Any] = {"topic": place[0], "partition": place[1]}
    replicas = current.get(place, ())
    return row | {
        "status": COMPLETE if replicas == wanted else DIFFERENT,
        "replicas": list(replicas),
        "adding": [],
        "removing": [],
    }
