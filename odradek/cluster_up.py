"""`odradek cluster up`: a cluster on one machine, a process for each broker, with the registry in this one.

    DIR/registry/     the journal of the registry: topics and their state outlive a restart
    DIR/1/, DIR/2/…   the brokers' data
    DIR/broker-1.log  the log of broker 1
    DIR/console.log   that of the console, with --console
    DIR/registry-jaas.conf  the login of the registry, with zookeeper.set.acl=true
    DIR/control       the path for `odradek cluster restart` to this process (`cluster_control`)

The brokers are children that end when this process does, in every case. Ctrl-C and SIGTERM stop them one after the
other, each with a controlled shutdown, the controller last, and then the registry; a second Ctrl-C does not wait. If a
broker dies, this process prints the end of its log, and the others continue: the session of the dead broker, which no
process uses any more, ends at once instead of after zookeeper.session.timeout.ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from odradek import __version__
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import RegistryError
from odradek.broker.runtime.stop_signals import stop_signals
from odradek.cluster_console import ClusterConsole, ConsolePlan, ConsoleStartError
from odradek.cluster_control import ControlServer
from odradek.ready_process import OWN_COMMAND, UNTIL_STDIN_ENDS, port_in
from odradek.registry_login import ensure_jaas_file, environment
from odradek.registry_service import Served, serving, users_in
from odradek.standard_streams import print_line

READY_S: Final = 60.0
STOP_S: Final = 60.0
SHOWN_LOG_LINES: Final = 25
OWN_PROPERTIES: Final = frozenset({"broker.id", "node.id", "listeners", "log.dir", "log.dirs", "zookeeper.connect"})
"""Properties that the plan sets for each broker; a user cannot override them."""

Say = Callable[[str], None]


class UpError(Exception):
    """The cluster cannot be started; the message contains the reason."""


class ClusterPlan(NamedTuple):
    """The cluster to start."""

    brokers: int
    folder: Path
    host: str
    port: int
    """The port of the first broker; the next ones follow. 0 takes free ones."""
    properties: Mapping[str, str]
    registry_port: int = 0
    """The port of the registry. 0 takes a free one."""
    console: ConsolePlan | None = None
    """The console to start with it."""

    @property
    def is_registry_secured(self) -> bool:
        """Whether the registry serves the brokers of this cluster only."""
        return self.properties.get("zookeeper.set.acl", "false").lower() == "true"

    def overrides(self, broker_id: int, registry_port: int) -> dict[str, str]:
        """The properties of one broker: three replicas of everything, as far as there are brokers, unless
        overridden.
        """
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
        """Raises UpError, with the end of the log, when the broker does not become ready."""
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
        """SIGTERM, and time for the controlled shutdown; then SIGKILL."""
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
        """The last lines of its log, as the end of a message."""
        lines = self._log.read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
        shown = "".join(f"\n    {line}" for line in lines) or " is empty"
        return f"; {self._log}{' ends:' if lines else ''}{shown}"


def run(plan: ClusterPlan, say: Say) -> None:
    """Start the cluster, report progress through `say`, and keep it running until SIGTERM or SIGINT.

    Raises UpError, OSError, and the errors of the registry's journal.
    """
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Cluster(plan, say).run())


class _Cluster:
    """The registry in this process, and the brokers as children."""

    def __init__(self, plan: ClusterPlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._children: dict[int, _Child] = {}
        self._watchers: dict[int, asyncio.Task[None]] = {}
        self._restarting: set[int] = set()
        self._environment: dict[str, str] | None = None
        self._console = None if plan.console is None else ClusterConsole(plan.console, plan.folder)
        self._none_left = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._interrupted)
        plan = self._plan
        # The brokers of an earlier run ended with it.
        users = None
        if plan.is_registry_secured:
            jaas_file = ensure_jaas_file(plan.folder)
            users = users_in(jaas_file)
            self._environment = {**os.environ, **environment(jaas_file, os.environ.get("KAFKA_OPTS", ""))}
        async with serving(plan.folder, "127.0.0.1", plan.registry_port, keep_sessions=False, users=users) as served:
            self._say(f"registry (--zookeeper) at 127.0.0.1:{served.port}")
            actions = {"restart": lambda broker_id: self._restart(broker_id, served), "kill": self._kill}
            control = ControlServer(plan.folder, actions)
            try:
                await self._start(served.port)
                await control.start()
                await self._start_console()
                self._announce()
                await self._watch(served)
            finally:
                await control.close()
                if self._console is not None:
                    await self._console.stop()
                await self._end(served)

    def _interrupted(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _start(self, registry_port: int) -> None:
        for broker_id in range(1, self._plan.brokers + 1):
            self._children[broker_id] = await self._launch(broker_id, registry_port)
        coming_up = [asyncio.ensure_future(child.await_ready()) for child in self._children.values()]
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

    async def _start_console(self) -> None:
        if self._console is None or self._stop.is_set():
            return
        data_dirs = {each: self._plan.folder / str(each) for each in self._children}
        try:
            address = await self._console.start(self._addresses(), data_dirs)
        except ConsoleStartError as error:
            raise UpError(str(error)) from error
        self._say(f"console at {address}")

    def _addresses(self) -> str:
        return ",".join(f"{child.host}:{child.port}" for child in self._children.values())

    async def _launch(self, broker_id: int, registry_port: int, port: int = 0) -> _Child:
        """Start a process; `port` is the previous port of the broker."""
        overrides = self._plan.overrides(broker_id, registry_port)
        if port:
            overrides["listeners"] = f"PLAINTEXT://{self._plan.host}:{port}"
        log = self._plan.folder / f"broker-{broker_id}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *OWN_COMMAND,
                "broker",
                *(f"--override={name}={value}" for name, value in overrides.items()),
                *(() if self._console is None else ("--metrics", self._console.metrics_of(broker_id))),
                UNTIL_STDIN_ENDS,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                start_new_session=True,  # Ctrl-C at the terminal reaches this process alone, which stops them in order
            )
        return _Child(broker_id, process, log, self._plan.host)

    def _announce(self) -> None:
        if self._stop.is_set():
            return
        for child in self._children.values():
            self._say(self._line(child))
        addresses = self._addresses()
        self._say(
            f"odradek {__version__} ready: cluster at {addresses}, data in {self._plan.folder}; "
            f"try odradek cluster status --bootstrap-server {addresses.partition(',')[0]}, or any Kafka tool; Ctrl-C "
            "stops it"
        )

    def _line(self, child: _Child) -> str:
        data = self._plan.folder / str(child.broker_id)
        return f"broker {child.broker_id} at {child.host}:{child.port}, process {child.process.pid}, data in {data}"

    async def _watch(self, served: Served) -> None:
        """Report brokers that end, until the cluster stops, or none is left."""
        for child in self._children.values():
            self._watch_child(child, served)
        stopped = asyncio.ensure_future(self._stop.wait())
        none_left = asyncio.ensure_future(self._none_left.wait())
        try:
            await asyncio.wait([stopped, none_left], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                raise UpError("no broker is left")
        finally:
            ending = [*self._watchers.values(), stopped, none_left]
            for each in ending:
                each.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def _watch_child(self, child: _Child, served: Served) -> None:
        self._watchers[child.broker_id] = asyncio.create_task(self._report_death(child, served))

    async def _report_death(self, child: _Child, served: Served) -> None:
        status = await child.process.wait()
        if not child.stopping:
            how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            self._say(f"broker {child.broker_id} has ended {how}{child.end_of_log()}")
            await _end_session(served, child.broker_id)
        self._look_for_brokers()

    def _look_for_brokers(self) -> None:
        if not self._restarting and not any(child.running for child in self._children.values()):
            self._none_left.set()

    async def _restart(self, broker_id: int, served: Served) -> str:
        """Stop a broker if it runs, with controlled shutdown, and start it on its port and data.

        Returns the line with its address. Raises UpError when it does not start, and for an unknown broker; OSError.
        """
        child = self._child(broker_id)
        if broker_id in self._restarting or self._stop.is_set():
            raise UpError(
                f"broker {broker_id} is being {'restarted' if not self._stop.is_set() else 'stopped'} already"
            )
        self._restarting.add(broker_id)
        try:
            if child.running:
                self._say(f"stopping broker {broker_id}")
                await child.stop()
            await self._watchers[broker_id]  # the session of a dead process has ended
            fresh = self._children[broker_id] = await self._launch(broker_id, served.port, child.port)
            await self._await_restarted(fresh)
            self._watch_child(fresh, served)
        finally:
            self._restarting.remove(broker_id)
            self._look_for_brokers()
        line = self._line(fresh)
        self._say(line)
        return line

    async def _kill(self, broker_id: int) -> str:
        """End a broker by SIGKILL, as a crash does; returns a line. Raises UpError where it does not run."""
        child = self._child(broker_id)
        if not child.running or broker_id in self._restarting:
            raise UpError(f"broker {broker_id} does not run; odradek cluster restart {broker_id} starts it")
        child.process.kill()
        await asyncio.shield(self._watchers[broker_id])  # until its session has ended
        return f"broker {broker_id} was killed; odradek cluster restart {broker_id} starts it again"

    def _child(self, broker_id: int) -> _Child:
        if broker_id not in self._children:
            raise UpError(f"there is no broker {broker_id}; there are {', '.join(map(str, self._children))}")
        return self._children[broker_id]

    async def _await_restarted(self, child: _Child) -> None:
        try:
            await child.await_ready()
        except BaseException:
            await child.kill()
            raise

    async def _end(self, served: Served) -> None:
        orderly = asyncio.ensure_future(self._stop_in_order(served))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([orderly, hurry], return_when=asyncio.FIRST_COMPLETED)
        orderly.cancel()
        hurry.cancel()
        await asyncio.gather(orderly, hurry, return_exceptions=True)
        for child in self._children.values():
            await child.kill()

    async def _stop_in_order(self, served: Served) -> None:
        controller = await _controller(served)
        for child in sorted(
            self._children.values(), key=lambda child: (child.broker_id == controller, -child.broker_id)
        ):
            if child.running:
                self._say(f"stopping broker {child.broker_id}")
                await child.stop()


async def _controller(served: Served) -> int:
    """The id of the active controller, or -1."""
    try:
        session = await served.ensemble.connect()
        try:
            data, _ = await session.get(znodes.CONTROLLER)
            return znodes.ControllerZNode.decode(data).broker_id
        finally:
            await session.close()
    except (RegistryError, znodes.ZnodeError):
        return -1


async def _end_session(served: Served, broker_id: int) -> None:
    """End the session of a broker whose process has ended, if it still exists."""
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
    """Print progress, the output of this command."""
    print_line(line)
