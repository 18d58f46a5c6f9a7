"""The command `odradek streams`: runs and administers applications of the streams runtime.

`connect` is in `streams_connect_cli`, `run` and `top` are in `streams_run_cli`, `init` in `streams_init_cli`, and
`describe` in `streams_describe_cli`. Modules that a command needs are imported when it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.streams_application import app_dir_option, read_properties
from odradek.streams_connect_cli import connect
from odradek.streams_describe_cli import describe
from odradek.streams_init_cli import init
from odradek.streams_run_cli import run, top, worker

if TYPE_CHECKING:
    from odradek.streams.reset import ResetTarget

_HOW = ("to_offset", "to_datetime", "by_duration", "to_earliest", "to_latest", "from_file", "shift_by")


@click.group()
def streams() -> None:
    """Applications of the streams runtime."""


streams.add_command(connect)
streams.add_command(describe)
streams.add_command(init)
streams.add_command(run)
streams.add_command(top)
streams.add_command(worker)


@streams.command()
@click.option("--application-id", required=True, metavar="ID", help="The application's application.id.")
@click.option(
    "--bootstrap-server",
    "--bootstrap-servers",
    "servers",
    metavar="HOST:PORT,…",
    help="The bootstrap brokers; by default those of --config-file, or localhost:9092.",
)
@click.option("--input-topics", default="", metavar="TOPIC,…", help="Set their offsets: to the beginning, or as given.")
@click.option("--intermediate-topics", default="", metavar="TOPIC,…", help="Set their offsets to the end.")
@click.option(
    "--internal-topics", default="", metavar="TOPIC,…", help="Delete these alone of the application's own topics."
)
@click.option("--to-offset", type=int, metavar="OFFSET", help="Go to an offset.")
@click.option("--to-datetime", metavar="MOMENT", help="Go to a moment: YYYY-MM-DDTHH:mm:SS.sss.")
@click.option("--by-duration", metavar="DURATION", help="Go to so long ago: PnDTnHnMnS.")
@click.option("--to-earliest", is_flag=True, help="Go to the beginning.")
@click.option("--to-latest", is_flag=True, help="Go to the end.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, exists=True),
    help="Go to the offsets of a file of TOPIC,PARTITION,OFFSET lines.",
)
@click.option("--shift-by", type=int, metavar="N", help="Go forward by so many records, or back by a negative number.")
@click.option(
    "--config-file",
    "--properties",
    "config_file",
    type=click.Path(path_type=Path, exists=True),
    help="The properties of the application, key=value, of which security.protocol, ssl.* and sasl.* of librdkafka are "
    "used, and oauth_cb as the dotted name of a function.",
)
@app_dir_option
@click.option("--force", is_flag=True, help="Remove members that are still in the group.")
@click.option("--dry-run", is_flag=True, help="Print the actions without performing them.")
def reset(
    application_id: str,
    servers: str | None,
    input_topics: str,
    intermediate_topics: str,
    internal_topics: str,
    config_file: Path | None,
    app_dir: Path,
    force: bool,
    dry_run: bool,
    **how: object,
) -> None:
    """Reset an application, as kafka-streams-application-reset does: offsets go to the beginning of its input topics,
    its internal topics are deleted.

    Stop all instances before. Output topics stay, and so does the state in state.dir: KafkaStreams.clean_up() removes
    it. Try --dry-run first, since a reset cannot be undone.
    """
    from odradek.streams.reset import Reset, ResetError
    from odradek.streams.reset import reset as do

    properties = read_properties(config_file, ())
    sys.path.insert(0, str(app_dir.absolute()))  # oauth_cb may be in a module of the application
    what = Reset(
        application_id,
        servers or properties.get("bootstrap.servers", "localhost:9092"),
        _names(input_topics),
        _names(intermediate_topics),
        _names(internal_topics),
        _position(how),
        force,
        dry_run,
        properties,
    )
    try:
        sys.exit(0 if do(what, click.echo) else 1)
    except ResetError as error:
        click.echo(f"ERROR: {error}", err=True)
        sys.exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _position(how: dict[str, object]) -> ResetTarget:
    from odradek.streams.reset import ResetTarget, before_ms, moment_ms, read_plan

    given = [name for name in _HOW if how[name] is not None and how[name] is not False]
    if len(given) > 1:
        raise click.UsageError(f"--{given[0].replace('_', '-')} cannot be used with --{given[1].replace('_', '-')}")
    if not given:
        return ResetTarget()
    value = how[given[0]]
    try:
        match given[0], value:
            case "to_offset", int(offset):
                return ResetTarget("offset", offset)
            case "shift_by", int(count):
                return ResetTarget("shift", count)
            case "to_datetime", str(text):
                return ResetTarget("time", moment_ms(text))
            case "by_duration", str(text):
                return ResetTarget("time", before_ms(text))
            case "from_file", Path() as path:
                return ResetTarget("plan", plan=read_plan(path))
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--{given[0].replace('_', '-')}: {error}") from error
    return ResetTarget("latest" if given[0] == "to_latest" else "earliest")
