"""The commands `odradek streams run` and `odradek streams top`: an application in several processes, and its status.

`run` prints one line to stdout when all processes are running; everything else is the log, on stderr. The output of the
workers goes to the same streams, each line with the number of its process. Exit status: 0 after a graceful close, 1
where a process failed in it or was killed, 2 where the application cannot be used.

Modules that a command needs are imported when it runs: every command of `odradek` imports this one.
"""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.addresses import host_and_port
from odradek.log_lines import FORMATS, LEVELS, log_to_stderr, say_process
from odradek.streams_application import application_options, fail, read_properties

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _run_options(function: _Function) -> _Function:
    """What a worker needs, too: the supervisor passes these on."""
    options = (
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
    return application_options(function)


@click.command()
@_run_options
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
    from odradek.streams.supervisor.restarts import RestartBackoff
    from odradek.streams_run import AddressError, supervise

    log_to_stderr(log_level, log_format)
    read_properties(application["properties"], application["overrides"])  # errors appear before any process starts
    if restart_backoff_ms > restart_backoff_max_ms:
        raise click.UsageError("--restart-backoff-ms must not be above --restart-backoff-max-ms")
    try:
        status = supervise(
            f"{application['application']}, {processes} process{'es' if processes > 1 else ''}",
            functools.partial(_worker_command, _worker_arguments(log_level, log_format, **application)),
            [RestartBackoff(restart_backoff_ms / 1000, restart_backoff_max_ms / 1000) for _ in range(processes)],
            application["close_timeout_s"],
            metrics=metrics,
            json_log=log_format == "json",
        )
    except AddressError as error:
        fail(str(error))
    sys.exit(status)


@click.command(hidden=True)
@_run_options
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
        read_properties(application["properties"], application["overrides"]),
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
    from odradek.live_screen import show
    from odradek.metrics_source import MetricsSource, PageError
    from odradek.streams_top import StatusPage

    page = StatusPage(MetricsSource(url if url is not None else f"127.0.0.1:{port}"))
    try:
        show(page.table, live=not once)
    except PageError as error:
        fail(str(error))


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
    from odradek.ready_process import OWN_COMMAND

    return [*OWN_COMMAND, "streams", "worker", *arguments, f"--process={number}", f"--status-fd={descriptor}"]
