"""The commands `odradek broker` and `odradek stop`.

`odradek broker [server.properties] [--override key=value]…` serves in the foreground. It prints one line to stdout when
it serves, everything else goes to stderr, and ends with status 0 after SIGTERM, SIGHUP or Ctrl-C, 1 after an error.
Modules that only a broker needs are imported when one starts. `--daemon` and `stop` are in `daemon`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from odradek import __version__
from odradek.addresses import host_and_port
from odradek.daemon_files import DETACHED, LOG_FILE, PID_FILE
from odradek.log_lines import FORMATS, LEVELS, log_to_stderr, say_broker
from odradek.service import PREFIX, properties_in, stop_when_stdin_ends, tell_systemd
from odradek.standard_streams import print_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from odradek.broker.config.broker_config import BrokerConfig


class BrokerCommand(click.Command):
    """Serves; or, if the first argument is the name of a command of `odradek.commands.broker`, that command.

    A file of properties with such a name is `./list`.
    """

    INSPECTIONS: Final = ("configs", "list", "log-dirs")

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.INSPECTIONS:
            from odradek.commands.broker import inspections

            return inspections.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _complete_first(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the inspections, and of files."""
    from click.shell_completion import CompletionItem

    names = [CompletionItem(name) for name in BrokerCommand.INSPECTIONS if name.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


_properties_argument = click.argument(
    "properties", required=False, metavar="[server.properties]", type=click.Path(path_type=Path)
)
_override_option = click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property over the file's value."
)
_environment_option = click.option(
    "--from-environment",
    is_flag=True,
    help=f"Take properties from {PREFIX}… variables, too, as Kafka's image does: {PREFIX}BROKER_ID is broker.id. "
    "They override the file, and --override overrides them.",
)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=BrokerCommand)
@click.argument(
    "properties",
    required=False,
    metavar="[server.properties]",
    type=click.Path(path_type=Path),
    shell_complete=_complete_first,
)
@_override_option
@_environment_option
@click.option(
    "--daemon",
    "-daemon",
    is_flag=True,
    help="Serve in the background: end when the broker serves. `odradek stop` stops it.",
)
@click.option(
    "--pid-file",
    type=_FILE,
    help=f"Write the process id there. With --daemon the default is {PID_FILE} in the first data directory.",
)
@click.option(
    "--log-file", type=_FILE, help=f"With --daemon: the log, instead of {LOG_FILE} in the first data directory."
)
@click.option(DETACHED, is_flag=True, hidden=True, help="Leave standard output when ready.")
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=host_and_port,
    help="Serve a page of metrics for Prometheus there, under the names that its JMX exporter gives to Kafka's.",
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="Stop when the parent has ended.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def broker(
    properties: Path | None,
    overrides: tuple[str, ...],
    from_environment: bool,
    daemon: bool,
    pid_file: Path | None,
    log_file: Path | None,
    detached: bool,
    metrics: tuple[str, int] | None,
    until_stdin_ends: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C.

    Properties have Kafka's names and defaults. With port 0 in `listeners` the broker takes a free port and prints it.

    `odradek broker list`, `odradek broker configs` and `odradek broker log-dirs` inspect the brokers of a cluster.
    """
    log_to_stderr(log_level, log_format)
    config = _load(properties, overrides, from_environment)
    if daemon:
        options = [f"--override={each}" for each in overrides] + ["--from-environment"] * from_environment
        options += [f"--log-level={log_level}", f"--log-format={log_format}"]
        options += [f"--metrics={metrics[0]}:{metrics[1]}"] if metrics else []
        _start_daemon([str(properties)] * (properties is not None) + options, config, pid_file, log_file)
        return
    if log_file is not None:
        raise click.UsageError("--log-file is for --daemon; without it the log goes to standard error")
    if until_stdin_ends:
        stop_when_stdin_ends()
    if config.broker_id >= 0:
        say_broker(config.broker_id)
    _say_what_is_odd(config)
    with _holding(pid_file):
        status = _serve(config, metrics, detached)
    sys.exit(status)


@click.command()
@_properties_argument
@_override_option
@_environment_option
@click.option("--pid-file", type=_FILE, help=f"Instead of {PID_FILE} in the first data directory.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds to wait."
)
def stop(
    properties: Path | None,
    overrides: tuple[str, ...],
    from_environment: bool,
    pid_file: Path | None,
    timeout_s: float,
) -> None:
    """Stop a broker that was started with --daemon, and wait for its end.

    The arguments are those of the start: they determine the data directory that contains the pid file.
    """
    from odradek.daemon import DaemonError
    from odradek.daemon import stop as stop_daemon

    if pid_file is None:
        pid_file = _load(properties, overrides, from_environment).log_dirs[0] / PID_FILE
    try:
        print_line(f"odradek stopped: process {stop_daemon(pid_file.absolute(), timeout_s)}")
    except DaemonError as error:
        _fail(str(error))


def _start_daemon(arguments: list[str], config: BrokerConfig, pid_file: Path | None, log_file: Path | None) -> None:
    from odradek.daemon import DaemonError, start

    first = config.log_dirs[0].absolute()
    try:
        start(arguments, (pid_file or first / PID_FILE).absolute(), (log_file or first / LOG_FILE).absolute())
    except DaemonError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"cannot use {error.filename}: {error.strerror}")


@contextlib.contextmanager
def _holding(path: Path | None) -> Iterator[None]:
    """Hold the pid file within the block, if a path is given."""
    if path is None:
        yield
        return
    from odradek.pid_file import PidFile, PidFileInUseError

    try:
        held = PidFile(path)
    except PidFileInUseError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"cannot write the pid file {path}: {error.strerror}")
    try:
        yield
    finally:
        held.remove()


def _load(properties: Path | None, overrides: tuple[str, ...], from_environment: bool) -> BrokerConfig:
    from odradek.broker.config.broker_config import BrokerConfig
    from odradek.broker.config.types import ConfigError

    if from_environment:
        named = (f"{name}={value}" for name, value in properties_in(os.environ).items())
        overrides = (*named, *overrides)
    try:
        return BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        _fail(error.message)
    except OSError as error:
        _fail(f"cannot read {properties}: {error.strerror}")


def _say_what_is_odd(config: BrokerConfig) -> None:
    logger = logging.getLogger("odradek.config")
    for name, nearest in config.unknown().items():
        hint = f" closest={nearest}" if nearest else ""
        logger.warning("unknown property name=%s%s", name, hint)
    for name, replacement in config.replaced().items():
        logger.warning("ignoring a property that Kafka 3.0 removed name=%s replacement=%s", name, replacement)
    if idle := config.without_effect():
        logger.warning("properties without effect in this version names=%s", ", ".join(idle))


def _serve(config: BrokerConfig, metrics: tuple[str, int] | None, detached: bool) -> int:
    gc.disable()  # what is imported stays: a fifth of the import was the collector's
    try:
        from odradek.broker import server
        from odradek.start_errors import START_ERRORS, explain
    finally:
        gc.enable()
    try:
        return server.run(config, on_ready=_announce_and_leave if detached else _announce, metrics=metrics)
    except KeyboardInterrupt:
        return 0
    except START_ERRORS as error:
        _fail(explain(error, config))


def _announce(broker_id: int, host: str, port: int, data: Path | str) -> None:
    shown = f"[{host}]" if ":" in host else host
    say_broker(broker_id)
    print_line(f"odradek {__version__} ready: broker {broker_id} at {shown}:{port}, data in {data}")
    tell_systemd("READY=1")


def _announce_and_leave(broker_id: int, host: str, port: int, data: Path | str) -> None:
    """The command that started this daemon reads the ready line and ends; later output goes into the log."""
    _announce(broker_id, host, port, data)
    os.dup2(2, 1)


def _fail(message: str) -> NoReturn:
    click.echo(f"odradek: {message}", err=True)
    sys.exit(1)
