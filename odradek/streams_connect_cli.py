"""The command `odradek streams connect`: runs a connector in this process, until SIGTERM or Ctrl-C.

Several processes that run the same connector share its partitions. Exit status: 0 after a graceful close, 1 where the
connector failed, 2 where it cannot be used.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from odradek.log_lines import FORMATS, LEVELS, log_to_stderr
from odradek.standard_streams import print_line
from odradek.streams_application import app_dir_option, read_properties

_UNUSABLE = 2


@click.command()
@click.argument("connector", metavar="MODULE:CONNECTOR")
@click.option("--bootstrap-server", "servers", metavar="HOST:PORT,…", help="bootstrap.servers.")
@click.option("--name", metavar="NAME", help="application.id, and so the name of the connector.")
@click.option("--topics", metavar="TOPIC,…", help="The topics that a sink reads.")
@click.option(
    "--properties",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Properties of the connector and of its clients.",
)
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Set a property over the file's value.")
@app_dir_option
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def connect(
    connector: str,
    servers: str | None,
    name: str | None,
    topics: str | None,
    properties: Path | None,
    overrides: tuple[str, ...],
    app_dir: Path,
    log_level: str,
    log_format: str,
) -> None:
    """Run a connector between Kafka and another system.

    MODULE:CONNECTOR is a Source or a Sink, or a function without parameters that returns one.
    """
    log_to_stderr(log_level, log_format)
    given: dict[str, Any] = read_properties(properties, overrides)
    own = {"bootstrap.servers": servers, "application.id": name, "topics": topics}
    given.update((each, value) for each, value in own.items() if value is not None)
    sys.exit(_run(connector, app_dir, given))


def _run(name: str, folder: Path, properties: dict[str, Any]) -> int:
    from odradek import __version__
    from odradek.streams.config import StreamsConfigError
    from odradek.streams.connectors.interface import Sink, Source
    from odradek.streams.connectors.runner import sink_runner, source_runner
    from odradek.streams.errors import StreamsError
    from odradek.streams.supervisor.loading import ApplicationError, load_attribute

    try:
        found = load_attribute(name, folder, "MODULE:CONNECTOR, as archive:sink is")
        made = found() if callable(found) else found
        if isinstance(made, Source):
            runner = source_runner(made, properties)
        elif isinstance(made, Sink):
            runner = sink_runner(made, properties)
        else:
            raise ApplicationError(f"{name} gives {made!r}; expected a Source or a Sink, or a function of one")
    except (ApplicationError, StreamsConfigError, ValueError) as error:
        click.echo(f"odradek: {error}", err=True)
        return _UNUSABLE
    try:
        return runner.run(
            on_start=lambda: print_line(f"odradek {__version__} ready: {name}, client {runner.client_id}")
        )
    except StreamsError as error:
        click.echo(f"odradek: {error}", err=True)
        return 1
