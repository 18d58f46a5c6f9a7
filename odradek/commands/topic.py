"""`odradek topic`: list, describe, create, alter, delete, configs (Kafka: kafka-topics)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.admin import configs, offsets, topics
from odradek.commands.completion import complete_topics
from odradek.commands.config_output import CONFIG_COLUMNS, changes_of, config_rows, key_values
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, usage, yes_option
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.regular_expressions import PatternError, fullmatch_of

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient

_LIST: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITIONS", "partitions"),
    Column("REPLICAS", "replication_factor"),
    Column("UNDER-REPLICATED", "under_replicated", wide=True),
    Column("INTERNAL", "internal", wide=True),
    Column("TOPIC ID", "topic_id", wide=True),
)
_PARTITIONS: Final = (
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("OFFLINE", "offline_replicas"),
    Column("LEADER EPOCH", "leader_epoch", wide=True),
)
_FOUND_PARTITIONS: Final = (Column("TOPIC", "topic"), *_PARTITIONS)
_CREATED: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITIONS", "partitions"),
    Column("REPLICAS", "replication_factor"),
    Column("TOPIC ID", "topic_id", wide=True),
)
_FILTERS: Final = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")

_topics_argument = click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
_regex_option = click.option("--regex", is_flag=True, help="TOPIC is a regular expression that matches whole names.")


@click.group()
def topic() -> None:
    """List, describe, create, alter and delete topics."""


@topic.command("list")
@click.argument("pattern", required=False, metavar="[REGEX]")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")
@connects
def list_topics(session: CommandSession, pattern: str | None, exclude_internal: bool) -> None:
    """List topics, or those whose whole name matches REGEX."""
    found = topics.list_topics(session.client, internal=not exclude_internal)
    if pattern is not None:
        matches = matcher(pattern)
        found = [each for each in found if matches(each.name)]
    rows = [
        {
            "topic": each.name,
            "topic_id": each.topic_id or None,
            "internal": each.internal,
            "partitions": len(each.partitions),
            "replication_factor": each.replication_factor,
            "under_replicated": sum(len(part.isr) < len(part.replicas) for part in each.partitions),
        }
        for each in found
    ]
    session.show(rows, TextTable(_LIST, rows))


@topic.command("describe")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@_regex_option
@click.option("--under-replicated", "filters", flag_value="under-replicated", help="Partitions with ISR < replicas.")
@click.option("--unavailable", "filters", flag_value="unavailable", help="Partitions without a leader.")
@click.option("--under-min-isr", "filters", flag_value="under-min-isr", help="Partitions below min.insync.replicas.")
@click.option("--at-min-isr", "filters", flag_value="at-min-isr", help="Partitions at min.insync.replicas.")
@connects
def describe(session: CommandSession, names: tuple[str, ...], regex: bool, filters: str | None) -> None:
    """Show partitions, leaders, replicas and ISR, and the configs that differ from the default.

    Without TOPIC it shows every topic. With one of --under-replicated, --unavailable, --under-min-isr and --at-min-isr
    it shows the partitions for which that is true.
    """
    results = _described(session.client, names, regex)
    found = session.succeeded(results, "topic")
    overrides = _overrides(session.client, found, every=filters in ("under-min-isr", "at-min-isr"))
    described = []
    for each in found.values():
        entries = overrides[each.name]
        least = int(next((entry.value or "1" for entry in entries if entry.name == "min.insync.replicas"), "1"))
        partitions = [part for part in each.partitions if filters is None or _is_found(part, filters, least)]
        if partitions or filters is None:
            described.append((each, entries, partitions))
    data = [_as_data(each, entries, partitions) for each, entries, partitions in described]
    if filters is not None:
        session.show(data, TextTable(_FOUND_PARTITIONS, [row for each in data for row in each["partitions"]]))
    else:
        session.show(data, *(TextTable(_PARTITIONS, each["partitions"], _heading(each)) for each in data))
    session.end(results)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", "-p", type=click.IntRange(1), help="[default: num.partitions of the broker]")
@click.option(
    "--replication-factor", "-r", type=click.IntRange(1), help="[default: default.replication.factor of the broker]"
)
@click.option(
    "--replica-assignment", metavar="0:1,1:2", help="The brokers of each partition, in place of the two numbers."
)
@click.option("--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="A config of the topics.")
@click.option("--if-not-exists", is_flag=True, help="Succeed where a topic exists already.")
@dry_run_option
@connects
def create(
    session: CommandSession,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics. With --dry-run the controller only checks that they can be created."""
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        usage("--replica-assignment replaces --partitions and --replication-factor")
    wanted = [
        topics.CreatableTopic(
            name,
            partitions or topics.BROKER_DEFAULT,
            replication_factor or topics.BROKER_DEFAULT,
            parse_assignment(replica_assignment),
            key_values(settings, "--config"),
        )
        for name in dict.fromkeys(names)
    ]
    results = topics.create_topics(session.client, wanted, validate_only=dry_run)
    if if_not_exists:
        results = _without(results, ErrorCode.TOPIC_ALREADY_EXISTS)
    rows = [_created(each) for each in session.succeeded(results, "topic").values()]
    session.note("These topics can be created:" * (dry_run and bool(rows)) or "Created:" * bool(rows))
    session.show(rows, *([TextTable(_CREATED, rows)] if rows else []))
    session.end(results)


