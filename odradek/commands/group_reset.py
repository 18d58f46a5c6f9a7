"""`odradek group reset`: other committed offsets for a group without members (Kafka: kafka-consumer-groups
--reset-offsets, KIP-122).
"""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from odradek.admin import group_offsets, groups, offset_reset
from odradek.commands.completion import complete_groups, topics_option
from odradek.commands.failures import failure_of
from odradek.commands.get_offsets import partitions_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, fail, usage, yes_option
from odradek.commands.times import duration_ms, timestamp_ms
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient

_CHANGES: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "current"),
    Column("NEW OFFSET", "new"),
)


class Where(NamedTuple):
    """The options that choose the new offset, of which one is given."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: Path | None


@click.command()
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@topics_option()
@click.option("--all-topics", is_flag=True, help="Every topic with a committed offset of the group.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: only later records are read.")
@click.option("--to-current", is_flag=True, help="To the committed offset; to the end where there is none.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset, or the nearest that the log has.")
@click.option("--shift-by", type=int, help="So many records forward; backward, if it is negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at or after 2026-01-31T12:00:00 (UTC).")
@click.option(
    "--by-duration", "--since", "by_duration", metavar="DURATION", help="To the first record since 2h or PT2H."
)
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="To the offsets of lines `topic,partition,offset`, as --export prints them.",
)
@click.option("--export", is_flag=True, help="Print the plan as such lines, and change nothing.")
@yes_option
@dry_run_option
@connects
def reset(
    session: CommandSession,
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    export: bool,
    yes: bool,
    dry_run: bool,
    **where: Any,
) -> None:
    """Set the committed offsets of a group that has no members.

    It prints the old and the new offsets and asks; --dry-run only prints them.
    """
    chosen, client = Where(**where), session.client
    _check(chosen, topics, all_topics)
    described = groups.describe_groups(client, [group_id])[group_id]
    _check_state(group_id, described)
    committed = group_offsets.committed_offsets(client, group_id)
    wanted = _offsets_in(chosen.from_file) if chosen.from_file is not None else {}
    places = list(wanted) or (list(committed) if all_topics else partitions_of(client, topics))
    plan = offset_reset.plan_reset(client, places, committed, _target(client, chosen, wanted, places))
    changes = session.succeeded(plan, "partition")
    if export:
        click.echo("\n".join(f"{each.topic},{each.partition},{each.new}" for each in changes.values()))
    elif dry_run or not changes:
        _show(session, changes, "")
    else:
        lines = [f"group {group_id}:"]
        lines += [
            f"set {each.topic}-{each.partition} from {_shown(each.current)} to {each.new}" for each in changes.values()
        ]
        session.confirm(lines, yes=yes, question="Reset?")
        results = group_offsets.alter_offsets(client, group_id, {place: each.new for place, each in changes.items()})
        done = session.succeeded(results, "partition")
        _show(session, {place: changes[place] for place in done}, f"Reset group {group_id}:")
        session.end(results)
    session.end(plan)


def _check(where: Where, topics: tuple[str, ...], all_topics: bool) -> None:
    given = [name for name, value in where._asdict().items() if value not in (None, False)]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in Where._fields)
        usage(f"one of {names} is required, and only one")
    if where.from_file is not None and (topics or all_topics):
        usage("--from-file names the partitions; --topic and --all-topics do not go with it")
    if where.from_file is None and bool(topics) == all_topics:
        usage("which partitions: --topic or --all-topics is required")


def _check_state(group_id: str, described: Any) -> None:
    """A group that does not exist yet gets offsets, too."""
    if isinstance(described, KafkaError):
        if described.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise failure_of(described, f"group {group_id}")
    elif described.state not in (groups.EMPTY, groups.DEAD):
        fail(f"group {group_id}: offsets can be reset only while it has no members; its state is {described.state}")


def _target(
    client: AdminClient, where: Where, wanted: Mapping[TopicPartition, int], places: list[TopicPartition]
) -> offset_reset.Target:
    if where.from_file is not None:
        return offset_reset.to_offsets(wanted)
    if where.to_offset is not None:
        return offset_reset.to_offset(where.to_offset)
    if where.shift_by is not None:
        return offset_reset.shift_by(where.shift_by)
    if where.to_datetime is not None:
        return _at(client, places, timestamp_ms(where.to_datetime, "--to-datetime"))
    if where.by_duration is not None:
        now_ms = int(time.time() * 1000)
        return _at(client, places, now_ms - duration_ms(where.by_duration, "--by-duration"))
    if where.to_current:
        return offset_reset.to_current
    return offset_reset.to_earliest if where.to_earliest else offset_reset.to_latest


def _at(client: AdminClient, places: list[TopicPartition], timestamp: int) -> offset_reset.Target:
    return offset_reset.to_found(offset_reset.offsets_at(client, places, timestamp))


def _offsets_in(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a CSV file. Raises click.UsageError."""
    found: dict[TopicPartition, int] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            if len(row) != 3 or not row[1].strip().isdigit() or not row[2].strip().isdigit():
                usage(f"{path}:{number}: not `topic,partition,offset`")
            found[row[0].strip(), int(row[1])] = int(row[2])
    return found


def _show(session: CommandSession, changes: Mapping[TopicPartition, offset_reset.OffsetChange], heading: str) -> None:
    rows = [each._asdict() for each in changes.values()]
    session.show(rows, TextTable(_CHANGES, rows, heading))


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)
