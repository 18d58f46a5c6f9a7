"""Three brokers in this process, with a client of each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.server import Broker, Environment
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

BROKERS = (1, 2, 3)


class Cluster:
    """Three brokers and a client of each."""

    def __init__(self, brokers: dict[int, Broker], clients: dict[int, Client]) -> None:
        self.brokers, self.clients = brokers, clients

    @property
    def controller(self) -> int:
        return next(broker_id for broker_id, broker in self.brokers.items() if broker.running.controller.is_active)

    @property
    def others(self) -> list[int]:
        """The brokers that are not the controller."""
        return [broker_id for broker_id in self.brokers if broker_id != self.controller]

    async def create(self, topic: str, *assignment: list[int]) -> None:
        """A topic in the metadata of every broker, its replicas all in sync."""
        request = m.CreateTopicsRequest
        replicas = [
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignment)
        ]
        wanted = request.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=replicas)
        answer = await self.clients[self.controller].ask(request(topics=[wanted], timeout_ms=10_000))
        assert answer.topics[0].error_code == ErrorCode.NONE
        for client in self.clients.values():
            await self.known(client, topic, list(assignment))

    async def known(self, client: Client, topic: str, assignment: list[list[int]]) -> None:
        """Wait until a broker returns these replicas to its clients."""
        request = m.MetadataRequest(
            topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        await eventually_async(
            lambda: client.ask(request, 12),
            lambda answer: [each.replica_nodes for each in answer.topics[0].partitions] == assignment,
        )


@contextlib.asynccontextmanager
async def running_cluster(folder: Path, **overrides: str) -> AsyncIterator[Cluster]:
    """Three brokers on one embedded registry; `{id}` in an override stands for the broker's id."""
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder / "registry"), now_ms=SystemClock().now_ms)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(ensemble.close)
        brokers, clients = {}, {}
        for broker_id in BROKERS:
            properties = {
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(folder / str(broker_id)),
                "controlled.shutdown.enable": "false",
                **{name.replace("_", "."): value.format(id=broker_id) for name, value in overrides.items()},
            }
            broker = Broker(BrokerConfig(properties), Environment(open_session=ensemble.connect))
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers[broker_id] = broker
        for broker_id, broker in brokers.items():
            clients[broker_id] = await Client.connect(broker.port)
            stack.callback(clients[broker_id].close)
            await eventually_async(
                lambda asked=clients[broker_id]: asked.ask(m.MetadataRequest(topics=[]), 7), _is_complete
            )
        yield Cluster(brokers, clients)


def _is_complete(metadata: m.MetadataResponse) -> bool:
    return {each.node_id for each in metadata.brokers} == set(BROKERS)
