"""A broker has the same state after a stop or a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.server import Broker, Environment
from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.listening import Listener
from odradek.storage.disk import OsDisk
from tests.broker.wire import Client, batch, produce_request, running_broker

GROUP = "readers"


async def fill(client: Client) -> dict[str, object]:
    """Topics, records, a commit and producer ids; returns the state that has to be there again."""
    topic = await client.create_topic("t", partitions=2, configs={"retention.ms": "123456789"})
    for partition in (0, 1, 1):
        assert (await client.produce("t", batch(b"a", b"b"), partition=partition)).error_code == 0
    while (await client.ask(m.FindCoordinatorRequest(key=GROUP), 3)).error_code:
        pass  # the coordinator's topic is made after the first request for it
    partition_commit = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=1, committed_offset=3, committed_metadata="here"
    )
    commit = m.OffsetCommitRequest(
        group_id=GROUP,
        topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition_commit])],
    )
    assert (await client.ask(commit, 8)).topics[0].partitions[0].error_code == 0
    return {"topic_id": topic.topic_id, **await look(client)}


async def look(client: Client) -> dict[str, object]:
    metadata = (await client.ask(m.MetadataRequest(topics=None), 12)).topics
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
    )
    configs = (await client.ask(m.DescribeConfigsRequest(resources=[resource]), 4)).results[0].configs
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1])
    while True:
        offsets = await client.ask(m.OffsetFetchRequest(group_id=GROUP, topics=[wanted]), 7)
        if offsets.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
    read = [bytes((await client.fetch("t", 0, partition=partition)).records) for partition in (0, 1)]
    committed = offsets.topics[0].partitions[0]
    return {
        "topics": sorted((topic.name, topic.topic_id, len(topic.partitions)) for topic in metadata),
        "config": [(config.name, config.value, config.config_source) for config in configs],
        "committed": (committed.committed_offset, committed.metadata, committed.error_code),
        "records": [
            [(r.offset, r.value) for position, _ in headers(data) for r in records(data, position)] for data in read
        ],
    }


async def leader_epoch(client: Client) -> int:
    metadata = await client.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]), 12)
    epoch: int = metadata.topics[0].partitions[0].leader_epoch
    return epoch


async def producer_id(client: Client) -> int:
    answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert answer.error_code == 0
    number: int = answer.producer_id
    return number


async def test_all_state_is_restored_after_a_stop(tmp_path: Path) -> None:
    ids: list[int] = []
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        before = await fill(client)
        topic_id = before.pop("topic_id")
        ids += [await producer_id(client), await producer_id(client)]
        first_epoch = await leader_epoch(client)
        client.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    for start in (1, 2):
        async with running_broker(tmp_path / "data") as broker:
            client = await Client.connect(broker.port)
            assert await look(client) == before
            assert ("t", topic_id, 2) in before["topics"]  # type: ignore[operator]
            assert await leader_epoch(client) == first_epoch + start
            ids.append(await producer_id(client))
            client.close()
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
async def test_all_state_is_restored_after_a_kill(odradek_broker: BrokerProcess) -> None:
    client = await Client.connect(odradek_broker.port)
    before = await fill(client)
    before.pop("topic_id")
    ids = [await producer_id(client)]
    odradek_broker.kill()
    odradek_broker.start()
    client = await Client.connect(odradek_broker.port)
    assert await look(client) == before
    assert await producer_id(client) not in ids
    odradek_broker.stop()
    assert (odradek_broker.data_dir / ".kafka_cleanshutdown").exists()


async def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data"):
        with pytest.raises(KafkaError, match=r"Failed to acquire lock on file \.lock in .*data\. A Kafka instance"):
            async with running_broker(tmp_path / "data"):
                pass
    async with running_broker(tmp_path / "data"):
        pass


async def test_a_broker_without_an_id_gets_one_and_keeps_it(tmp_path: Path) -> None:
    for _ in range(2):
        async with running_broker(tmp_path / "data", {"broker.id": "-1"}) as broker:
            assert broker.broker_id == 1001
    with pytest.raises(KafkaError, match="belongs to broker 1001"):
        async with running_broker(tmp_path / "data", {"broker.id": "7"}):
            pass


async def test_groups_keep_their_partitions_when_the_property_changes(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"offsets.topic.num.partitions": "5"}) as broker:
        client = await Client.connect(broker.port)
        before = await fill(client)
        before.pop("topic_id")
        client.close()
    async with running_broker(tmp_path / "data", {"offsets.topic.num.partitions": "9"}) as broker:
        client = await Client.connect(broker.port)
        assert await look(client) == before
        client.close()


async def test_a_deleted_topic_stays_deleted_and_its_name_can_be_reused(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        before = await fill(client)
        deleted = await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == 0
        answer = await client.ask(produce_request("t", batch(b"v")), 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        again = await client.create_topic("t", partitions=2)
        assert again.topic_id != before["topic_id"]
        after = await look(client)
        assert after["records"] == [[], []]
        assert after["committed"] == (-1, "", 0)  # the group's offsets went with the topic
        client.close()


async def test_dependencies_enter_through_the_constructor(tmp_path: Path) -> None:
    """The broker works with an injected registry, network and worker as with its own."""
    ensemble = EmbeddedEnsemble(OsDisk(), str(tmp_path / "registry"), now_ms=SystemClock().now_ms)
    listeners: list[Listener] = []
    flushed: list[str] = []

    def listen(*arguments: Any, **options: Any) -> Listener:
        listeners.append(Listener(*arguments, **options))
        return listeners[-1]

    class AtOnce:
        def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
            work()
            flushed.append("once")
            done(None)

    harness = Environment(open_session=ensemble.connect, listen=listen, worker=AtOnce())
    config = {"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    broker = Broker(BrokerConfig(config), harness)
    await broker.start()
    client = await Client.connect(broker.port)
    await client.create_topic("t", configs={"flush.messages": "1"})
    assert (await client.produce("t", batch(b"v"))).error_code == 0
    assert (len(listeners), flushed) == (1, ["once"])
    assert (tmp_path / "data" / "t-0").exists()
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()
    client.close()
    await broker.stop()
    await ensemble.close()


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["kill", "stop"])
async def test_all_batches_that_a_producer_had_in_flight_are_recognized_again(tmp_path: Path, stop: str) -> None:
    """A client has five batches without a response, and a leader that was away sends none: all five come again."""
    sent: list[dict[str, Any]] = [
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number} for number in range(8)
    ]

    async def write(client: Client) -> list[tuple[int, int]]:
        answers = [await client.produce("t", batch(b"a", b"b", **each)) for each in sent[-5:]]
        return [(each.error_code, each.base_offset) for each in answers]

    with BrokerProcess(tmp_path) as process:
        client = await Client.connect(process.port)
        await client.create_topic("t")
        for each in sent[:3]:
            assert (await client.produce("t", batch(b"a", b"b", **each))).error_code == ErrorCode.NONE
        before = await write(client)
        assert before == [(ErrorCode.NONE, 2 * number) for number in range(3, 8)]
        client.close()
        getattr(process, stop)()
        process.start()
        client = await Client.connect(process.port)
        assert await write(client) == before
        client.close()
