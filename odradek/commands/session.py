"""What all commands for clusters share: the options of a connection, the client, output, and confirmation.

@topic.command("list")
@connects
def list_topics(session: CommandSession) -> None:
    session.show(…)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click
from click.core import ParameterSource

from odradek.commands.failures import FAILED, USAGE, CommandFailure, failure_of, failures
from odradek.commands.output import FORMATS, TextTable, render
from odradek.protocol.client.errors import SecurityConfigError
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient
    from odradek.protocol.client.connection import Address
    from odradek.protocol.client.security import ConnectionSecurity

K = TypeVar("K")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_PORT: Final = 9092
TIMEOUT_S: Final = 30.0


class ConnectionOptions(NamedTuple):
    """The options of a connection as they are given; None for those that are not."""

    bootstrap_server: str | None
    profile: str | None
    command_config: Path | None
    timeout_s: float


class CommandSession:
    """One run of a command: its client, its output, its questions."""

    def __init__(self, options: ConnectionOptions, output: str = FORMATS[0]) -> None:
        """Connects when `client` is first used."""
        self._options = options
        self.output = output
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The client. Raises CommandFailure where the options, the profile or the file are wrong."""
        if self._client is None:
            self._client = open_client(self._options)
        return self._client

    def librdkafka_config(self) -> dict[str, Any]:
        """The connection as a configuration of librdkafka, for records. Raises CommandFailure."""
        from odradek.admin.properties import librdkafka_properties

        bootstrap, properties = resolved(self._options)
        try:
            security = librdkafka_properties(properties)
        except SecurityConfigError as error:
            raise CommandFailure(str(error), USAGE) from error
        return {"bootstrap.servers": bootstrap, "client.id": "odradek", "log_level": 0, **security}

    def properties(self) -> dict[str, str]:
        """The properties of the connection. Raises CommandFailure."""
        return resolved(self._options)[1]

    @property
    def timeout_s(self) -> float:
        """The value of --timeout."""
        return self._options.timeout_s

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def show(self, data: Any, *tables: TextTable) -> None:
        """Print a result: `data` as JSON or YAML, `tables` for a reader."""
        if tables or self.output in ("json", "yaml"):
            click.echo(render(self.output, data, tables))

    def note(self, text: str) -> None:
        """Print a line for a reader; nothing where the output is for programs."""
        if self.output in ("table", "wide"):
            click.echo(text)

    def confirm(self, plan: Sequence[str], *, yes: bool, question: str = "Continue?") -> None:
        """Print on standard error what the command will do, and ask; `yes` answers. Raises click.Abort."""
        if yes:
            return
        for line in plan:
            click.echo(line, err=True)
        click.confirm(question, abort=True, err=True)

    def succeeded(self, results: Mapping[K, T | KafkaError], noun: str) -> dict[K, T]:
        """The values of the items without an error; prints a line on standard error for each other one.

        `end` has to follow with `results`, after the output.
        """
        values: dict[K, T] = {}
        for item, result in results.items():
            if isinstance(result, KafkaError):
                failure_of(result, f"{noun} {item_text(item)}").show()
            else:
                values[item] = result
        return values

    def end(self, *results: Mapping[Any, Any]) -> None:
        """End with the exit code of the first error in the results, if there is one."""
        for each in results:
            for result in each.values():
                if isinstance(result, KafkaError):
                    raise CommandFailure("", failure_of(result).exit_code)


def item_text(item: object) -> str:
    """A partition as TOPIC-NUMBER as Kafka prints it, anything else as it is."""
    return f"{item[0]}-{item[1]}" if isinstance(item, tuple) and len(item) == 2 else str(item)


def open_client(options: ConnectionOptions) -> AdminClient:
    """The client that the options describe. Raises CommandFailure."""
    from odradek.admin.client import AdminClient

    bootstrap, properties = resolved(options)
    try:
        security = security_of(properties)
    except SecurityConfigError as error:
        raise CommandFailure(str(error), USAGE) from error
    return AdminClient(parse_bootstrap(bootstrap), security, timeout_s=options.timeout_s)


