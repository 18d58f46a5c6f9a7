"""`odradek profile`: named connections in the configuration file (`profiles`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from odradek.admin.properties import (
    BOOTSTRAP,
    KEPT,
    REGISTRY_URL,
    read_properties,
    security_of_properties,
    shown_properties,
)
from odradek.commands.completion import complete_profiles
from odradek.commands.failures import NOT_FOUND, USAGE, CommandFailure
from odradek.commands.output import FORMATS, Column, TextTable, render
from odradek.commands.profiles import Profile, ProfileError, Profiles, config_path, read_profiles, write_profiles
from odradek.commands.session import fail, yes_option
from odradek.protocol.client.errors import SecurityConfigError

_LIST: Final = (
    Column("PROFILE", "profile"),
    Column("BOOTSTRAP SERVERS", "bootstrap_servers"),
    Column("SECURITY", "security_protocol"),
    Column("DEFAULT", "default"),
)
_output_option = click.option("--output", "-o", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
_name_argument = click.argument("name", metavar="NAME", shell_complete=complete_profiles)


@click.group()
def profile() -> None:
    """Keep connections to clusters under short names.

    The file is odradek/config.toml in $XDG_CONFIG_HOME or ~/.config, or $ODRADEK_CONFIG. `--profile NAME` or
    $ODRADEK_PROFILE chooses a connection; without either, commands use the default one.
    """


@profile.command("list")
@_output_option
def list_profiles(output: str) -> None:
    """List the profiles."""
    found = _read()
    rows = [
        {
            "profile": name,
            "bootstrap_servers": each.bootstrap_servers,
            "security_protocol": each.properties.get("security.protocol", "PLAINTEXT"),
            "default": name == found.default,
        }
        for name, each in sorted(found.profiles.items())
    ]
    click.echo(render(output, rows, [TextTable(_LIST, rows)]))


@profile.command()
@_name_argument
@_output_option
def show(name: str, output: str) -> None:
    """Show a profile, without its secrets."""
    each = _existing(name)
    data: dict[str, Any] = {
        "profile": name,
        "bootstrap_servers": each.bootstrap_servers,
        "command_config": None if each.command_config is None else str(each.command_config),
        "properties": shown_properties(each.properties),
    }
    rows = [{"name": key, "value": value} for key, value in data["properties"].items()]
    heading = f"profile {name}  bootstrap_servers={each.bootstrap_servers}"
    columns = (Column("PROPERTY", "name"), Column("VALUE", "value"))
    click.echo(render(output, data, [TextTable(columns, rows, heading)]))


@profile.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="client.properties")
@click.option("--name", metavar="NAME", help="[default: the name of the file]")
@click.option("--bootstrap-server", "-b", metavar="HOST:PORT", help="[default: bootstrap.servers of the file]")
@click.option("--default", "is_default", is_flag=True, help="Make it the default profile.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def import_properties(
    file: Path, name: str | None, bootstrap_server: str | None, is_default: bool, replace: bool
) -> None:
    """Make a profile from the properties of a Kafka client, by Java's or librdkafka's names.

    The properties of TLS, SASL and the schema registry are copied; files that they name stay where they are.
    """
    try:
        properties = read_properties(file.read_bytes())
        security_of_properties(properties)
    except SecurityConfigError as error:
        raise CommandFailure(f"{file}: {error}", USAGE) from error
    found, chosen = _read(), name or file.stem
    if chosen in found.profiles and not replace:
        fail(f"there is a profile {chosen} already; --replace replaces it")
    kept = {key: value for key, value in properties.items() if key.startswith(KEPT)}
    made = Profile(bootstrap_server or properties.get(BOOTSTRAP), None, kept)
    default = chosen if is_default or found.default is None else found.default
    _write(Profiles(default, {**found.profiles, chosen: made}))
    click.echo(f"profile {chosen}{' (default)' * (default == chosen)} is in {config_path()}")


@profile.command()
@_name_argument
@click.option("--bootstrap-server", "-b", required=True, metavar="HOST:PORT", help="Any brokers of the cluster.")
@click.option("--command-config", type=click.Path(path_type=Path, dir_okay=False), help="A file of properties.")
@click.option("--schema-registry", metavar="URL", help="The schema registry of the cluster.")
@click.option("--default", "is_default", is_flag=True, help="Make it the default profile.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def add(
    name: str,
    bootstrap_server: str,
    command_config: Path | None,
    schema_registry: str | None,
    is_default: bool,
    replace: bool,
) -> None:
    """Add a profile."""
    found = _read()
    if name in found.profiles and not replace:
        fail(f"there is a profile {name} already; --replace replaces it")
    config = None if command_config is None else command_config.absolute()
    default = name if is_default or found.default is None else found.default
    properties = {} if schema_registry is None else {REGISTRY_URL: schema_registry}
    _write(Profiles(default, {**found.profiles, name: Profile(bootstrap_server, config, properties)}))
    click.echo(f"profile {name}{' (default)' * (default == name)} is in {config_path()}")


@profile.command()
@_name_argument
def use(name: str) -> None:
    """Make a profile the default one."""
    _existing(name)
    _write(Profiles(name, _read().profiles))


@profile.command()
@_name_argument
@yes_option
def remove(name: str, yes: bool) -> None:
    """Remove a profile."""
    _existing(name)
    if not yes:
        click.confirm(f"Remove the profile {name} from {config_path()}?", abort=True, err=True)
    found = _read()
    kept = {key: each for key, each in found.profiles.items() if key != name}
    _write(Profiles(None if found.default == name else found.default, kept))


def _read() -> Profiles:
    try:
        return read_profiles(config_path())
    except ProfileError as error:
        raise CommandFailure(str(error), USAGE) from error


def _existing(name: str) -> Profile:
    try:
        return _read().get(name, config_path())
    except ProfileError as error:
        raise CommandFailure(str(error), NOT_FOUND) from error


def _write(profiles: Profiles) -> None:
    try:
        write_profiles(config_path(), profiles)
    except OSError as error:
        fail(f"cannot write {config_path()}: {error.strerror}")
