"""Replication of three brokers in this process, seen over the wire: which client may read which records where, and
fencing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import batch, fetch_request, produce_request
from tests.support.eventually import eventually_async

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Broker N is in rack N; a follower that sends no fetch for a second is behind."""
    overrides = {
        "broker_rack": "rack-{id}",
        "replica_selector_class": RACK_AWARE,
        "replica_lag_time_max_ms": "1000",
        "replica_fetch_wait_max_ms": "50",
        "offsets_topic_num_partitions": "3",
        "offsets_topic_replication_factor": "3",
        "group_initial_rebalance_delay_ms": "0",
    }
    async with running_cluster(tmp_path, **overrides) as running:
        yield running


async def test_a_write_with_all_acks_is_on_every_in_sync_replica(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    for number in range(20):
        answer = await cluster.clients[1].produce("t", batch(b"%d" % number), acks=-1)
        assert (answer.error_code, answer.base_offset) == (0, number)
        for broker in cluster.brokers.values():
            replica = broker.replicas.get("t", 0)
            assert replica is not None
            assert replica.log.end_offset > number


async def test_logs_of_all_replicas_are_byte_identical(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create("t", [2, 3, 1])
    for number in range(30):
        assert (await cluster.clients[2].produce("t", batch(b"v" * number, b"w"), acks=-1)).error_code == 0
    logs = [(tmp_path / str(each) / "t-0" / f"{0:020d}.log").read_bytes() for each in (1, 2, 3)]
    assert len(logs[0]) > 1000
    assert logs[0] == logs[1] == logs[2]
    epochs = [(tmp_path / str(each) / "t-0" / "leader-epoch-checkpoint").read_bytes() for each in (1, 2, 3)]
    assert epochs[0] == epochs[1] == epochs[2]


async def test_a_consumer_is_redirected_to_the_replica_in_its_rack_and_served_there(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    assert (await cluster.clients[1].produce("t", batch(b"near"), acks=-1)).error_code == 0
    request = fetch_request("t", 0)
    request.rack_id = "rack-3"

    async def ask() -> m.FetchResponse.PartitionData:
        found: m.FetchResponse.PartitionData = (await cluster.clients[1].ask(request, 11)).responses[0].partitions[0]
        return found

    sent = await eventually_async(ask, lambda answer: answer.preferred_read_replica != -1)
    assert (sent.error_code, sent.preferred_read_replica, bytes(sent.records or b"")) == (0, 3, b"")
    read = await eventually_async(
        lambda: cluster.clients[3].fetch("t", 0, version=11), lambda answer: bool(answer.records)
    )
    assert b"near" in bytes(read.records or b"")
    own = fetch_request("t", 0)
    own.rack_id = "rack-1"
    answer = (await cluster.clients[1].ask(own, 11)).responses[0].partitions[0]
    assert answer.preferred_read_replica == -1, "the leader itself is in the same rack"


async def test_only_the_leader_accepts_writes_and_old_clients(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    follower = cluster.clients[2]
    assert (await follower.produce("t", batch(b"v"), acks=-1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = await follower.ask(produce_request("t", batch(b"v")), 10)
    leader = refused.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, 0)
    assert (await follower.fetch("t", 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await follower.fetch("t", 0, version=11)).error_code == ErrorCode.NONE


async def test_a_consumer_with_a_divergent_history_receives_the_offset_to_truncate_to(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    assert (await cluster.clients[1].produce("t", batch(b"a", b"b"), acks=-1)).error_code == 0
    request = fetch_request("t", 7)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    answer = (await cluster.clients[1].ask(request, 12)).responses[0].partitions[0]
    assert (answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 0, 2)
    for epoch, code in ((5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NONE)):
        request = fetch_request("t", 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert (await cluster.clients[1].ask(request, 12)).responses[0].partitions[0].error_code == code


async def test_records_are_deleted_when_every_running_replica_has_moved_its_start(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    for number in range(6):
        assert (await cluster.clients[1].produce("t", batch(b"%d" % number), acks=-1)).error_code == 0

    async def delete(offset: int, timeout_ms: int) -> tuple[int, int]:
        asked = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[asked])]
        request = m.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        answer = (await cluster.clients[1].ask(request, 2)).topics[0].partitions[0]
        return answer.low_watermark, answer.error_code

    def starts() -> list[int]:
        replicas = [broker.replicas.get("t", 0) for broker in cluster.brokers.values()]
        return [each.log.start_offset for each in replicas if each is not None]

    assert await delete(4, 30_000) == (4, ErrorCode.NONE)
    assert starts() == [4, 4, 4]
    assert await delete(6, 30_000) == (6, ErrorCode.NONE)
    assert starts() == [6, 6, 6]


async def test_a_lost_follower_leaves_the_isr_and_writes_fail_below_min_insync_replicas(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2])
    controller = cluster.clients[cluster.controller]
    alter = m.IncrementalAlterConfigsRequest
    change = alter.AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
    resource = alter.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    assert (await controller.ask(alter(resources=[resource]))).responses[0].error_code == 0
    leader = cluster.brokers[1].replicas.get("t", 0)
    assert leader is not None
    await cluster.brokers[2].stop()

    async def write() -> int:
        answer = await cluster.clients[1].ask(produce_request("t", batch(b"v"), timeout_ms=300), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    await eventually_async(write, lambda code: code == ErrorCode.NOT_ENOUGH_REPLICAS)
    assert leader.machine.isr == {1}
    assert (await cluster.clients[1].produce("t", batch(b"v"), acks=1)).error_code == 0, "acks=1 requires no more"
    end = leader.machine.high_watermark
    assert end < leader.log.end_offset, "records on too few replicas are not visible (KIP-966)"


async def test_a_group_moves_with_the_leader_of_its_partition(cluster: Cluster) -> None:
    any_client = cluster.clients[1]
    find = m.FindCoordinatorRequest(key="g")
    found = await eventually_async(lambda: any_client.ask(find, 3), lambda answer: not answer.error_code)
    commit = m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1)
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    commit.topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    await cluster.create("t", [1, 2, 3])

    async def commit_at(broker_id: int) -> int:
        return int((await cluster.clients[broker_id].ask(commit, 7)).topics[0].partitions[0].error_code)

    await eventually_async(lambda: commit_at(found.node_id), lambda code: code == ErrorCode.NONE)
    await cluster.brokers[found.node_id].stop()
    left = next(each for each in cluster.brokers if each != found.node_id)
    moved = await eventually_async(
        lambda: cluster.clients[left].ask(find, 3),
        lambda answer: not answer.error_code and answer.node_id != found.node_id,
    )
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = m.OffsetFetchRequest(group_id="g", topics=[wanted])
    answer = await eventually_async(
        lambda: cluster.clients[moved.node_id].ask(request, 5), lambda answer: not answer.error_code
    )
    assert answer.topics[0].partitions[0].committed_offset == 5
    with contextlib.suppress(ConnectionError):
        stranger = next(each for each in cluster.brokers if each not in (found.node_id, moved.node_id))
        assert await commit_at(stranger) == ErrorCode.NOT_COORDINATOR
