"""The commands `odradek streams run` and `odradek streams top`: an application in several processes, and its status.

`run` prints one line to stdout when all processes are running; everything else is the log, on stderr. The output of the
workers goes to the same streams, each line with the number of its process. Exit status: 0 after a graceful close, 1
where a process failed in it or was killed, 2 where the application cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from odradek import __version__
from odradek.addresses import host_and_port
from odradek.log_lines import FORMATS, LEVELS, log_to_stderr, say_process
from odradek.ready_process import OWN_COMMAND
from odradek.service import tell_systemd
from odradek.standard_streams import print_line

if TYPE_CHECKING:
    from odradek.streams.supervisor.status_table import Row
    from odradek.streams.supervisor.supervisor import Supervisor

_TIMEOUT_S: Final = 10.0
_REFRESH_S: Final = 1.0
_CLEAR: Final = "\033[H\033[J"
"""Moves the cursor of a terminal to the first line and clears what follows."""
_FOLDER: Final = click.Path(path_type=Path, file_okay=False, exists=True)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _application_options(function: _Function) -> _Function:
    """What a worker needs, too: the supervisor passes these on."""
    options = (
        click.argument("application", metavar="MODULE:TOPOLOGY"),
        click.option(
            "--properties",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            metavar="FILE",
            help="Properties of the application; each start of a process reads them again.",
        ),
        click.option(
            "--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Set a property over the file's value."
        ),
        click.option(
            "--app-dir",
            type=_FOLDER,
            default=".",
            show_default=True,
            metavar="FOLDER",
            help="Where MODULE is searched for first.",
        ),
        click.option("--threads", type=click.IntRange(1), metavar="T", help="num.stream.threads of each process."),
        click.option(
            "--close-timeout",
            "close_timeout_s",
            type=click.FloatRange(min=0),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="How long a process may take to close; it is killed 5 seconds later.",
        ),
        click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True),
        click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@_application_options
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many to start."
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=host_and_port,
    help="Serve one page of metrics of all processes for Prometheus there; port 0 takes a free one.",
)
@click.option(
    "--restart-backoff-ms",
    type=click.IntRange(0),
    default=1_000,
    show_default=True,
    help="How long a process that failed waits for its next start; doubled with each failure in a row.",
)
@click.option(
    "--restart-backoff-max-ms",
    type=click.IntRange(0),
    default=60_000,
    show_default=True,
    help="The longest wait. A process that has been running for so long begins again with the shortest one.",
)
def run(
    processes: int,
    metrics: tuple[str, int] | None,
    restart_backoff_ms: int,
    restart_backoff_max_ms: int,
    log_level: str,
    log_format: str,
    **application: Any,
) -> None:
    """Run a stream application in several processes, until SIGTERM or Ctrl-C.

    MODULE:TOPOLOGY is a Topology, a StreamsBuilder, or a function that returns one. Each process has a state directory
    of its own below state.dir. A process that fails is started again; SIGHUP restarts all of them, one at a time. A
    second SIGTERM or Ctrl-C kills those that have not closed.
    """
    from odradek.streams.supervisor.output import mark_json, mark_text
    from odradek.streams.supervisor.restarts import RestartBackoff
    from odradek.streams.supervisor.supervision import Supervision
    from odradek.streams.supervisor.supervisor import Supervisor

    log_to_stderr(log_level, log_format)
    _properties(application["properties"], application["overrides"])  # errors appear before any process starts
    if restart_backoff_ms > restart_backoff_max_ms:
        raise click.UsageError("--restart-backoff-ms must not be above --restart-backoff-max-ms")
    backoffs = [RestartBackoff(restart_backoff_ms / 1000, restart_backoff_max_ms / 1000) for _ in range(processes)]
    supervision = Supervision(backoffs, application["close_timeout_s"])
    command = functools.partial(_worker_command, _worker_arguments(log_level, log_format, **application))
    mark = mark_json if log_format == "json" else mark_text
    what = f"{application['application']}, {processes} process{'es' if processes > 1 else ''}"
    sys.exit(asyncio.run(_supervise(functools.partial(Supervisor, supervision, command, mark), what, metrics)))


async def _supervise(
    make: Callable[[Callable[[], None]], Supervisor], what: str, metrics: tuple[str, int] | None
) -> int:
    """Run a supervisor, which `make` creates with a function that it calls when all processes are running."""
    where = ""

    def announce() -> None:
        print_line(f"odradek {__version__} ready: {what}{where}")
        tell_systemd("READY=1")

    supervisor = make(announce)
    if metrics is None:
        return await supervisor.run()
    from odradek.streams.supervisor.page import serve_processes

    host, port = metrics
    with contextlib.ExitStack() as opened:
        page = serve_processes(supervisor.status, asyncio.get_running_loop(), host, port)
        try:
            port = opened.enter_context(page)
        except OSError as error:
            _fail(f"cannot serve metrics at {host}:{port}: {error.strerror}")
        where = f", metrics at http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        return await supervisor.run()


@click.command(hidden=True)
@_application_options
@click.option("--process", type=click.IntRange(0), required=True, help="The number of this process.")
@click.option("--status-fd", type=click.IntRange(0), required=True, help="The descriptor of the status channel.")
def worker(process: int, status_fd: int, log_level: str, log_format: str, **application: Any) -> None:
    """Run one process of an application, for `odradek streams run`."""
    log_to_stderr(log_level, log_format)
    say_process(process)
    from odradek.streams.supervisor.worker import ApplicationWorker, WorkerSettings

    settings = WorkerSettings(
        application["application"],
        application["app_dir"],
        _properties(application["properties"], application["overrides"]),
        process,
        application["threads"],
        application["close_timeout_s"],
    )
    sys.exit(ApplicationWorker(settings, socket.socket(fileno=status_fd)).run())


@click.command()
@click.argument("url", required=False, metavar="[URL]")
@click.option("--port", type=click.IntRange(1, 65535), help="Of a metrics page on this machine, in place of a URL.")
@click.option("--once", is_flag=True, help="Print the table once, as it is without a terminal.")
def top(url: str | None, port: int | None, once: bool) -> None:
    """Show the processes of an application: state, tasks, records per second, lag, restarts.

    URL is that of the metrics page of `odradek streams run --metrics`. On a terminal the table is refreshed each
    second until Ctrl-C.
    """
    if (url is None) == (port is None):
        raise click.UsageError("either URL or --port is required, the metrics page of odradek streams run --metrics")
    address = url if url is not None else f"http://127.0.0.1:{port}/metrics"
    if "://" not in address:
        address = f"http://{address}"
    if address.count("/") < 3:
        address += "/metrics"
    if once or not sys.stdout.isatty():
        print_line(_table(address, Refresh()))
        return
    refresh = Refresh()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            click.echo(f"{_CLEAR}{_table(address, refresh)}")
            time.sleep(_REFRESH_S)


class Refresh:
    """The previous page of `top`, from which it computes rates."""

    def __init__(self) -> None:
        self._before: tuple[float, Sequence[Row]] | None = None

    def table(self, page: str, now: float) -> str:
        """The table of a page at the time `now`, in seconds. Raises ValueError."""
        from odradek.streams.supervisor.status_table import measure_rates, render, rows_of

        rows = rows_of(page)
        if self._before is not None:
            measure_rates(rows, self._before[1], now - self._before[0])
        self._before = now, rows
        return render(rows)


def _table(address: str, refresh: Refresh) -> str:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response:
            page = response.read().decode("utf-8", "replace")
        return refresh.table(page, time.monotonic())
    except urllib.error.URLError as error:
        _fail(f"cannot read {address}: {error.reason}")
    except (OSError, ValueError) as error:
        _fail(f"cannot read {address}: {error}")


def _properties(path: Path | None, overrides: Sequence[str]) -> dict[str, str]:
    """The properties of a file, overridden by NAME=VALUE texts. Ends the command where they cannot be read."""
    from odradek.broker.config.properties import parse_properties
    from odradek.broker.config.types import ConfigError

    properties: dict[str, str] = {}
    if path is not None:
        try:
            properties = parse_properties(path.read_bytes())
        except OSError as error:
            _fail(f"cannot read {path}: {error.strerror}")
        except ConfigError as error:
            _fail(f"cannot read {path}: {error.message}")
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set {text}: must be NAME=VALUE")
        properties[name.strip()] = value
    return properties


def _worker_arguments(
    log_level: str,
    log_format: str,
    *,
    application: str,
    properties: Path | None,
    overrides: Sequence[str],
    app_dir: Path,
    threads: int | None,
    close_timeout_s: float,
) -> list[str]:
    """The arguments that all workers have."""
    return [
        application,
        f"--app-dir={app_dir.absolute()}",
        *([f"--properties={properties.absolute()}"] if properties is not None else []),
        *(f"--set={each}" for each in overrides),
        *([f"--threads={threads}"] if threads is not None else []),
        f"--close-timeout={close_timeout_s}",
        f"--log-level={log_level}",
        f"--log-format={log_format}",
    ]


def _worker_command(arguments: Sequence[str], number: int, descriptor: int) -> list[str]:
    return [*OWN_COMMAND, "streams", "worker", *arguments, f"--process={number}", f"--status-fd={descriptor}"]


def _fail(message: str) -> NoReturn:
    click.echo(f"odradek: {message}", err=True)
    sys.exit(1)
