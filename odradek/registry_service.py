"""Registry for several brokers on one machine: the embedded tree, served over ZooKeeper's protocol.

`odradek registry` runs it alone, `odradek cluster up` runs it together with its brokers. The journal is in a folder, so
topics outlive the process. It is for one machine; a production cluster runs Apache ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.server import RegistryServer
from odradek.broker.runtime.stop_signals import stop_signals
from odradek.broker.security.state.jaas import JaasError, parse_sections
from odradek.storage.disk import OsDisk

TICK_MS: Final = 2_000
"""ZooKeeper's tickTime: a session may last from 2 to 20 of these."""


class Served(NamedTuple):
    """A registry that serves."""

    ensemble: EmbeddedEnsemble
    port: int


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    host: str,
    port: int,
    tick_ms: int = TICK_MS,
    *,
    keep_sessions: bool,
    users: Mapping[str, str] | None = None,
) -> AsyncIterator[Served]:
    """Serve the journal in `folder`, within the block. Port 0 takes a free one.

    `keep_sessions` when clients may have outlived the previous process; else their sessions end now. With `users`,
    names and passwords, only they are served.

    Raises JournalInUseError, DamagedJournalError, OSError.
    """
    disk = OsDisk()
    disk.make_directory(str(folder))
    ensemble = EmbeddedEnsemble(disk, str(folder / "registry"), now_ms=_now_ms, keep_sessions=keep_sessions)
    try:
        server = RegistryServer(ensemble, tick_ms=tick_ms, users=users)
        bound = await server.start(host, port)
        try:
            yield Served(ensemble, bound)
        finally:
            await server.close()
    finally:
        await ensemble.close()


class JaasFileError(Exception):
    """The JAAS file cannot be read, or has no users; the message contains no part of them."""


def users_in(jaas_file: Path) -> dict[str, str]:
    """The users of ZooKeeper's JAAS section Server: names and passwords of its options `user_NAME`.

    Raises JaasFileError.
    """
    try:
        modules = parse_sections(jaas_file.read_text("utf-8")).get("Server", [])
    except (OSError, UnicodeDecodeError, JaasError) as error:
        reason = str(error) if isinstance(error, JaasError) else type(error).__name__
        raise JaasFileError(f"the JAAS file {jaas_file} cannot be read: {reason}") from error
    users = {
        name.removeprefix("user_"): password
        for module in modules
        for name, password in module.options.items()
        if name.startswith("user_")
    }
    if not users:
        raise JaasFileError(f"the JAAS file {jaas_file} has no option user_NAME in a section Server")
    return users


def run(
    folder: Path,
    host: str,
    port: int,
    tick_ms: int,
    on_ready: Callable[[int], None],
    users: Mapping[str, str] | None = None,
) -> None:
    """Serve until one of `stop_signals` arrives; `on_ready` is called with the port. Raises the errors of `serving`."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(folder, host, port, tick_ms, on_ready, users))


async def _run(
    folder: Path,
    host: str,
    port: int,
    tick_ms: int,
    on_ready: Callable[[int], None],
    users: Mapping[str, str] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    async with serving(folder, host, port, tick_ms, keep_sessions=True, users=users) as served:
        on_ready(served.port)
        await stop.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
