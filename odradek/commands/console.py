"""`odradek console`: the console's web pages, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.commands.cluster_options import data_dir_option, metrics_option, record_schemas
from odradek.commands.failures import USAGE
from odradek.commands.schema_options import registry_option
from odradek.commands.session import ConnectionOptions, connection_options, fail, is_overridden_by_profile, resolved

if TYPE_CHECKING:
    from odradek.console.web.settings import ConsoleSettings

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def _addresses(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of an option whose values are addresses of applications. Raises click.BadParameter."""
    from odradek.metrics_source import address_of

    try:
        return tuple(dict.fromkeys(map(address_of, values)))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command()
@connection_options
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach the console, beside localhost and --host. Can be given again.",
)
@click.option("--allow-changes", is_flag=True, help="Let users change the cluster. Without it the console only reads.")
@data_dir_option
@metrics_option
@click.option(
    "--streams",
    "streams",
    multiple=True,
    metavar="URL",
    callback=_addresses,
    help="The metrics page of a stream application, as http://127.0.0.1:9404. Can be given again.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between samples of the cluster; more where reading it takes long.",
)
@registry_option
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="Stop when the parent has ended.")
def console(
    bootstrap_server: str | None,
    profile: str | None,
    command_config: Path | None,
    port: int,
    host: str,
    allowed_hosts: tuple[str, ...],
    allow_changes: bool,
    data_dirs: tuple[Path, ...],
    metrics: tuple[str, ...],
    streams: tuple[str, ...],
    interval_s: float,
    schema_registry: str | None,
    until_stdin_ends: bool,
) -> None:
    """Serve web pages for a cluster, until Ctrl-C.

    Pages show brokers, topics, records, groups, transactions, ACLs and a timeline of any Kafka cluster. Where the
    cluster requires SASL, users log in with their Kafka user and password, or with a token.
    """
    from odradek.metrics_source import MetricsSource

    if is_overridden_by_profile():
        bootstrap_server = None
    bootstrap, properties = resolved(ConnectionOptions(bootstrap_server, profile, command_config, 30.0))
    try:
        from odradek.console.web.serving import serve
        from odradek.console.web.settings import ConsoleSettings
    except ImportError as error:
        fail(f"the console needs the package {error.name}: the extra `console`")
    settings = ConsoleSettings(
        bootstrap,
        properties,
        host=host,
        port=port,
        hosts=frozenset(each.lower() for each in allowed_hosts),
        allow_changes=allow_changes,
        data_dirs=data_dirs,
        metrics=tuple(MetricsSource(each) for each in metrics),
        interval_s=interval_s,
        schemas=record_schemas(properties, schema_registry),
        streams=streams,
    )
    _check(settings)
    if until_stdin_ends:
        from odradek.service import stop_when_stdin_ends

        stop_when_stdin_ends()
    serve(settings)


def _check(settings: ConsoleSettings) -> None:
    """Refuse what would let users in without credentials. Raises CommandFailure."""
    from odradek.console.web.settings import MECHANISMS

    if settings.requires_login and settings.mechanism not in MECHANISMS:
        allowed = ", ".join(MECHANISMS)
        fail(f"users of the console log in by {allowed}; sasl.mechanism is {settings.mechanism or 'not set'}", USAGE)
    if settings.host not in _LOOPBACK and not settings.requires_login:
        click.echo(
            "odradek: the cluster requires no login, so every browser that reaches this address can read all records; "
            "without --host the console listens on 127.0.0.1",
            err=True,
        )
