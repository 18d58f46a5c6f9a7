"""A broker without free file descriptors: requests fail, the broker and its disks do not, and it recovers."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from odradek.broker.controller.descriptor_budget import DescriptorBudget
from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import File, OsDisk
from tests.broker.crowd import limited_command, open_files
from tests.broker.wire import Client, batch, running_broker
from tests.support.eventually import eventually_async

FILES = 120
IDLE = 56
PROPERTIES = {"log.segment.bytes": "400", "log.retention.ms": "-1", "log.flush.interval.messages": "3"}


async def create(
    client: Client, name: str, partitions: int, configs: Mapping[str, str] = MappingProxyType({})
) -> m.CreateTopicsResponse.CreatableTopicResult:
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
    )
    result: m.CreateTopicsResponse.CreatableTopicResult
    (result,) = (await client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)).topics
    return result


async def grow(client: Client, name: str, count: int) -> m.CreatePartitionsResponse.CreatePartitionsTopicResult:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    result: m.CreatePartitionsResponse.CreatePartitionsTopicResult
    (result,) = (await client.ask(m.CreatePartitionsRequest(topics=[topic], timeout_ms=5_000), 3)).results
    return result


async def is_offline(client: Client) -> bool:
    answer = await client.ask(m.DescribeLogDirsRequest(topics=None), 4)
    return any(each.error_code for each in answer.results)


async def roll_until_nothing_is_left(client: Client, pid: int) -> int:
    """Write batches, each of which begins a segment, until none can be opened; returns how many were acknowledged."""
    for acknowledged in range(2 * FILES):
        code = (await client.produce("there", batch(b"v" * 300))).error_code
        if code:
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert open_files(pid) <= FILES
            return acknowledged
    pytest.fail("descriptors without end")


@pytest.mark.slow
async def test_idle_connections_at_a_low_limit_do_not_stop_a_broker(tmp_path: Path) -> None:
    command = limited_command(FILES, hard=True)
    with BrokerProcess(tmp_path, PROPERTIES, command=command) as process:
        client = await Client.connect(process.port)
        assert (await create(client, "there", 1)).error_code == 0
        assert (await create(client, "roomy", 1, {"segment.bytes": "1048576"})).error_code == 0
        idle = [await Client.connect(process.port) for _ in range(IDLE)]
        for each in idle:
            await each.ask(m.ApiVersionsRequest(), 0)
        acknowledged = await roll_until_nothing_is_left(client, process.pid)
        for codec in Codec:  # their libraries are imported now
            assert (await client.produce("roomy", batch(b"v" * 300, codec=codec))).error_code == 0
        refused = await create(client, "refused", 50)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert f"need 50 file descriptors on broker 0, where 0 of {FILES} are left" in (refused.error_message or "")
        assert "ulimit -n" in (refused.error_message or "")
        grown = await grow(client, "there", 4)
        assert grown.error_code == ErrorCode.POLICY_VIOLATION
        assert f"need 3 file descriptors on broker 0, where 0 of {FILES} are left" in (grown.error_message or "")
        for _ in range(5):  # a group's log cannot be made: the group waits
            assert (await client.ask(m.FindCoordinatorRequest(key="group"), 1)).error_code
            assert (await client.produce("there", batch(b"v" * 300))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not await is_offline(client)
        assert (await client.fetch("there", 0)).high_watermark == acknowledged
        for each in idle:
            each.close()
        await eventually_async(lambda: open_files(process.pid) < FILES - IDLE // 2)
        assert (await create(client, "refused", 5)).error_code == 0
        assert (await grow(client, "there", 4)).error_code == 0
        for partition in range(4):
            assert (await client.produce("there", batch(b"v" * 300), partition=partition)).error_code == 0
        assert (await client.fetch("there", 0)).high_watermark == acknowledged + 1
        client.close()
    with BrokerProcess(tmp_path, PROPERTIES) as process:  # no acknowledged record is gone
        client = await Client.connect(process.port)
        assert (await client.fetch("there", acknowledged)).high_watermark == acknowledged + 1
        client.close()


class ShortDisk(OsDisk):
    """A disk on which no segment can be opened while `is_short`."""

    is_short = False

    def open(self, path: str) -> File:
        if self.is_short and path.endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path)


async def test_a_log_that_could_not_be_created_is_created_when_descriptors_are_free(tmp_path: Path) -> None:
    """The controller's count can be too low, and it has no count of other brokers."""
    disk = ShortDisk()
    async with running_broker(tmp_path, disk=disk) as broker:
        client = await Client.connect(broker.port)
        assert (await create(client, "before", 1)).error_code == 0
        disk.is_short = True
        assert (await create(client, "late", 2)).error_code == 0
        for partition in range(2):
            answer = await client.produce("late", batch(b"v"), partition=partition)
            assert answer.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (await client.produce("before", batch(b"v"))).error_code == 0
        assert not await is_offline(client)
        disk.is_short = False
        for partition in range(2):
            await eventually_async(
                lambda partition=partition: client.produce("late", batch(b"v"), partition=partition),
                lambda answer: not answer.error_code,
            )
        client.close()


async def test_a_topic_that_is_deleted_before_its_log_is_created_stays_away(tmp_path: Path) -> None:
    disk = ShortDisk()
    async with running_broker(tmp_path, disk=disk) as broker:
        client = await Client.connect(broker.port)
        disk.is_short = True
        assert (await create(client, "late", 1)).error_code == 0
        answer = await client.ask(m.DeleteTopicsRequest(topic_names=["late"], timeout_ms=5_000), 5)
        assert answer.responses[0].error_code == 0
        await eventually_async(lambda: not broker.running.replica_manager.unmade)
        disk.is_short = False
        assert not [name for name in os.listdir(tmp_path) if name.startswith("late-")]
        assert (await create(client, "late", 1)).error_code == 0
        assert (await client.produce("late", batch(b"v"))).error_code == 0
        client.close()


def test_pending_logs_count_until_they_exist() -> None:
    there: set[tuple[str, int]] = set()
    budget = DescriptorBudget(1, there.__contains__, lambda: (100, 10))
    budget.promise(budget.check("a", {0: (1, 2), 1: (2, 1), 2: (2, 3)}))
    budget.promise(budget.check("b", dict.fromkeys(range(5), (1,))))
    with pytest.raises(KafkaError) as refused:
        budget.check("c", dict.fromkeys(range(4), (1,)))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert "need 4 file descriptors on broker 1, where 3 of 100 are left" in refused.value.message
    there.update({("a", 0), ("a", 1)})
    budget.settle(["a", "b"])
    assert len(budget.check("c", dict.fromkeys(range(5), (1,)))) == 5
    budget.settle(["c"])  # the other topics have been deleted
    assert len(budget.check("c", dict.fromkeys(range(10), (1,)))) == 10
    assert budget.check("elsewhere", dict.fromkeys(range(1000), (2,))) == []
