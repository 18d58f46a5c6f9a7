"""The command `odradek`.

`odradek broker [server.properties] [--override key=value]…` serves in the foreground. It prints one line to stdout when
it serves, everything else goes to stderr, and ends with status 0 after SIGTERM or Ctrl-C, 1 after an error. What only a
broker needs is imported when one starts. `cluster`, `registry` and `health` stand in `cluster_cli`,
`dump-log` in `log_cli`, `streams` in `streams_cli`.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from odradek import __version__
from odradek.cluster_cli import cluster, health, registry
from odradek.log_cli import dump_log
from odradek.log_lines import FORMATS, LEVELS, log_to_stderr, say_broker
from odradek.service import PREFIX, properties_in, stop_when_stdin_ends, tell_systemd
from odradek.streams_cli import streams

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as 127.0.0.1:9404 is", context, parameter)
    return host.strip("[]"), int(port)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="odradek %(version)s")
def main() -> None:
    """A Kafka-compatible broker."""


main.add_command(cluster)
main.add_command(registry)
main.add_command(health)
main.add_command(dump_log)
main.add_command(streams)


@main.command()
@click.argument("properties", required=False, metavar="[server.properties]", type=click.Path(path_type=Path))
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property over the file's value."
)
@click.option(
    "--from-environment",
    is_flag=True,
    help=f"Take properties from {PREFIX}… variables, too, as Kafka's image does: {PREFIX}BROKER_ID is broker.id. "
    "They count more than the file and less than --override.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=_address,
    help="Serve a page of figures for Prometheus there, under the names that its JMX exporter gives to Kafka's.",
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="Stop when the parent has gone.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def broker(
    properties: Path | None,
    overrides: tuple[str, ...],
    from_environment: bool,
    metrics: tuple[str, int] | None,
    until_stdin_ends: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve in the foreground until SIGTERM or Ctrl-C.

    Properties have Kafka's names and defaults. With port 0 in `listeners` the broker takes a free port and names it.
    """
    log_to_stderr(log_level, log_format)
    if from_environment:
        named = (f"{name}={value}" for name, value in properties_in(os.environ).items())
        overrides = (*named, *overrides)
    config = _load(properties, overrides)
    if until_stdin_ends:
        stop_when_stdin_ends()
    if config.broker_id >= 0:
        say_broker(config.broker_id)
    _say_what_is_odd(config)
    sys.exit(_serve(config, metrics))


def _load(properties: Path | None, overrides: tuple[str, ...]) -> BrokerConfig:
    from odradek.broker.config import BrokerConfig
    from odradek.broker.config_types import ConfigError

    try:
        return BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        _fail(error.message)
    except OSError as error:
        _fail(f"cannot read {properties}: {error.strerror}")


def _say_what_is_odd(config: BrokerConfig) -> None:
    logger = logging.getLogger("odradek.config")
    for name, nearest in config.unknown().items():
        hint = f"; did you mean {nearest}?" if nearest else ""
        logger.warning("unknown property %s%s", name, hint)
    if idle := config.without_effect():
        logger.warning("set, but without effect in this version: %s", ", ".join(idle))


def _serve(config: BrokerConfig, metrics: tuple[str, int] | None) -> int:
    from odradek.broker import server
    from odradek.protocol.errors import ErrorCode, KafkaError

    try:
        return server.run(config, on_ready=_announce, metrics=metrics)
    except KeyboardInterrupt:
        return 0
    except KafkaError as error:
        message = error.message or str(error)
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            message = f"{message.rstrip('.')}. Another folder can be chosen with --override log.dirs=FOLDER"
        _fail(message)
    except OSError as error:
        _fail(_explain(error, config))


def _announce(broker_id: int, host: str, port: int, data: Path | str) -> None:
    shown = f"[{host}]" if ":" in host else host
    say_broker(broker_id)
    print(f"odradek {__version__} ready: broker {broker_id} at {shown}:{port}, data in {data}", flush=True)
    tell_systemd("READY=1")


def _explain(error: OSError, config: BrokerConfig) -> str:
    """What went wrong in the words of the user's own settings, and what to do about it."""
    listeners = ", ".join(map(str, config.listeners))
    folders = ", ".join(map(str, config.log_dirs))
    where = error.filename or folders
    if error.errno == errno.EADDRINUSE:
        return (
            f"the address of {listeners} is in use. Stop the program that uses it, or choose another port: "
            "--override listeners=PLAINTEXT://127.0.0.1:0 takes a free one"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"no interface of this machine has the address of {listeners}. Choose another host in listeners"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename is None:
        return f"not allowed to use {listeners} or {folders}: {error.strerror}. Ports below 1024 need a privilege"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write to {where}: {error.strerror}. Choose a writable folder with --override log.dirs=FOLDER"
    if error.errno == errno.ENOSPC:
        return f"no space left for {where}. Free some, or choose another folder with --override log.dirs=FOLDER"
    if error.filename is not None:
        return f"cannot use {where}: {error.strerror}"
    return str(error)


def _fail(message: str) -> NoReturn:
    click.echo(f"odradek: {message}", err=True)
    sys.exit(1)
