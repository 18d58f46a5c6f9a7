"""Commands for clusters: `odradek cluster up`, `restart`, `kill` and `status`, `odradek registry` with `check` and
`repair`, `odradek health`.

Modules that a command needs are imported when it runs.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from odradek import __version__
from odradek.commands.failures import NOT_FOUND
from odradek.commands.output import render
from odradek.commands.session import DEFAULT_BOOTSTRAP, CommandSession, connects, fail
from odradek.standard_streams import print_line

if TYPE_CHECKING:
    from odradek.cluster_console import ConsolePlan
    from odradek.registry_repair import Inspection


@click.group()
def cluster() -> None:
    """Run a cluster on this machine, or show the status of any cluster."""


@cluster.command()
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many processes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("cluster-data"),
    show_default=True,
    help="The folder of the cluster. An existing cluster in it continues with its topics.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Of the first broker; the next ones follow. 0 takes free ones.",
)
@click.option(
    "--registry-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Of the registry, for tools with --zookeeper; it listens on 127.0.0.1. 0 takes a free one.",
)
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A property for every broker.")
@click.option("--console", is_flag=True, help="Serve the web console, too; see `odradek console`.")
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Of the console, on 127.0.0.1. 0 takes a free one.",
)
@click.option("--allow-changes", is_flag=True, help="With --console: let its users change the cluster.")
def up(
    brokers: int,
    data: Path,
    host: str,
    port: int,
    registry_port: int,
    properties: tuple[str, ...],
    console: bool,
    console_port: int,
    allow_changes: bool,
) -> None:
    """Run a cluster until Ctrl-C: a process for each broker, the registry in this one.

    Topics get three replicas, and acks=all waits for two, as far as there are brokers, unless --property overrides
    this. On a machine with many cores this is the way to use them. SIGTERM and SIGHUP stop it as Ctrl-C does.
    """
    from odradek import cluster_up
    from odradek.broker.registry.journal import DamagedJournalError, JournalInUseError
    from odradek.log_lines import log_to_stderr

    if port and port + brokers - 1 > 65535:
        raise click.BadParameter(f"{brokers} brokers from port {port} on go beyond 65535", param_hint="--port")
    log_to_stderr("info", "text")
    plan = cluster_up.ClusterPlan(
        brokers,
        data.absolute(),
        host,
        port,
        _parse_properties(properties, cluster_up.OWN_PROPERTIES),
        registry_port,
        _console_plan(console_port, allow_changes) if console else None,
    )
    try:
        cluster_up.run(plan, cluster_up.say_on_stdout)
    except JournalInUseError:
        _fail(f"a cluster runs in {data} already; choose another folder with --data")
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        _fail(f"127.0.0.1:{registry_port} is in use; choose another --registry-port" if taken else str(error))
    except (cluster_up.UpError, DamagedJournalError) as error:
        _fail(str(error))


_broker_argument = click.argument("broker_id", metavar="ID", type=click.IntRange(0))
_data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("cluster-data"),
    show_default=True,
    help="The folder of the cluster, as for `odradek cluster up`.",
)


@cluster.command()
@_broker_argument
@_data_option
def restart(broker_id: int, data: Path) -> None:
    """Restart broker ID of a cluster that `odradek cluster up` runs on this machine.

    A broker that runs is stopped with a controlled shutdown; one that has ended is started again. It keeps its port and
    its data. The command ends when the broker serves.
    """
    _ask(data, "restart", broker_id)


@cluster.command()
@_broker_argument
@_data_option
def kill(broker_id: int, data: Path) -> None:
    """End broker ID of a cluster that `odradek cluster up` runs on this machine, by SIGKILL: as a crash ends it.

    It is for trying what clients do then. `odradek cluster restart` starts the broker again.
    """
    _ask(data, "kill", broker_id)


def _ask(data: Path, action: str, broker_id: int) -> None:
    from odradek.cluster_control import ControlError, ask_cluster

    try:
        print_line(ask_cluster(data.absolute(), action, broker_id))
    except ControlError as error:
        _fail(str(error))


def _console_plan(port: int, allow_changes: bool) -> ConsolePlan:
    """Ends the command where the console's packages are missing, before a broker starts."""
    from odradek.cluster_console import ConsolePlan

    for name in ("starlette", "uvicorn", "jinja2", "js_lib_htmx", "confluent_kafka"):
        if find_spec(name) is None:
            _fail(f"the console needs the package {name}: the extra `console`")
    return ConsolePlan(port, allow_changes)


def _parse_properties(texts: tuple[str, ...], own: Container[str]) -> dict[str, str]:
    properties = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text}: expected key=value", param_hint="--property")
        if name.strip() in own:
            raise click.BadParameter(f"{name.strip()} is set for each broker by this command", param_hint="--property")
        properties[name.strip()] = value
    return properties


_command_config = click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties of a Kafka client: TLS and SASL.",
)


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: as --output json.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Show and count this topic alone. Can be given again."
)
@connects(timeout_s=5.0)
def status(session: CommandSession, topics: tuple[str, ...], as_json: bool) -> None:
    """Show brokers, leaders, in-sync replicas, and how many records each follower is behind.

    Kafka's internal topics come last.
    """
    from odradek import cluster_status

    try:
        found = cluster_status.gather(session.client, topics)
    except LookupError as error:
        fail(error.args[0], NOT_FOUND)
    if as_json or session.output not in ("table", "wide"):
        click.echo(render("json" if as_json else session.output, found.as_json(), ()))
    else:
        click.echo(cluster_status.render(found))


