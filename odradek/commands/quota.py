"""`odradek quota`: list, set, unset quotas (Kafka: kafka-configs --entity-type users, clients and ips)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from odradek.admin import quotas
from odradek.commands.config_output import key_values
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, usage

F = TypeVar("F", bound=Callable[..., Any])

KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT: Final = "default"
_COLUMNS: Final = (
    Column("USER", "user"),
    Column("CLIENT ID", "client_id"),
    Column("IP", "ip"),
    Column("QUOTAS", "quotas"),
)


def _entity(function: F) -> F:
    """The options that name an entity."""
    options = (
        click.option("--user", metavar="NAME", help=f"A user; `{DEFAULT}` for users without a quota of their own."),
        click.option("--client-id", metavar="ID", help=f"A client id; `{DEFAULT}` for the others."),
        click.option("--ip", metavar="IP", help=f"An address; `{DEFAULT}` for the others."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def quota() -> None:
    """List, set and unset quotas of users, client ids and addresses.

    \b
    producer_byte_rate, consumer_byte_rate   bytes a second
    request_percentage                       time of a request handler
    controller_mutation_rate                 created and deleted partitions a second
    connection_creation_rate                 connections of an address a second
    """


@quota.command("list")
@_entity
@connects
def list_quotas(session: CommandSession, user: str | None, client_id: str | None, ip: str | None) -> None:
    """List quotas: all, or those of the named user, client id or address."""
    wanted: dict[str, str | quotas.AnyName | None] = dict(_named(user, client_id, ip))
    found = quotas.describe_quotas(session.client, wanted, strict=False)
    rows = [_row(entity, values) for entity, values in sorted(found.items(), key=str)]
    session.show(rows, TextTable(_COLUMNS, rows))


@quota.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@_entity
@dry_run_option
@connects
def set_quotas(
    session: CommandSession,
    settings: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    dry_run: bool,
) -> None:
    """Set quotas of a user, of a client id, of both together, or of an address."""
    changes: dict[str, float | None] = {}
    for key, value in key_values(settings, "KEY=VALUE").items():
        try:
            changes[key] = float(value)
        except ValueError:
            usage(f"{key}: {value!r} is not a number")
    _alter(session, _named(user, client_id, ip), changes, dry_run=dry_run)


@quota.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_entity
@dry_run_option
@connects
def unset(
    session: CommandSession,
    keys: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    dry_run: bool,
) -> None:
    """Remove quotas."""
    _alter(session, _named(user, client_id, ip), dict.fromkeys(keys), dry_run=dry_run)


def _alter(
    session: CommandSession,
    named: Mapping[str, str | None],
    changes: Mapping[str, float | None],
    *,
    dry_run: bool,
) -> None:
    if not named:
        usage("whose quotas: --user, --client-id or --ip is required")
    entity: quotas.QuotaEntity = tuple(sorted(named.items()))
    quotas.alter_quotas(session.client, entity, changes, validate_only=dry_run)
    after = {} if dry_run else quotas.describe_quotas(session.client, named, strict=True).get(entity, {})
    row = _row(entity, {key: value for key, value in changes.items() if value is not None} if dry_run else after)
    session.show([row], TextTable(_COLUMNS, [row]))


def _named(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    """The entity types that are given, with the name, or None for the default. Raises click.UsageError."""
    if ip is not None and (user is not None or client_id is not None):
        usage("--ip does not go with --user and --client-id")
    given = {quotas.USER: user, quotas.CLIENT_ID: client_id, quotas.IP: ip}
    return {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}


def _row(entity: quotas.QuotaEntity, values: Mapping[str, float]) -> dict[str, Any]:
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    return {
        "user": names.get(quotas.USER),
        "client_id": names.get(quotas.CLIENT_ID),
        "ip": names.get(quotas.IP),
        "quotas": {key: int(value) if value == int(value) else value for key, value in sorted(values.items())},
    }
