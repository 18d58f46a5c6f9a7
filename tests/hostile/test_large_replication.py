"""A batch of 85 MB in a cluster of three processes: it arrives at every replica, and no broker is held up by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import RegistryProcess
from odradek.protocol import messages as m
from odradek.ready_process import OWN_COMMAND
from odradek.wire import Wire
from tests.broker.wire import batch, produce_request
from tests.hostile.stretches import MEASURED, Stretches
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

TOPIC = "large"
SIZE = 85_000_000
LIMIT = "100000000"
BROKERS = (1, 2, 3)
PROPERTIES = {
    "message.max.bytes": LIMIT,
    "replica.fetch.max.bytes": LIMIT,
    "replica.fetch.response.max.bytes": LIMIT,
    "replica.lag.time.max.ms": "600000",  # the response to the producer follows all replicas
}
PRODUCE_VERSION, CREATE_VERSION = 9, 5
TIMEOUT_S = 60.0
MOST_MS = 100.0
"""It is a fifth of that on a quiet machine. One stretch of the leader was 60 ms before threads wrote large batches."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    with ExitStack() as undo:
        registry = RegistryProcess(tmp_path, tick_ms=2000)
        undo.callback(registry.kill)
        registry.start()
        found = {}
        for broker_id in BROKERS:
            properties = {
                **PROPERTIES,
                "broker.id": str(broker_id),
                "zookeeper.connect": f"127.0.0.1:{registry.port}",
            }
            broker = BrokerProcess(tmp_path / str(broker_id), properties, command=OWN_COMMAND, environment=MEASURED)
            undo.callback(broker.kill)
            broker.start()
            found[broker_id] = broker
        yield found


def test_a_batch_of_85_mb_is_replicated_without_long_stretches(brokers: dict[int, BrokerProcess]) -> None:
    stretches = {broker_id: Stretches(broker) for broker_id, broker in brokers.items()}
    request = m.CreateTopicsRequest
    assignment = request.CreatableReplicaAssignment(partition_index=0, broker_ids=list(BROKERS))
    topic = request.CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    value = bytes(range(256)) * (SIZE // 256)
    write = produce_request(TOPIC, batch(value), timeout_ms=60_000)
    with Wire("127.0.0.1", brokers[1].port, TIMEOUT_S) as wire:
        eventually(lambda: len(wire.metadata([]).brokers), lambda count: count == len(BROKERS))
        assert wire.ask(request(topics=[topic], timeout_ms=20_000), CREATE_VERSION).topics[0].error_code == 0
        eventually(
            lambda: wire.metadata([TOPIC]).topics[0].partitions, lambda found: found and len(found[0].isr_nodes) == 3
        )
        for each in stretches.values():
            each.longest()
        (answer,) = wire.ask(write, PRODUCE_VERSION).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, 0)
    logs = {
        broker_id: b"".join(path.read_bytes() for path in sorted((broker.data_dir / f"{TOPIC}-0").glob("*.log")))
        for broker_id, broker in brokers.items()
    }
    assert value in logs[1]
    assert logs[1] == logs[2] == logs[3]
    longest = {broker_id: each.longest() for broker_id, each in stretches.items()}
    print("\n".join(f"broker {broker_id}: {stretch}" for broker_id, stretch in longest.items()))
    assert max(stretch.ms for stretch in longest.values()) <= MOST_MS, longest
