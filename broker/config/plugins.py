"""Plugins: objects of installed Python packages that a property selects by the name of their entry point.

A property never names a module or a class: a user with the right to set it could otherwise run any code that the broker
can import (CVE-2025-27818).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.broker.config.types import ConfigError


def load_plugin(
    group: str, setting: str, name: str, properties: Mapping[str, str], built_in: Sequence[str] = ()
) -> Any:
    """An object of the entry point `name` in a group, after its `configure`, if it has one, got all properties.

    `setting` is the property that has the name, `built_in` the names that select no plugin, for the message.
    Raises ConfigError for a name that no package has, and for a plugin that fails.
    """
    from importlib.metadata import entry_points  # imported late: it reads the metadata of all packages

    found = {each.name: each for each in entry_points(group=group)}
    if name not in found:
        allowed = ", ".join([*built_in, *sorted(found)]) or "none is installed"
        raise ConfigError(
            f"Invalid value {name} for configuration {setting}: allowed: {allowed}; others are entry points of "
            f"installed Python packages in the group {group}"
        )
    try:
        plugin = found[name].load()()
        if hasattr(plugin, "configure"):
            plugin.configure(properties)
    except Exception as error:
        raise ConfigError(f"Invalid value {name} for configuration {setting}: {error!r}") from error
    return plugin
