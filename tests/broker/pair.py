"""Two brokers in this process that count and can mute the connections between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.server import Broker, Environment
from odradek.protocol import messages as m
from odradek.protocol.dial import Channel, connect
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

HERE = "127.0.0.1"


class Dialing:
    """How one broker connects to others: it records connections, and can refuse them, or leave requests without a
    response.
    """

    def __init__(self) -> None:
        self.ports: Counter[int] = Counter()
        self.is_mute = False
        self._refuses = False
        self._open: list[Channel] = []

    async def __call__(self, host: str, port: int, **handlers: Any) -> Channel:
        self.ports[port] += 1
        if self._refuses:
            raise ConnectionRefusedError("refused by the test")
        self._open.append(Mute() if self.is_mute else await connect(host, port, **handlers))
        return self._open[-1]

    def silence(self) -> None:
        """Close open connections, and open no more: the broker lives, and sends no requests."""
        self._refuses = True
        for channel in self._open:
            channel.close()


class Mute:
    """A channel whose other end never answers."""

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class Pair:
    """Brokers 1 and 2, a client of each, and how each connects; 1 is the controller."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.clients: dict[int, Client] = {}
        self.dialing = {1: Dialing(), 2: Dialing()}

    async def create(self, topic: str, *assignment: list[int]) -> None:
        """A topic, when all its replicas are in sync."""
        request = m.CreateTopicsRequest
        replicas = [
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignment)
        ]
        wanted = request.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=replicas)
        answer = await self.clients[1].ask(request(topics=[wanted], timeout_ms=10_000))
        assert answer.topics[0].error_code == ErrorCode.NONE

    def port(self, broker_id: int, listener: str = "PLAINTEXT") -> int:
        """The address at which other brokers reach a broker."""
        found = self.brokers[1].running.metadata_cache.brokers[broker_id].endpoint(listener)
        assert found is not None
        return found.port


@asynccontextmanager
async def running_pair(folder: Path, **overrides: str) -> AsyncIterator[Pair]:
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder / "registry"), now_ms=SystemClock().now_ms)
    pair = Pair()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ensemble.close)
        for broker_id in (1, 2):
            properties = {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{HERE}:0",
                "log.dirs": str(folder / str(broker_id)),
                "controlled.shutdown.enable": "false",
                "offsets.topic.num.partitions": "1",
                "offsets.topic.replication.factor": "2",
                **{name.replace("_", "."): value for name, value in overrides.items()},
            }
            harness = Environment(open_session=ensemble.connect, connect=pair.dialing[broker_id])
            broker = pair.brokers[broker_id] = Broker(BrokerConfig(properties), harness)
            await broker.start()
            stack.push_async_callback(broker.stop)
            pair.clients[broker_id] = await Client.connect(broker.port)
            stack.callback(pair.clients[broker_id].close)
        for broker in pair.brokers.values():
            cache = broker.running.metadata_cache
            await eventually_async(lambda cache=cache: len(cache.brokers) == 2)  # type: ignore[arg-type]
        yield pair
