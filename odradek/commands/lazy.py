"""A group of commands whose modules are imported when one of their commands runs: a command starts sooner."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import click


class LazyGroup(click.Group):
    """Commands by name: those that are added as objects, and those of `lazy`, each as "module:attribute"."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))