def resolved(options: ConnectionOptions) -> tuple[str, dict[str, str]]:
    """The addresses and the properties of a connection; see `profiles` for what comes from where.

    Raises CommandFailure.
    """
    from odradek.commands.profiles import ProfileError, resolve

    try:
        bootstrap, properties = resolve(options.bootstrap_server, options.profile, options.command_config)
    except (ProfileError, SecurityConfigError) as error:
        raise CommandFailure(str(error), USAGE) from error
    return bootstrap or DEFAULT_BOOTSTRAP, properties


def security_of(properties: Mapping[str, str]) -> ConnectionSecurity:
    """How to connect with the properties of a client. Raises SecurityConfigError."""
    from odradek.protocol.client.security import PLAINTEXT

    if not properties:
        return PLAINTEXT
    from odradek.admin.properties import security_of_properties

    return security_of_properties(properties)


def parse_bootstrap(servers: str) -> list[Address]:
    """The addresses of --bootstrap-server: host, host:port or [host]:port, with commas. Raises CommandFailure."""
    found = []
    for text in servers.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise CommandFailure(f"--bootstrap-server: {text!r} is not host:port", USAGE)
        found.append((host, int(port)))
    return found


_CONNECTION: Final[Sequence[Callable[[F], F]]] = (
    click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        help=f"Any brokers of the cluster, with commas between them.  [default: {DEFAULT_BOOTSTRAP}]",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        envvar="ODRADEK_PROFILE",
        help="A connection of the configuration file; see `odradek profile`.",
    ),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="ODRADEK_COMMAND_CONFIG",
        help="Properties of a Kafka client, by Java's or librdkafka's names: TLS and SASL.",
    ),
)


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --bootstrap-server, --profile and --command-config."""
    for option in reversed(_CONNECTION):
        command = option(command)
    return command


yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Change without asking.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only show what would change.")


def connects(
    function: Callable[..., None] | None = None, *, timeout_s: float = TIMEOUT_S, formats: Sequence[str] = FORMATS
) -> Callable[..., Any]:
    """Give a command the options of a connection and of output, and as its first argument the `CommandSession`.

    `timeout_s` is the default of --timeout, and the first of `formats` that of --output.
    """
    if function is None:
        return functools.partial(connects, timeout_s=timeout_s, formats=formats)
    wrapped = function

    @functools.wraps(wrapped)
    def run(
        bootstrap_server: str | None,
        profile: str | None,
        command_config: Path | None,
        timeout_s: float,
        output: str,
        **others: Any,
    ) -> None:
        if is_overridden_by_profile():
            bootstrap_server = None
        session = CommandSession(ConnectionOptions(bootstrap_server, profile, command_config, timeout_s), output)
        try:
            with failures():
                wrapped(session, **others)
        finally:
            session.close()

    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=timeout_s,
        show_default=True,
        envvar="ODRADEK_TIMEOUT",
        help="Seconds for each request and its retries.",
    )
    output_option = click.option(
        "--output",
        "-o",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        envvar="ODRADEK_OUTPUT" if formats is FORMATS else None,
        help="For a reader, or for programs.",
    )
    return connection_options(timeout(output_option(run)))


def is_overridden_by_profile(parameter: str = "bootstrap_server") -> bool:
    """Whether an address is from the environment and the profile is not: the profile has its own address."""
    source = click.get_current_context().get_parameter_source
    return source(parameter) is ParameterSource.ENVIRONMENT and source("profile") is ParameterSource.COMMANDLINE


def usage(message: str) -> NoReturn:
    """End the command: its command line is wrong."""
    raise click.UsageError(message)


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    """End the command with one line on standard error."""
    raise CommandFailure(message, exit_code)


def parse_partitions(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Topics with partitions, TOPIC or TOPIC:0,1; None for all partitions. Raises click.UsageError."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.rpartition(":")
        if not colon:
            found[text] = None
            continue
        parts = numbers.split(",")
        if not topic or not all(each.strip().isdigit() for each in parts):
            usage(f"{text!r} is neither TOPIC nor TOPIC:PARTITION,PARTITION")
        known = found.get(topic, [])
        found[topic] = None if known is None else [*known, *(int(each) for each in parts)]
    return found
