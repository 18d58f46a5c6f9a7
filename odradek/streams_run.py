"""The supervisor of `odradek streams run`, with its ready line and its metrics page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from odradek import __version__
from odradek.service import tell_systemd
from odradek.standard_streams import print_line
from odradek.streams.supervisor.output import mark_json, mark_text
from odradek.streams.supervisor.page import serve_processes
from odradek.streams.supervisor.process import Command
from odradek.streams.supervisor.restarts import RestartBackoff
from odradek.streams.supervisor.supervision import Supervision
from odradek.streams.supervisor.supervisor import Supervisor


class AddressError(Exception):
    """The metrics page cannot be served at its address; the message contains the reason."""


def supervise(
    what: str,
    command: Command,
    backoffs: Sequence[RestartBackoff],
    close_timeout_s: float,
    *,
    metrics: tuple[str, int] | None,
    json_log: bool,
) -> int:
    """Run a worker for each of `backoffs` until all have ended for good. Returns the exit status.

    `what` is the application in the ready line; `metrics` is the address of the metrics page, host and port. Raises
    AddressError.
    """
    supervision = Supervision(backoffs, close_timeout_s)
    return asyncio.run(_supervise(what, supervision, command, metrics, json_log))


async def _supervise(
    what: str, supervision: Supervision, command: Command, metrics: tuple[str, int] | None, json_log: bool
) -> int:
    where = ""

    def announce() -> None:
        print_line(f"odradek {__version__} ready: {what}{where}")
        tell_systemd("READY=1")

    supervisor = Supervisor(supervision, command, mark_json if json_log else mark_text, announce)
    if metrics is None:
        return await supervisor.run()
    host, port = metrics
    with contextlib.ExitStack() as opened:
        page = serve_processes(supervisor, asyncio.get_running_loop(), host, port)
        try:
            port = opened.enter_context(page)
        except OSError as error:
            raise AddressError(f"cannot serve metrics at {host}:{port}: {error.strerror}") from error
        where = f", metrics at http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        return await supervisor.run()
