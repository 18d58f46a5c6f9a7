"""Configs on the command line: KEY=VALUE arguments, changes, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from odradek.admin import configs
from odradek.commands.output import Column
from odradek.commands.session import usage

CONFIG_COLUMNS: Final = (
    Column("NAME", "name"),
    Column("VALUE", "value"),
    Column("SOURCE", "source"),
    Column("READ-ONLY", "read_only", wide=True),
    Column("TYPE", "type", wide=True),
)


def key_values(texts: Iterable[str], option: str) -> dict[str, str]:
    """The values of an option KEY=VALUE. Raises click.UsageError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            usage(f"{option}: {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


def changes_of(settings: Iterable[str], unset: Iterable[str]) -> list[configs.ConfigChange]:
    """The changes of --set KEY=VALUE and --unset KEY.

    KEY+=VALUE and KEY-=VALUE change a list. Raises click.UsageError.
    """
    changes = []
    for name, value in key_values(settings, "--set").items():
        operation = {"+": configs.ConfigOperation.APPEND, "-": configs.ConfigOperation.SUBTRACT}.get(
            name[-1], configs.ConfigOperation.SET
        )
        changes.append(configs.ConfigChange(name.rstrip("+-"), operation, value))
    return [*changes, *(configs.ConfigChange(name, configs.ConfigOperation.DELETE) for name in unset)]


def config_rows(entries: Sequence[configs.DescribedConfig], *, documentation: bool = False) -> list[dict[str, Any]]:
    """The rows of configs; a sensitive value is None."""
    rows = []
    for entry in entries:
        row: dict[str, Any] = {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
            "type": entry.type,
            "synonyms": [{"name": each.name, "value": each.value, "source": each.source} for each in entry.synonyms],
        }
        if documentation:
            row["documentation"] = entry.documentation
        rows.append(row)
    return rows
