"""Throttled replication: reassignments between brokers, and moves between directories, take their time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import Client, batch, running_broker
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.slow

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
BATCH_BYTES = 50_000
BATCHES = 40
RATE = 500_000
"""4 s for all batches."""


async def configure(client: Client, kind: int, name: str, **values: str | None) -> None:
    """Change dynamic properties; None removes one."""
    request = m.IncrementalAlterConfigsRequest
    changes = [
        request.AlterableConfig(
            name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in values.items()
    ]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    answer = await client.ask(request(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


async def move(cluster: Cluster, topic: str, replicas: list[int]) -> float:
    """Reassign partition 0 of a topic; returns how many seconds that took."""
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=replicas)
    wanted = request(topics=[request.ReassignableTopic(name=topic, partitions=[partition])], timeout_ms=10_000)
    started = time.monotonic()
    answer = await cluster.clients[cluster.controller].ask(wanted)
    assert answer.error_code == ErrorCode.NONE
    await eventually_async(
        lambda: cluster.clients[cluster.controller].ask(m.ListPartitionReassignmentsRequest(topics=None)),
        lambda listed: listed.topics == [],
    )
    return time.monotonic() - started


async def test_a_throttled_reassignment_takes_its_time_and_an_unthrottled_one_does_not(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.clients[1]
        for topic in ("leader", "follower", "free"):
            await cluster.create(topic, [1])
            for _ in range(BATCHES):
                await client.produce(topic, batch(bytes(BATCH_BYTES)))
        await configure(client, BROKER_RESOURCE, "1", leader_replication_throttled_rate=str(RATE))
        await configure(cluster.clients[2], BROKER_RESOURCE, "2", follower_replication_throttled_rate=str(RATE))
        await configure(client, TOPIC_RESOURCE, "leader", leader_replication_throttled_replicas="0:1")
        await configure(client, TOPIC_RESOURCE, "follower", follower_replication_throttled_replicas="0:2,0:3")
        quotas = {each: broker.running.quotas.replication for each, broker in cluster.brokers.items()}
        await eventually_async(
            lambda: asyncio.sleep(0, (quotas[1].leader.is_active, quotas[2].follower.is_active)),
            lambda active: active == (True, True),
        )
        least_s = 0.5 * BATCHES * BATCH_BYTES / RATE
        assert await move(cluster, "free", [1, 2]) < least_s
        assert await move(cluster, "leader", [1, 3]) >= least_s
        assert await move(cluster, "follower", [1, 2]) >= least_s
        await configure(client, TOPIC_RESOURCE, "leader", leader_replication_throttled_replicas=None)
        await eventually_async(lambda: asyncio.sleep(0, quotas[1].leader.is_active), lambda active: not active)


async def test_a_follower_in_sync_is_not_throttled(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.clients[1]
        await cluster.create("t", [1, 2])
        await configure(client, BROKER_RESOURCE, "1", leader_replication_throttled_rate="1")
        await configure(client, TOPIC_RESOURCE, "t", leader_replication_throttled_replicas="*")
        quota = cluster.brokers[1].running.quotas.replication.leader
        await eventually_async(lambda: asyncio.sleep(0, quota.is_active and quota.is_limited), bool)
        for _ in range(5):
            result = await client.produce("t", batch(bytes(BATCH_BYTES)), acks=-1)
            assert result.error_code == ErrorCode.NONE
        assert quota.is_exceeded()


def _directory(broker: Broker) -> str:
    replica = broker.replicas.get("t", 0)
    assert replica is not None
    return replica.log.directory


async def test_a_throttled_move_between_directories_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(f"{first},{second}") as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        for _ in range(4 * BATCHES):
            await client.produce("t", batch(bytes(BATCH_BYTES)))
        await configure(client, BROKER_RESOURCE, "0", replica_alter_log_dirs_io_max_bytes_per_second=str(4 * RATE))
        quota = broker.running.quotas.replication.alter_log_dirs
        counted: list[int] = []
        await eventually_async(lambda: asyncio.sleep(0, quota.is_limited), bool)
        record = quota.record

        def count(size: int) -> None:
            counted.append(size)
            record(size)

        monkeypatch.setattr(quota, "record", count)
        before = _directory(broker)
        destination = second if str(second) not in before else first
        request = m.AlterReplicaLogDirsRequest
        topic = request.AlterReplicaLogDirTopic(name="t", partitions=[0])
        started = time.monotonic()
        answer = await client.ask(request(dirs=[request.AlterReplicaLogDir(path=str(destination), topics=[topic])]))
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        await eventually_async(lambda: asyncio.sleep(0, _directory(broker)), lambda now: str(destination) in now)
        assert time.monotonic() - started >= 0.75 * 4 * BATCHES * BATCH_BYTES / (4 * RATE)
        replica = broker.replicas.get("t", 0)
        assert replica is not None
        assert sum(counted) == replica.log.size, "what did not fit into a piece does not count"
        assert max(counted) <= 4 * RATE / 10
        client.close()
