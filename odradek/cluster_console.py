"""The console of `odradek cluster up --console`: a process that ends with the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from odradek.ports import free_port
from odradek.ready_process import OWN_COMMAND, UNTIL_STDIN_ENDS

READY_S: Final = 60.0
STOP_S: Final = 10.0
_ADDRESS: Final = re.compile(r"ready: (http://\S+) ")


class ConsolePlan(NamedTuple):
    """The console to start. Port 0 takes a free one."""

    port: int
    allow_changes: bool


class ConsoleStartError(Exception):
    """The console has not started; the message has the end of its log."""


class ClusterConsole:
    """The process of the console, and the metrics pages of the brokers that it reads."""

    def __init__(self, plan: ConsolePlan, folder: Path) -> None:
        """`folder` is that of the cluster; the log of the console is in it."""
        self._plan = plan
        self._log = folder / "console.log"
        self._metrics: dict[int, str] = {}
        self._process: asyncio.subprocess.Process | None = None

    def metrics_of(self, broker_id: int) -> str:
        """host:port for the metrics page of a broker, the same at every start of it."""
        if broker_id not in self._metrics:
            self._metrics[broker_id] = f"127.0.0.1:{free_port()}"
        return self._metrics[broker_id]

    async def start(self, addresses: str, data_dirs: Mapping[int, Path]) -> str:
        """Start it over brokers with these addresses; its URL. Raises ConsoleStartError."""
        options = [f"--metrics={each}" for each in self._metrics.values()]
        options += [f"--data-dir={path}" for path in data_dirs.values()]
        options += ["--allow-changes"] if self._plan.allow_changes else []
        with self._log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *OWN_COMMAND,
                "console",
                f"--bootstrap-server={addresses}",
                f"--port={self._plan.port}",
                *options,
                UNTIL_STDIN_ENDS,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C at the terminal reaches the parent alone, which stops it
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = (await self._process.stdout.readline()).decode("utf-8", "replace")
        except TimeoutError:
            line = ""
        address = _ADDRESS.search(line)
        if address is None:
            await self.stop()
            end = "".join(f"\n    {each}" for each in self._log.read_text("utf-8", "replace").splitlines()[-5:])
            raise ConsoleStartError(f"the console has not started; {self._log} ends:{end}")
        return address[1]

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not end it."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
