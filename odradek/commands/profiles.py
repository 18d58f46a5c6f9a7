"""Named connections in a configuration file: addresses, TLS and SASL of clusters under short names.

    default_profile = "local"

    [profiles.local]
    bootstrap_servers = "localhost:9092"

    [profiles.prod]
    bootstrap_servers = "kafka-1:9093,kafka-2:9093"
    [profiles.prod.properties]
    "security.protocol" = "SASL_SSL"

The file is `$ODRADEK_CONFIG`, else `odradek/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`. An option of the command
line is used before an environment variable, that before the profile, and that before the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.admin.properties import BOOTSTRAP

VARIABLE: Final = "ODRADEK_CONFIG"
_KEYS: Final = ("bootstrap_servers", "command_config", "properties")


class ProfileError(ValueError):
    """A configuration file that cannot be read, or that does not have the profile."""


class Profile(NamedTuple):
    """A named connection. `command_config` is a file of properties; `properties` override those in it."""

    bootstrap_servers: str | None
    command_config: Path | None
    properties: Mapping[str, str]


class Profiles(NamedTuple):
    """The contents of the configuration file."""

    default: str | None
    profiles: Mapping[str, Profile]

    def get(self, name: str, path: Path) -> Profile:
        """Raises ProfileError for a profile that the file at `path` does not have."""
        if name not in self.profiles:
            there = ", ".join(sorted(self.profiles)) or "no profile"
            raise ProfileError(f"there is no profile {name} in {path}; it has {there}")
        return self.profiles[name]


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The configuration file, which need not exist."""
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(base) / "odradek" / "config.toml"


def read_profiles(path: Path) -> Profiles:
    """The profiles of a file; none where it does not exist. Raises ProfileError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Profiles(None, {})
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    import tomllib

    try:
        document = tomllib.loads(content.decode())
    except ValueError as error:
        raise ProfileError(f"{path} is not TOML: {error}") from error
    tables = document.get("profiles", {})
    if not isinstance(tables, dict):
        raise ProfileError(f"{path}: profiles is not a table")
    default = document.get("default_profile")
    return Profiles(
        None if default is None else str(default), {name: _profile(path, name, table) for name, table in tables.items()}
    )


def resolve(
    bootstrap_server: str | None, profile: str | None, command_config: Path | None
) -> tuple[str | None, dict[str, str]]:
    """The addresses and the properties of a connection from the options of a command. Raises ProfileError.

    An address by itself needs no profile: the default profile of the file is for commands with neither.
    """
    properties: dict[str, str] = {}
    bootstrap = bootstrap_server
    if profile is not None or (bootstrap_server is None and command_config is None):
        path = config_path()
        found = read_profiles(path)
        name = profile if profile is not None else found.default
        if name is not None:
            chosen = found.get(name, path)
            if chosen.command_config is not None:
                properties |= _read(chosen.command_config)
            properties |= chosen.properties
            bootstrap = bootstrap or chosen.bootstrap_servers
    if command_config is not None:
        properties |= _read(command_config)
    return bootstrap or properties.get(BOOTSTRAP), properties


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Write the profiles into a file that only its owner can read: it may have passwords. Raises OSError.

    Comments and everything else in the file stay.
    """
    import tomlkit  # imported late: few commands write the file

    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    document.pop("default_profile", None)
    tables = document.pop("profiles", None) or tomlkit.table(is_super_table=True)
    for name in set(tables) - set(profiles.profiles):
        tables.remove(name)
    known = read_profiles(path).profiles
    for name, profile in profiles.profiles.items():
        if known.get(name) != profile:
            tables[name] = _as_table(profile)
    if profiles.default is not None:
        document["default_profile"] = profiles.default
    document["profiles"] = tables
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(tomlkit.dumps(document))
    draft.replace(path)


def _as_table(profile: Profile) -> dict[str, Any]:
    table: dict[str, Any] = {}
    if profile.bootstrap_servers is not None:
        table["bootstrap_servers"] = profile.bootstrap_servers
    if profile.command_config is not None:
        table["command_config"] = str(profile.command_config)
    if profile.properties:
        table["properties"] = dict(profile.properties)
    return table


def _read(path: Path) -> dict[str, str]:
    from odradek.admin.properties import read_properties

    try:
        return read_properties(path.read_bytes())
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error


def _profile(path: Path, name: str, table: Any) -> Profile:
    if not isinstance(table, dict):
        raise ProfileError(f"{path}: profiles.{name} is not a table")
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise ProfileError(f"{path}: profiles.{name} has {unknown[0]}; allowed: {', '.join(_KEYS)}")
    properties = table.get("properties", {})
    if not isinstance(properties, dict):
        raise ProfileError(f"{path}: profiles.{name}.properties is not a table")
    file = table.get("command_config")
    return Profile(
        table.get("bootstrap_servers"),
        None if file is None else (path.parent / Path(file).expanduser()),
        {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in _flat(properties)},
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The entries of a table with dotted names: TOML reads `security.protocol = "SSL"` as a table in a table."""
    entries = []
    for key, value in table.items():
        if isinstance(value, dict):
            entries += _flat(value, f"{prefix}{key}.")
        else:
            entries.append((prefix + key, value))
    return entries
