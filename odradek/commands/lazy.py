"""A group of commands whose modules are imported when one of their commands runs: a command starts sooner."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

import click

_MARGIN: Final = 6
"""Columns of a list of commands beside names and texts, as click has it."""


class Late(NamedTuple):
    """A command that is imported when it runs: "module:attribute", and the first sentence of its help."""

    path: str
    help: str


class LazyGroup(click.Group):
    """Commands by name: those that are added as objects, and those of `lazy`."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, Late] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].path.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one of `lazy`."""
        names = self.list_commands(ctx)
        limit = formatter.width - _MARGIN - max(map(len, names))
        rows = []
        for name in names:
            late = self._lazy.get(name)
            command = self.commands[name] if late is None else click.Command(name, help=late.help)
            rows.append((name, command.get_short_help_str(limit)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