@topic.command()
@_topics_argument
@click.option("--partitions", "-p", type=click.IntRange(1), help="The new number of partitions; it can only grow.")
@click.option("--replica-assignment", metavar="0:1,1:2", help="The brokers of all partitions, old and new.")
@click.option("--set", "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE", help="Set a config.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a config, so that its default applies again.")
@click.option("--if-exists", is_flag=True, help="Leave out topics that do not exist.")
@dry_run_option
@connects
def alter(
    session: CommandSession,
    names: tuple[str, ...],
    partitions: int | None,
    replica_assignment: str | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    if_exists: bool,
    dry_run: bool,
) -> None:
    """Add partitions to topics, and change their configs.

    More partitions change the partition of keys: records of one key may then be in two partitions.
    """
    changes = changes_of(settings, unset)
    if partitions is None and not changes:
        usage("nothing to change: --partitions, --set or --unset is required")
    results: dict[str, Any] = topics.describe_topics(session.client, names)
    if if_exists:
        results = _without(results, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = {name: each for name, each in results.items() if isinstance(each, topics.TopicDescription)}
    if partitions is not None:
        counts = dict.fromkeys(existing, partitions)
        added = _added_replicas(existing, parse_assignment(replica_assignment))
        results |= topics.create_partitions(session.client, counts, added, validate_only=dry_run)
    if changes:
        altered = {configs.ConfigTarget(configs.ResourceKind.TOPIC, name): changes for name in existing}
        for target, result in configs.alter_configs(session.client, altered, validate_only=dry_run).items():
            if not isinstance(results.get(target.name), KafkaError):
                results[target.name] = result
    done = list(session.succeeded(results, "topic"))
    _report(session, [{"topic": name} for name in done], f"{'Can be altered' if dry_run else 'Altered'}: ", done)
    session.end(results)


@topic.command()
@_topics_argument
@_regex_option
@click.option("--if-exists", is_flag=True, help="Leave out topics that do not exist.")
@yes_option
@dry_run_option
@connects
def delete(
    session: CommandSession, names: tuple[str, ...], regex: bool, if_exists: bool, yes: bool, dry_run: bool
) -> None:
    """Delete topics with all of their records."""
    results: dict[str, Any] = _described(session.client, names, regex)
    if if_exists:
        results = _without(results, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = session.succeeded(results, "topic")
    plan = [_deletion(session.client, each) for each in found.values()] if dry_run or not yes else []
    if dry_run:
        _report(session, [{"topic": name} for name in found], "", plan, separator="\n")
    elif found:
        session.confirm(plan, yes=yes, question="Delete?")
        deleted = topics.delete_topics(session.client, found)
        done = list(session.succeeded(deleted, "topic"))
        _report(session, [{"topic": name} for name in done], "Deleted: ", done)
        results |= deleted
    session.end(results)


@topic.command("configs")
@_topics_argument
@click.option("--all", "every", is_flag=True, help="Also those with a default value.")
@click.option("--documentation", is_flag=True, help="What each config means, in JSON and YAML.")
@connects
def topic_configs(session: CommandSession, names: tuple[str, ...], every: bool, documentation: bool) -> None:
    """Show the configs of topics and where their values come from. `odradek topic alter` changes them."""
    targets = [configs.ConfigTarget(configs.ResourceKind.TOPIC, name) for name in dict.fromkeys(names)]
    results = configs.describe_configs(session.client, targets, synonyms=True, documentation=documentation)
    named = {target.name: result for target, result in results.items()}
    data: list[dict[str, Any]] = []
    for name, entries in session.succeeded(named, "topic").items():
        shown = [entry for entry in entries if every or entry.source != configs.DEFAULT]
        data.append({"topic": name, "configs": config_rows(shown, documentation=documentation)})
    session.show(data, *(TextTable(CONFIG_COLUMNS, each["configs"], f"topic {each['topic']}") for each in data))
    session.end(named)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches a regular expression of the command line. Raises click.UsageError."""
    try:
        return fullmatch_of(pattern)
    except PatternError as error:
        usage(str(error))


def parse_assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    """The brokers of each partition, as kafka-topics takes them: `0:1,1:2` are two partitions with two replicas each.

    Raises click.UsageError.
    """
    if text is None:
        return ()
    try:
        return tuple(tuple(int(each) for each in part.split(":")) for part in text.split(","))
    except ValueError:
        usage(f"--replica-assignment: {text!r} is not like 0:1,1:2")


def _described(
    client: AdminClient, names: Iterable[str], regex: bool
) -> dict[str, topics.TopicDescription | KafkaError]:
    names = tuple(dict.fromkeys(names))
    if names and not regex:
        return topics.describe_topics(client, names)
    matchers = [matcher(name) for name in names]
    found = topics.list_topics(client)
    return {each.name: each for each in found if not matchers or any(matches(each.name) for matches in matchers)}


def _overrides(
    client: AdminClient, found: Mapping[str, topics.TopicDescription], *, every: bool
) -> dict[str, list[configs.DescribedConfig]]:
    """The configs of each topic, without those with a default value unless `every`."""
    results = configs.describe_configs(
        client, [configs.ConfigTarget(configs.ResourceKind.TOPIC, name) for name in found]
    )
    return {
        target.name: []
        if isinstance(entries, KafkaError)  # a user may describe a topic without the permission to read its configs
        else [entry for entry in entries if every or entry.source != configs.DEFAULT]
        for target, entries in results.items()
    }


def _is_found(partition: topics.PartitionInfo, kind: str, least: int) -> bool:
    in_sync = len(partition.isr)
    if kind == "under-replicated":
        return in_sync < len(partition.replicas)
    if kind == "unavailable":
        return partition.leader == topics.NO_LEADER or partition.leader in partition.offline_replicas
    return in_sync < least if kind == "under-min-isr" else in_sync == least


def _as_data(
    each: topics.TopicDescription, entries: list[configs.DescribedConfig], partitions: list[topics.PartitionInfo]
) -> dict[str, Any]:
    return {
        "topic": each.name,
        "topic_id": each.topic_id or None,
        "internal": each.internal,
        "partition_count": len(each.partitions),
        "replication_factor": each.replication_factor,
        "configs": {entry.name: entry.value for entry in entries},
        "partitions": [
            {
                "topic": part.topic,
                "partition": part.partition,
                "leader": None if part.leader == topics.NO_LEADER else part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "offline_replicas": list(part.offline_replicas),
            }
            for part in partitions
        ],
    }


def _heading(each: dict[str, Any]) -> str:
    count, replicas = each["partition_count"], each["replication_factor"]
    lines = [f"topic {each['topic']}  partitions={count}  replicas={replicas}  id={each['topic_id'] or '-'}"]
    return "\n".join([*lines, *(f"  {name}={value}" for name, value in each["configs"].items())])


def _created(each: topics.CreatedTopic | None) -> dict[str, Any]:
    assert each is not None
    return {
        "topic": each.name,
        "topic_id": each.topic_id or None,
        "partitions": None if each.partitions == topics.BROKER_DEFAULT else each.partitions,
        "replication_factor": None if each.replication_factor == topics.BROKER_DEFAULT else each.replication_factor,
    }


def _without(results: Mapping[str, Any], code: ErrorCode) -> dict[str, Any]:
    return {name: each for name, each in results.items() if not (isinstance(each, KafkaError) and each.code is code)}


def _added_replicas(
    existing: Mapping[str, topics.TopicDescription], assignment: tuple[tuple[int, ...], ...]
) -> dict[str, list[tuple[int, ...]]] | None:
    """The replicas of the new partitions: the assignment has those of the old ones before them, as for kafka-topics."""
    return {name: list(assignment[len(each.partitions) :]) for name, each in existing.items()} if assignment else None


def _deletion(client: AdminClient, each: topics.TopicDescription) -> str:
    places = [(each.name, part.partition) for part in each.partitions]
    ends = offsets.list_offsets(client, dict.fromkeys(places, offsets.LATEST))
    starts = offsets.list_offsets(client, dict.fromkeys(places, offsets.EARLIEST))
    records = 0
    for place in places:
        end, start = ends[place], starts[place]
        if isinstance(end, KafkaError) or isinstance(start, KafkaError):
            return f"delete topic {each.name}: {len(places)} partitions"
        records += end.offset - start.offset
    return f"delete topic {each.name}: {len(places)} partitions, offsets of {records} records"


def _report(
    session: CommandSession, rows: list[dict[str, Any]], prefix: str, items: list[str], separator: str = ", "
) -> None:
    """A line for a reader, and the rows for programs."""
    if session.output in ("json", "yaml"):
        session.show(rows)
    elif items:
        session.note(prefix + separator.join(items))
