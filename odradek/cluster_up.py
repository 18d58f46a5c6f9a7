"""`odradek cluster up`: a cluster on one machine, a process a broker, with the registry in this one.

    DIR/registry/     the journal of the registry: topics and their state outlive a restart
    DIR/1/, DIR/2/…   the brokers' data
    DIR/broker-1.log  what broker 1 logs

The brokers are children that end when this process does, however it ends. Ctrl-C and SIGTERM stop them one after the
other, each handing its leaderships over (controlled shutdown), the controller last, and then the registry; a second
Ctrl-C does not wait. A broker that dies is reported with the end of its log, and the others go on: its session, which
nobody can be using any more, ends at once instead of after zookeeper.session.timeout.ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from odradek import __version__
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import RegistryError
from odradek.ready_process import OWN_COMMAND, UNTIL_STDIN_ENDS, port_in
from odradek.registry_service import Served, serving

READY_S: Final = 60.0
STOP_S: Final = 60.0
SHOWN_LOG_LINES: Final = 25
OWN_PROPERTIES: Final = frozenset({"broker.id", "node.id", "listeners", "log.dir", "log.dirs", "zookeeper.connect"})
"""What the plan sets for each broker, and nobody else."""

Say = Callable[[str], None]


class UpError(Exception):
    """The cluster cannot be started; the message says why."""


class Plan(NamedTuple):
    """What is to be started."""

    brokers: int
    folder: Path
    host: str
    port: int
    """Of the first broker; the next ones follow. 0 takes free ones."""
    properties: Mapping[str, str]

    def overrides(self, broker_id: int, registry_port: int) -> dict[str, str]:
        """The properties of one broker: three copies of everything, as far as there are brokers, unless told other."""
        copies = str(min(3, self.brokers))
        in_sync = str(min(2, self.brokers))
        port = self.port + broker_id - 1 if self.port else 0
        return {
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync if self.brokers > 2 else "1",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "controlled.shutdown.retry.backoff.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            **self.properties,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{port}",
            "log.dirs": str(self.folder / str(broker_id)),
            "zookeeper.connect": f"127.0.0.1:{registry_port}",
        }


class _Child:
    """One broker's process."""

    def __init__(self, broker_id: int, process: asyncio.subprocess.Process, log: Path, host: str) -> None:
        self.broker_id = broker_id
        self.process = process
        self.host = host
        self.port = 0
        self.stopping = False
        self._log = log

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    async def await_ready(self) -> None:
        """Raises UpError, with the end of the log, when it does not come up."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = (await self.process.stdout.readline()).decode("utf-8", "replace")
        except TimeoutError:
            raise UpError(f"broker {self.broker_id} is not ready after {READY_S:g} s{self.end_of_log()}") from None
        port = port_in(line)
        if port is None:
            await self.process.wait()
            raise UpError(f"broker {self.broker_id} has not started{self.end_of_log()}")
        self.port = port

    async def stop(self) -> None:
        """SIGTERM, and the time to hand over; then SIGKILL."""
        self.stopping = True
        if not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        self.stopping = True
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()

    def end_of_log(self) -> str:
        """The last lines of what it logged, as the end of a message."""
        lines = self._log.read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
        shown = "".join(f"\n    {line}" for line in lines) or " is empty"
        return f"; {self._log}{' ends:' if lines else ''}{shown}"


def run(plan: Plan, say: Say) -> None:
    """Start the cluster, tell of it through `say`, and keep it up until SIGTERM or SIGINT.

    Raises UpError, OSError, and what the registry's journal raises.
    """
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Cluster(plan, say).run())


class _Cluster:
    """The registry here, and the brokers as children."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._children: list[_Child] = []
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._interrupted)
        plan = self._plan
        # The brokers of an earlier run ended with it.
        async with serving(plan.folder, "127.0.0.1", 0, keep_sessions=False) as served:
            self._say(f"registry (--zookeeper) at 127.0.0.1:{served.port}")
            try:
                await self._start(served.port)
                self._announce()
                await self._watch(served)
            finally:
                await self._end(served)

    def _interrupted(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _start(self, registry_port: int) -> None:
        for broker_id in range(1, self._plan.brokers + 1):
            self._children.append(await self._launch(broker_id, registry_port))
        coming_up = [asyncio.ensure_future(child.await_ready()) for child in self._children]
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            for ready in coming_up:
                await asyncio.wait([ready, stopped], return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    return
                ready.result()
        finally:
            for each in (*coming_up, stopped):
                each.cancel()
            await asyncio.gather(*coming_up, stopped, return_exceptions=True)

    async def _launch(self, broker_id: int, registry_port: int) -> _Child:
        overrides = self._plan.overrides(broker_id, registry_port)
        log = self._plan.folder / f"broker-{broker_id}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *OWN_COMMAND,
                "broker",
                *(f"--override={name}={value}" for name, value in overrides.items()),
                UNTIL_STDIN_ENDS,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C at the terminal is for this process alone; it stops them in order
            )
        return _Child(broker_id, process, log, self._plan.host)

    def _announce(self) -> None:
        if self._stop.is_set():
            return
        for child in self._children:
            data = self._plan.folder / str(child.broker_id)
            self._say(
                f"broker {child.broker_id} at {child.host}:{child.port}, process {child.process.pid}, data in {data}"
            )
        addresses = [f"{child.host}:{child.port}" for child in self._children]
        self._say(
            f"odradek {__version__} ready: cluster at {','.join(addresses)}, data in {self._plan.folder}; "
            f"try odradek cluster status --bootstrap-server {addresses[0]}, or any Kafka tool; Ctrl-C stops it"
        )

    async def _watch(self, served: Served) -> None:
        """Report who dies until it is time to stop, or nobody is left."""
        watchers = [asyncio.ensure_future(self._report_death(child, served)) for child in self._children]
        stopped = asyncio.ensure_future(self._stop.wait())
        all_dead = asyncio.ensure_future(asyncio.wait(watchers))
        try:
            await asyncio.wait([stopped, all_dead], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                raise UpError("no broker is left")
        finally:
            for each in (*watchers, stopped, all_dead):
                each.cancel()
            await asyncio.gather(*watchers, stopped, all_dead, return_exceptions=True)

    async def _report_death(self, child: _Child, served: Served) -> None:
        status = await child.process.wait()
        if not child.stopping:
            how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            self._say(f"broker {child.broker_id} has ended {how}{child.end_of_log()}")
            await _end_session(served, child.broker_id)

    async def _end(self, served: Served) -> None:
        orderly = asyncio.ensure_future(self._stop_in_order(served))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([orderly, hurry], return_when=asyncio.FIRST_COMPLETED)
        orderly.cancel()
        hurry.cancel()
        await asyncio.gather(orderly, hurry, return_exceptions=True)
        for child in self._children:
            await child.kill()

    async def _stop_in_order(self, served: Served) -> None:
        controller = await _controller(served)
        for child in sorted(self._children, key=lambda child: (child.broker_id == controller, -child.broker_id)):
            if child.running:
                self._say(f"stopping broker {child.broker_id}")
                await child.stop()


async def _controller(served: Served) -> int:
    """The broker in the controller's seat, or -1."""
    try:
        session = await served.ensemble.connect()
        try:
            data, _ = await session.get(znodes.CONTROLLER)
            return znodes.Controller.decode(data).broker_id
        finally:
            await session.close()
    except (RegistryError, znodes.ZnodeError):
        return -1


async def _end_session(served: Served, broker_id: int) -> None:
    """End the session of a broker whose process is gone, if it is still there."""
    try:
        session = await served.ensemble.connect()
        try:
            stat = await session.exists(znodes.broker_path(broker_id))
            if stat is not None:
                await served.ensemble.expire(stat.ephemeral_owner)
        finally:
            await session.close()
    except RegistryError:
        return  # then it ends by its timeout


def say_on_stdout(line: str) -> None:
    """The progress of a cluster is what this command prints."""
    print(line, file=sys.stdout, flush=True)
