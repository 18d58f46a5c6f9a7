"""`odradek config`: get, set and unset configs of topics, brokers, loggers, groups and client metrics (Kafka:
kafka-configs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from odradek.admin import configs
from odradek.commands.completion import complete_brokers, complete_groups, complete_topics
from odradek.commands.config_output import CONFIG_COLUMNS, changes_of, config_rows
from odradek.commands.failures import NOT_FOUND, failure_of
from odradek.commands.output import TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, fail, usage
from odradek.protocol.errors import KafkaError

KINDS: Final = ("topic", "broker", "broker-logger", "group", "client-metrics")
"""The names of `odradek.admin.configs.ResourceKind`."""
DEFAULT_NAME: Final = "default"
"""In the place of a broker's id: the dynamic default of all brokers."""


def kind_of(name: str) -> configs.ResourceKind:
    """The resource type of a name in KINDS."""
    return configs.ResourceKind[name.upper().replace("-", "_")]


def _complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    kind = context.params.get("kind")
    if kind in ("broker", "broker-logger"):
        return complete_brokers(context, parameter, incomplete)
    if kind in ("topic", "group"):
        complete = complete_topics if kind == "topic" else complete_groups
        return complete(context, parameter, incomplete)
    return []


_kind_argument = click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
_name_argument = click.argument("name", metavar="NAME", shell_complete=_complete_name)


@click.group()
def config() -> None:
    """Get, set and unset configs.

    KIND is topic, broker, broker-logger, group or client-metrics; the NAME of a broker is its id, or `default` for the
    dynamic default of all brokers. Quotas are in `odradek quota`, users in `odradek user`.
    """


@config.command("get")
@_kind_argument
@_name_argument
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--all", "every", is_flag=True, help="Also those with a default value. A KEY is always shown.")
@click.option("--documentation", is_flag=True, help="What each config means, in JSON and YAML.")
@connects
def get(session: CommandSession, kind: str, name: str, keys: tuple[str, ...], every: bool, documentation: bool) -> None:
    """Show configs with their values and sources."""
    entries = _described(session, _target(kind, name), keys, documentation=documentation)
    absent = set(keys) - {entry.name for entry in entries}
    shown = [entry for entry in entries if keys or every or entry.source != configs.DEFAULT]
    rows = config_rows(shown, documentation=documentation)
    session.show(rows, TextTable(CONFIG_COLUMNS, rows))
    if absent:
        fail(f"{kind} {name}: there is no config {min(absent)}", NOT_FOUND)


@config.command("set")
@_kind_argument
@_name_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@dry_run_option
@connects
def set_configs(session: CommandSession, kind: str, name: str, settings: tuple[str, ...], dry_run: bool) -> None:
    """Set configs. KEY+=VALUE adds to a list, KEY-=VALUE removes from it.

    With --dry-run the broker only checks the values.
    """
    _alter(session, _target(kind, name), changes_of(settings, ()), dry_run=dry_run)


@config.command()
@_kind_argument
@_name_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@dry_run_option
@connects
def unset(session: CommandSession, kind: str, name: str, keys: tuple[str, ...], dry_run: bool) -> None:
    """Remove configs, so that their defaults apply again."""
    _alter(session, _target(kind, name), changes_of((), keys), dry_run=dry_run)


def _target(kind: str, name: str) -> configs.ConfigTarget:
    if kind not in ("broker", "broker-logger"):
        return configs.ConfigTarget(kind_of(kind), name)
    if name == DEFAULT_NAME and kind == "broker":
        return configs.ConfigTarget(configs.ResourceKind.BROKER, configs.CLUSTER_DEFAULT)
    if not name.isdigit():
        usage(f"{name!r} is not the id of a broker" + f", nor {DEFAULT_NAME!r}" * (kind == "broker"))
    return configs.ConfigTarget(kind_of(kind), name)


def _described(
    session: CommandSession, target: configs.ConfigTarget, keys: Sequence[str], *, documentation: bool = False
) -> list[configs.DescribedConfig]:
    """Raises CommandFailure."""
    found = configs.describe_configs(
        session.client, [target], keys or None, synonyms=True, documentation=documentation
    )[target]
    if isinstance(found, KafkaError):
        raise failure_of(found, _shown(target))
    return found


def _alter(
    session: CommandSession, target: configs.ConfigTarget, changes: Sequence[configs.ConfigChange], *, dry_run: bool
) -> None:
    result = configs.alter_configs(session.client, {target: changes}, validate_only=dry_run)[target]
    if isinstance(result, KafkaError):
        raise failure_of(result, _shown(target))
    rows: list[dict[str, Any]] = [
        {"name": each.name, "operation": each.operation.name.lower(), "value": each.value} for each in changes
    ]
    if session.output in ("json", "yaml"):
        session.show(rows)
    else:
        done = "can be changed" if dry_run else "changed"
        session.note(f"{_shown(target)}: {done}: {', '.join(each.name for each in changes)}")


def _shown(target: configs.ConfigTarget) -> str:
    kind = next(name for name in KINDS if kind_of(name) is target.kind)
    return f"{kind} {target.name or DEFAULT_NAME}"
