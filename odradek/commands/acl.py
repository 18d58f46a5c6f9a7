"""`odradek acl`: list, add, remove (Kafka: kafka-acls)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from odradek.admin import acls
from odradek.broker.security.state.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from odradek.commands.completion import complete_groups, complete_topics
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, usage, yes_option

F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: Final = {
    "".join(part.capitalize() for part in each.name.split("_")).lower(): each
    for each in AclOperation
    if each > AclOperation.ANY
}
"""Operations by their names on the command line of kafka-acls, in lower case: `describeconfigs`."""
ANY_HOST: Final = "*"
_COLUMNS: Final = (
    Column("RESOURCE", "resource_type"),
    Column("NAME", "resource_name"),
    Column("PATTERN", "pattern_type"),
    Column("PRINCIPAL", "principal"),
    Column("HOST", "host"),
    Column("OPERATION", "operation"),
    Column("PERMISSION", "permission_type"),
)
_OF_PRODUCERS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_OF_TRANSACTIONS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE)
_OF_CONSUMERS: Final = (AclOperation.READ, AclOperation.DESCRIBE)


class Resources(NamedTuple):
    """The options that name resources."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    delegation_tokens: tuple[str, ...]
    user_principals: tuple[str, ...]
    cluster: bool

    def named(self) -> Iterator[tuple[ResourceType, str]]:
        """Each resource with its type."""
        yield from ((ResourceType.TOPIC, name) for name in self.topics)
        yield from ((ResourceType.GROUP, name) for name in self.groups)
        yield from ((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids)
        yield from ((ResourceType.DELEGATION_TOKEN, name) for name in self.delegation_tokens)
        yield from ((ResourceType.USER, name) for name in self.user_principals)
        if self.cluster:
            yield ResourceType.CLUSTER, CLUSTER_NAME


_RESOURCES: Final[Sequence[Callable[[Any], Any]]] = (
    click.option("--topic", "topics", multiple=True, metavar="NAME", shell_complete=complete_topics, help="A topic."),
    click.option("--group", "groups", multiple=True, metavar="ID", shell_complete=complete_groups, help="A group."),
    click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID"),
    click.option("--delegation-token", "delegation_tokens", multiple=True, metavar="ID"),
    click.option("--user-principal", "user_principals", multiple=True, metavar="User:NAME", help="A user's tokens."),
    click.option("--cluster", is_flag=True, help="The cluster itself."),
)


def _resources(function: F) -> F:
    """The options that name resources; each can be given again."""
    for option in reversed(_RESOURCES):
        function = option(function)
    return function


def _operations(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[AclOperation]:
    found = []
    for value in values:
        name = value.replace("_", "").replace("-", "").lower()
        if name not in OPERATIONS:
            raise click.BadParameter(f"{value!r} is none of {', '.join(OPERATIONS)}", context, parameter)
        found.append(OPERATIONS[name])
    return found


_operation_option = click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME",
    callback=_operations,
    help="read, write, create, describe, alter, … Can be given again.  [default: all]",
)


@click.group()
def acl() -> None:
    """List, add and remove ACLs."""


@acl.command("list")
@_resources
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Only ACLs of this user.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(["any", "match", "literal", "prefixed"]),
    default="any",
    show_default=True,
    help="`match`: every ACL that applies to the named resource.",
)
@connects
def list_acls(
    session: CommandSession, principals: tuple[str, ...], resource_pattern_type: str, **resources: Any
) -> None:
    """List ACLs: all, or those of the named resources and users."""
    pattern_type = PatternType[resource_pattern_type.upper()]
    named: list[tuple[ResourceType, str | None]] = [*Resources(**resources).named()] or [(ResourceType.ANY, None)]
    found: set[AclBinding] = set()
    for resource_type, name in named:
        for principal in principals or (None,):
            entry = AccessControlEntryFilter(principal, None, AclOperation.ANY, AclPermissionType.ANY)
            pattern = ResourcePatternFilter(resource_type, name, pattern_type)
            found.update(acls.describe_acls(session.client, AclBindingFilter(pattern, entry)))
    _show(session, found)


def _changes(function: F) -> F:
    """The options of `add` and `remove`."""
    options = (
        _resources,
        click.option("--allow-principal", "allowed", multiple=True, metavar="User:NAME", help="A user that may."),
        click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="A user that may not."),
        click.option("--allow-host", "allow_hosts", multiple=True, metavar="IP", help="From where.  [default: *]"),
        click.option("--deny-host", "deny_hosts", multiple=True, metavar="IP", help="From where not.  [default: *]"),
        _operation_option,
        click.option("--producer", is_flag=True, help="What a producer to the topics needs."),
        click.option("--consumer", is_flag=True, help="What a consumer of the topics in the groups needs."),
        click.option("--idempotent", is_flag=True, help="With --producer: also for the cluster (before Kafka 2.8)."),
        click.option(
            "--resource-pattern-type",
            type=click.Choice(["literal", "prefixed"]),
            default="literal",
            show_default=True,
            help="`prefixed`: every resource whose name begins with NAME.",
        ),
        dry_run_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@acl.command()