@click.command()
@click.argument("address", default=DEFAULT_BOOTSTRAP, metavar="[HOST:PORT]")
@click.option("--timeout", "timeout_s", type=float, default=5.0, show_default=True, help="Seconds to wait.")
@_command_config
@click.option(
    "--from-environment",
    is_flag=True,
    help="Take HOST:PORT from KAFKA_LISTENERS, as the broker does that `odradek broker --from-environment` runs.",
)
def health(address: str, timeout_s: float, command_config: Path | None, from_environment: bool) -> None:
    """End with status 0 if the broker at HOST:PORT serves and has a controller, else with 1."""
    from odradek import cluster_status, wire
    from odradek.commands.profiles import ProfileError, resolve
    from odradek.commands.session import security_of
    from odradek.protocol.client.errors import SecurityConfigError
    from odradek.service import broker_address

    if from_environment:
        address = broker_address(os.environ) or address
    try:
        _, properties = resolve(address, None, command_config)
        trouble = cluster_status.is_healthy(wire.parse_address(address), timeout_s, security_of(properties))
    except (ProfileError, SecurityConfigError, ValueError) as error:
        trouble = str(error)
    if trouble:
        _fail(trouble)


@click.group(invoke_without_command=True)
@click.pass_context
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=Path("registry-data"))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=2181, show_default=True, help="0 takes a free one.")
@click.option("--tick-ms", type=click.IntRange(1), default=2000, show_default=True, help="ZooKeeper's tickTime.")
@click.option(
    "--jaas",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A JAAS file as ZooKeeper's: only the users of its section Server are served.",
)
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="Stop when the parent has ended.")
def registry(
    context: click.Context,
    data: Path,
    host: str,
    port: int,
    tick_ms: int,
    jaas: Path | None,
    until_stdin_ends: bool,
) -> None:
    """Serve the cluster's state over ZooKeeper's protocol, for brokers of one machine.

    A stand-in for ZooKeeper on a laptop or in tests; a production cluster runs Apache ZooKeeper. With a command it
    serves nothing: `check` and `repair` are for a damaged journal.
    """
    if context.invoked_subcommand is not None:
        return
    from odradek import registry_service
    from odradek.broker.registry.journal import DamagedJournalError, JournalInUseError
    from odradek.log_lines import log_to_stderr
    from odradek.service import stop_when_stdin_ends

    log_to_stderr("info", "text")
    if until_stdin_ends:
        stop_when_stdin_ends()

    def announce(bound: int) -> None:
        print_line(f"odradek {__version__} ready: registry at {host}:{bound}, data in {data.absolute()}")

    try:
        users = registry_service.users_in(jaas) if jaas is not None else None
        registry_service.run(data, host, port, tick_ms, announce, users)
    except registry_service.JaasFileError as error:
        _fail(str(error))
    except JournalInUseError:
        _fail(f"a registry runs in {data} already; choose another folder with --data")
    except DamagedJournalError as error:
        _fail(str(error))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        _fail(f"{host}:{port} is in use; choose another port with --port" if taken else str(error))


_journal_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The first of the log.dirs of a single broker, or the folder of `odradek registry`.",
)
_log_dirs_option = click.option(
    "--log-dirs",
    metavar="DIR,DIR",
    default="",
    help="All log.dirs of the broker, if it has more than the one of --data.",
)


@registry.command()
@_journal_option
@_log_dirs_option
def check(data: Path, log_dirs: str) -> None:
    """Check the journal of a stopped registry or broker, and that it has every log; change nothing.

    Prints a line for each problem, and ends with status 1 if there is one.
    """
    from odradek import registry_repair

    try:
        found = registry_repair.check(data, _paths(log_dirs))
    except (registry_repair.RegistryRepairError, OSError) as error:
        _fail(str(error))
    _print_inspection(found)
    sys.exit(1 if found.problems else 0)


@registry.command()
@_journal_option
@_log_dirs_option
def repair(data: Path, log_dirs: str) -> None:
    """Repair the journal of a stopped registry or broker: keep what is readable, and rebuild topics from the logs.

    The old journal is set aside, not removed. Configurations, ACLs and credentials that the journal has lost are not in
    the logs: create them again.
    """
    from odradek import registry_repair

    try:
        found = registry_repair.repair(data, _paths(log_dirs))
    except (registry_repair.RegistryRepairError, OSError) as error:
        _fail(str(error))
    _print_inspection(found)
    for note in found.notes:
        print_line(f"repair: {note}")


def _paths(log_dirs: str) -> list[Path]:
    return [Path(each.strip()) for each in log_dirs.split(",") if each.strip()]


def _print_inspection(found: Inspection) -> None:
    for problem in found.problems:
        print_line(f"problem: {problem}")
    topics = len(found.topics)
    print_line(f"{found.folder}: {topics} topics are readable; {len(found.logs)} logs, {len(found.problems)} problems")


def _fail(message: str) -> NoReturn:
    click.echo(f"odradek: {message}", err=True)
    sys.exit(1)
