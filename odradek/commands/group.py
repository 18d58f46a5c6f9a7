"""`odradek group`: list, describe, lag, delete, remove-member (Kafka: kafka-consumer-groups, kafka-groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from odradek.admin import group_offsets, groups, lag
from odradek.commands.completion import complete_groups, topics_option
from odradek.commands.failures import failure_of
from odradek.commands.group_reset import reset
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, parse_partitions, usage, yes_option
from odradek.protocol.errors import ErrorCode, KafkaError

_LIST: Final = (
    Column("GROUP", "group"),
    Column("STATE", "state"),
    Column("TYPE", "type"),
    Column("PROTOCOL", "protocol_type", wide=True),
)
_MEMBERS: Final = (
    Column("MEMBER", "member_id"),
    Column("CLIENT", "client_id"),
    Column("HOST", "host"),
    Column("INSTANCE", "instance_id", wide=True),
    Column("EPOCH", "epoch", wide=True),
    Column("PARTITIONS", "assignment", shown=lambda value: _assignment_text(value)),
)
_LAG: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "committed_offset"),
    Column("LOG END", "log_end_offset"),
    Column("LAG", "lag"),
    Column("MEMBER", "member_id"),
    Column("CLIENT", "client_id", wide=True),
    Column("HOST", "host", wide=True),
)
_SUMMARY: Final = (
    Column("GROUP", "group"),
    Column("STATE", "state"),
    Column("MEMBERS", "members"),
    Column("PARTITIONS", "partitions"),
    Column("LAG", "lag"),
)
_groups_argument = click.argument(
    "group_ids", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups, and show their lag."""


group.add_command(reset)


@group.command("list")
@click.option("--state", "states", multiple=True, help="Only groups in this state. Can be given again.")
@click.option("--type", "types", multiple=True, help="Only groups of this type: classic, consumer, share, streams.")
@connects
def list_groups(session: CommandSession, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups."""
    found = groups.list_groups(session.client, states, types)
    rows = [
        {
            "group": each.group_id,
            "state": each.state or None,
            "type": each.type or None,
            "protocol_type": each.protocol_type,
        }
        for each in found.groups
    ]
    session.show(rows, TextTable(_LIST, rows))
    for broker_id, error in found.errors.items():
        raise failure_of(error, f"broker {broker_id}")


@group.command()
@_groups_argument
@connects
def describe(session: CommandSession, group_ids: tuple[str, ...]) -> None:
    """Show state, coordinator, members with their partitions, and committed offsets."""
    results = groups.describe_groups(session.client, list(dict.fromkeys(group_ids)))
    found = session.succeeded(results, "group")
    lags = lag.group_lags(session.client, found.values())
    offsets = session.succeeded(lags, "group")
    data = [_as_data(each, offsets.get(name, [])) for name, each in found.items()]
    tables = []
    for each in data:
        tables.append(TextTable(_MEMBERS, each["members"], _heading(each)))
        if each["offsets"]:
            tables.append(TextTable(_LAG, each["offsets"]))
    session.show(data, *tables)
    session.end(results, lags)


@group.command("lag")
@click.argument("group_ids", nargs=-1, metavar="[GROUP]...", shell_complete=complete_groups)
@connects
def show_lag(session: CommandSession, group_ids: tuple[str, ...]) -> None:
    """Show how many records groups are behind: of each partition, or without GROUP the sum of every group."""
    client = session.client
    wanted = list(dict.fromkeys(group_ids)) or [each.group_id for each in groups.list_groups(client).groups]
    results = groups.describe_groups(client, wanted)
    if not group_ids:  # a group may end in between
        results = {name: each for name, each in results.items() if not _is_absent(each)}
    found = session.succeeded(results, "group")
    lags = lag.group_lags(client, found.values())
    offsets = session.succeeded(lags, "group")
    if group_ids:
        rows = [row for name, each in offsets.items() for row in _lag_rows(name, each)]
        tables = [TextTable(_LAG, _lag_rows(name, each), _sum_text(name, each)) for name, each in offsets.items()]
        session.show(rows, *tables)
    else:
        rows = [_summary(found[name], each) for name, each in offsets.items()]
        session.show(rows, TextTable(_SUMMARY, rows))
    session.end(results, lags)


@group.command()
@_groups_argument
@yes_option
@dry_run_option
@connects
def delete(session: CommandSession, group_ids: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete groups that have no members, with their committed offsets."""
    results: dict[str, Any] = groups.describe_groups(session.client, list(dict.fromkeys(group_ids)))
    found = session.succeeded(results, "group")
    plan = [f"delete group {each.group_id}: {each.state}, {len(each.members)} members" for each in found.values()]
    if dry_run:
        _report(session, list(found), plan)
    elif found:
        session.confirm(plan, yes=yes, question="Delete?")
        deleted = groups.delete_groups(session.client, found)
        done = list(session.succeeded(deleted, "group"))
        _report(session, done, [f"Deleted: {', '.join(done)}"])
        results |= deleted
    session.end(results)


@group.command("delete-offsets")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@topics_option(required=True)
@yes_option
@dry_run_option
@connects
def delete_offsets(session: CommandSession, group_id: str, topics: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete committed offsets of topics to which no member is subscribed."""
    wanted = parse_partitions(topics)
    committed = group_offsets.committed_offsets(session.client, group_id)
    places = [
        place for place in sorted(committed) if place[0] in wanted and place[1] in (wanted[place[0]] or [place[1]])
    ]
    if not places:
        raise failure_of(KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "no committed offset of these topics"), group_id)
    plan = [f"delete offset {committed[place].offset} of {place[0]}-{place[1]}" for place in places]
    rows = [{"topic": topic, "partition": number} for topic, number in places]
    if dry_run:
        session.show(rows, TextTable((Column("TOPIC", "topic"), Column("PARTITION", "partition")), rows))
        return
    session.confirm([f"group {group_id}:", *plan], yes=yes, question="Delete?")
    results = group_offsets.delete_offsets(session.client, group_id, places)
    done = session.succeeded(results, "offset of")
    rows = [{"topic": topic, "partition": number} for topic, number in done]
    session.show(rows, TextTable((Column("TOPIC", "topic"), Column("PARTITION", "partition")), rows, "Deleted:"))
    session.end(results)


@group.command("remove-member")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option("--member-id", "member_ids", multiple=True, metavar="ID", help="A member. Can be given again.")
@click.option("--instance-id", "instance_ids", multiple=True, metavar="ID", help="A static member (group.instance.id).")
@click.option("--all", "every", is_flag=True, help="Every member.")
@click.option("--reason", default="removed by odradek group remove-member", help="For the log of the coordinator.")
@yes_option
@dry_run_option
@connects
def remove_member(
    session: CommandSession,
    group_id: str,
    member_ids: tuple[str, ...],
    instance_ids: tuple[str, ...],
    every: bool,
    reason: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove members from a group, whose partitions then go to the others. A client that still runs joins again."""
    if not (member_ids or instance_ids or every):
        usage("which members: --member-id, --instance-id or --all is required")
    described = groups.describe_groups(session.client, [group_id])[group_id]
    if isinstance(described, KafkaError):
        raise failure_of(described, f"group {group_id}")
    chosen = [
        each for each in described.members if every or each.member_id in member_ids or each.instance_id in instance_ids
    ]
    absent = {*member_ids, *instance_ids} - {name for each in chosen for name in (each.member_id, each.instance_id)}
    if absent:
        raise failure_of(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID), f"member {min(absent)} of group {group_id}")
    rows = [_member_row(each) for each in chosen]
    if dry_run or not chosen:
        session.show(rows, TextTable(_MEMBERS, rows))
        return
    plan = [f"remove member {each.member_id} ({each.client_id} at {each.host})" for each in chosen]
    session.confirm([f"group {group_id}:", *plan], yes=yes, question="Remove?")
    results = groups.remove_members(session.client, group_id, chosen, reason)
    done = session.succeeded(results, "member")
    rows = [row for row in rows if row["member_id"] in done]
    session.show(rows, TextTable(_MEMBERS, rows, "Removed:"))
    session.end(results)


def _is_absent(result: groups.GroupDescription | KafkaError) -> bool:
    return isinstance(result, KafkaError) and result.code is ErrorCode.GROUP_ID_NOT_FOUND


def _as_data(each: groups.GroupDescription, offsets: list[lag.PartitionLag]) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "state": each.state,
        "type": each.type,
        "protocol_type": each.protocol_type,
        "coordinator": each.coordinator,
        "assignor": each.assignor or None,
        "epoch": each.epoch,
        "members": [_member_row(member) for member in each.members],
        "offsets": _lag_rows(each.group_id, offsets),
    }