@_changes
@connects
def add(session: CommandSession, dry_run: bool, **options: Any) -> None:
    """Add ACLs: what users may, or may not, do with resources."""
    wanted = _bindings(**options)
    if dry_run:
        _show(session, wanted)
        return
    results = acls.create_acls(session.client, wanted)
    done = session.succeeded({_text(each): result for each, result in results.items()}, "ACL")
    _show(session, [each for each in wanted if _text(each) in done])
    session.end(results)


@acl.command()
@_changes
@click.option("--all", "every", is_flag=True, help="Every ACL of the named resources.")
@yes_option
@connects
def remove(session: CommandSession, dry_run: bool, every: bool, yes: bool, **options: Any) -> None:
    """Remove ACLs: those that the same options of `odradek acl add` add."""
    if every:
        kept = {name: options[name] for name in Resources._fields}
        filters = _of_resources(Resources(**kept), PatternType[options["resource_pattern_type"].upper()])
    else:
        filters = [_filter(each) for each in _bindings(**options)]
    found = {each for acl_filter in filters for each in acls.describe_acls(session.client, acl_filter)}
    if dry_run or not found:
        _show(session, found)
        return
    session.confirm([f"remove {_text(each)}" for each in sorted(found)], yes=yes, question="Remove?")
    _show(session, acls.delete_acls(session.client, filters))


def _bindings(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    allow_hosts: tuple[str, ...],
    deny_hosts: tuple[str, ...],
    operations: list[AclOperation],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    resource_pattern_type: str,
    **resources: Any,
) -> list[AclBinding]:
    """The ACLs that the options describe, as kafka-acls makes them. Raises click.UsageError."""
    if not allowed and not denied:
        usage("which users: --allow-principal or --deny-principal is required")
    named = Resources(**resources)
    pattern_type = PatternType[resource_pattern_type.upper()]
    wanted: list[tuple[ResourceType, str, Iterable[AclOperation]]] = []
    if producer or consumer:
        if operations:
            usage("--producer and --consumer choose the operations; --operation does not go with them")
        wanted += _of_roles(named, producer=producer, consumer=consumer, idempotent=idempotent)
    else:
        wanted += [(kind, name, operations or [AclOperation.ALL]) for kind, name in named.named()]
    if not wanted:
        usage("which resources: --topic, --group, --cluster or another one is required")
    entries = [
        (principal, host, permission)
        for principals, hosts, permission in (
            (allowed, allow_hosts, AclPermissionType.ALLOW),
            (denied, deny_hosts, AclPermissionType.DENY),
        )
        for principal in principals
        for host in hosts or (ANY_HOST,)
    ]
    return [
        AclBinding(
            ResourcePattern(kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type),
            AccessControlEntry(principal, host, operation, permission),
        )
        for kind, name, some in wanted
        for operation in some
        for principal, host, permission in entries
    ]


def _of_roles(
    named: Resources, *, producer: bool, consumer: bool, idempotent: bool
) -> Iterator[tuple[ResourceType, str, Iterable[AclOperation]]]:
    """What producers and consumers need (Kafka: AclCommand.getProducerResourceToAcls, getConsumerResourceToAcls)."""
    if not named.topics or (consumer and not named.groups):
        usage("--producer requires --topic, and --consumer requires --topic and --group")
    for topic in named.topics:
        if producer:
            yield ResourceType.TOPIC, topic, _OF_PRODUCERS
        if consumer:
            yield ResourceType.TOPIC, topic, _OF_CONSUMERS
    if producer:
        for transactional_id in named.transactional_ids:
            yield ResourceType.TRANSACTIONAL_ID, transactional_id, _OF_TRANSACTIONS
        if idempotent:
            yield ResourceType.CLUSTER, CLUSTER_NAME, (AclOperation.IDEMPOTENT_WRITE,)
    if consumer:
        for group in named.groups:
            yield ResourceType.GROUP, group, (AclOperation.READ,)


def _of_resources(named: Resources, pattern_type: PatternType) -> list[AclBindingFilter]:
    every = AccessControlEntryFilter(None, None, AclOperation.ANY, AclPermissionType.ANY)
    found = [
        AclBindingFilter(
            ResourcePatternFilter(kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type),
            every,
        )
        for kind, name in named.named()
    ]
    if not found:
        usage("which resources: --topic, --group, --cluster or another one is required")
    return found


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(ResourcePatternFilter(*binding.pattern), AccessControlEntryFilter(*binding.entry))


def _text(binding: AclBinding) -> str:
    pattern, entry = binding
    resource = f"{pattern.resource_type.name} {pattern.name} ({pattern.pattern_type.name})"
    permission = f"{entry.permission_type.name} {entry.operation.name}"
    return f"{permission} on {resource} for {entry.principal} from {entry.host}"


def _show(session: CommandSession, bindings: Iterable[AclBinding]) -> None:
    rows = [
        {
            "resource_type": pattern.resource_type.name,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern_type.name,
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation.name,
            "permission_type": entry.permission_type.name,
        }
        for pattern, entry in sorted(bindings)
    ]
    session.show(rows, TextTable(_COLUMNS, rows))
