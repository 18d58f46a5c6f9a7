"""A broker as a process of the simulation: its disk outlives it, everything else begins anew with each start."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.interface import RegistryError
from odradek.broker.server import Broker, Environment
from odradek.protocol.errors import KafkaError
from tests.simulation.loop import OWNER, Owner, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.registry import SimulatedEnsemble
from tests.storage.disks import MemoryDisk, at_random

EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    """The clocks of one process: the loop's time, with a wall clock that may be wrong."""

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + round(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1_000_000_000)


class SimulatedWorker:
    """Blocking work takes a moment of virtual time."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self._loop, self._random = loop, random

    def run(self, work: Any, done: Any) -> None:
        def call() -> None:
            error: BaseException | None = None
            try:
                work()
            except Exception as failure:
                error = failure
            done(error)

        self._loop.call_later(self._random.random() * 0.01, call)


class Process:
    """One broker's life."""

    def __init__(
        self,
        broker_id: int,
        properties: dict[str, str],
        network: Network,
        ensemble: SimulatedEnsemble,
        random: Random,
        folders: Sequence[str] = ("",),
    ) -> None:
        """`properties` are the broker's, `folders` are its data directories; nothing runs before `start`."""
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.name}:9092",
            "log.dirs": ",".join(f"/{self.name}{folder}" for folder in folders),
            **properties,
        }
        self.disk = MemoryDisk()
        self.disk_lied = False
        """Whether the disk has ever lost a write that it had reported as durable."""
        self.loses_power_next = False
        self.left: dict[tuple[str, int], int] = {}
        """The end of what was on stable storage in the logs of the last incarnation; without offline logs."""
        self.skew_ms = 2000
        """How far its wall clock may be off."""
        self.broker: Broker | None = None
        self.owner = Owner(self.name)
        self.owner.alive = False
        self.incarnation = 0
        self._starts: list[Coroutine[Any, Any, None]] = []
        self.ready = False
        self.refused: str | None = None
        self._network, self._ensemble, self._random = network, ensemble, random
        self._loop = network.loop

    @property
    def running(self) -> bool:
        return self.owner.alive

    def start(self) -> None:
        """Begin a new incarnation."""
        self.incarnation += 1
        self.ready = False
        self.owner = Owner(self.name)
        timeout_ms = int(self.properties["zookeeper.session.timeout.ms"])
        context = contextvars.copy_context()
        context.run(OWNER.set, self.owner)
        environment = Environment(
            clock=SimulatedClock(self._loop, self._random.randrange(-self.skew_ms, self.skew_ms)),
            random=Random(self._random.getrandbits(64)),
            disk=self.disk,
            listen=self._network.listen(self.owner),  # type: ignore[arg-type]
            connect=self._network.connect(self.owner),
            open_session=self._ensemble.connect(self.owner, timeout_ms),
            worker=SimulatedWorker(self._loop, self._random),
        )
        self.broker = Broker(BrokerConfig(self.properties), environment)
        self._starts.append(self._serve(self.broker, self.owner))
        self._loop.create_task(self._starts[-1], context=context)

    async def _serve(self, broker: Broker, owner: Owner) -> None:
        try:
            await broker.start()
        except (KafkaError, RegistryError, OSError) as error:
            # A real process ends here, and its supervisor starts it again.
            self.refused = repr(error)
            if self.owner is owner:
                self.kill()
                again = contextvars.Context()  # the caller that restarts it is not the process itself
                self._loop.call_later(0.5, lambda: None if self.running else self.start(), context=again)
            return
        self.ready = True

    def kill(self, *, power: bool = False) -> None:
        """End the process at once; with `power` its disk loses unsynced writes, or some of them."""
        if self.ready and self.broker is not None:
            logs = [replica.log for replica in self.broker.replicas if replica.log.failure is None]
            self.left = {(log.topic, log.partition): log.recovery_point for log in logs}
        self.owner.alive = False
        self.ready = False
        self.broker = None
        self._network.died(self.owner)
        if power:
            self.disk.lose_power(at_random(Random(self._random.getrandbits(64))))
        else:
            self.disk.kill()

    def forget(self) -> None:
        """End the starts that a kill has cut off, when the simulation is over.

        Each would run its cleanup, which a process that is killed does not; so it is kept as it stood until now, and
        not left to the garbage collector, which would come upon it in the midst of another test.
        """
        for start in self._starts:
            with contextlib.suppress(StopIteration, asyncio.CancelledError, RuntimeError):
                while inspect.getcoroutinestate(start) != inspect.CORO_CLOSED:
                    start.throw(asyncio.CancelledError)  # an await in its cleanup is cut off as well

    def pause(self) -> None:
        self.owner.paused = True

    def resume(self) -> None:
        self._loop.resume(self.owner)