def _member_row(member: groups.MemberDescription) -> dict[str, Any]:
    row: dict[str, Any] = {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "assignment": {topic: list(partitions) for topic, partitions in sorted(member.assignment.items())},
    }
    if member.target_assignment is not None:
        target = sorted(member.target_assignment.items())
        row["target_assignment"] = {topic: list(partitions) for topic, partitions in target}
    return row


def _assignment_text(assignment: Mapping[str, Iterable[int]]) -> str:
    return " ".join(f"{topic}({','.join(map(str, parts))})" for topic, parts in assignment.items()) or "-"


def _heading(each: Mapping[str, Any]) -> str:
    texts = [f"group {each['group']}  {each['state']}  type={each['type']}  coordinator={each['coordinator']}"]
    texts += [f"{name}={each[name]}" for name in ("assignor", "epoch") if each[name] is not None]
    return "  ".join([*texts, f"members={len(each['members'])}"])


def _lag_rows(group_id: str, partitions: Iterable[lag.PartitionLag]) -> list[dict[str, Any]]:
    return [
        {
            "group": group_id,
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.committed_offset,
            "log_end_offset": each.log_end_offset,
            "lag": each.lag,
            "member_id": each.member.member_id if each.member else None,
            "instance_id": each.member.instance_id if each.member else None,
            "client_id": each.member.client_id if each.member else None,
            "host": each.member.host if each.member else None,
        }
        for each in partitions
    ]


def _sum(partitions: Iterable[lag.PartitionLag]) -> int:
    return sum(each.lag or 0 for each in partitions)


def _sum_text(group_id: str, partitions: list[lag.PartitionLag]) -> str:
    return f"group {group_id}  lag={_sum(partitions)}  partitions={len(partitions)}"


def _summary(each: groups.GroupDescription, partitions: list[lag.PartitionLag]) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "state": each.state,
        "members": len(each.members),
        "partitions": len(partitions),
        "lag": _sum(partitions),
    }


def _report(session: CommandSession, group_ids: list[str], lines: list[str]) -> None:
    if session.output in ("json", "yaml"):
        session.show([{"group": each} for each in group_ids])
    elif group_ids:
        session.note("\n".join(lines))
