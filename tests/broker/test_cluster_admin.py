"""Administration of three brokers in one process: which broker answers a request, which changes reach all brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.controller.descriptor_budget import DescriptorBudget
from odradek.broker.replication.log_dirs import DirectoryDescription, LogDescription, LogDirs
from odradek.broker.replication.partition import Replicas
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.directory import Directory, DirectoryRequest
from tests.broker.admin_requests import (
    BROKER,
    PREFERRED,
    SET,
    TOPIC,
    alter,
    create_partitions,
    describe,
    elect,
    list_reassignments,
    reassign,
)
from tests.broker.cluster_in_process import BROKERS, Cluster, running_cluster
from tests.broker.wire import batch
from tests.support.eventually import eventually_async


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as running:
        yield running


# ---- which broker answers


async def test_other_brokers_leave_requests_for_the_controller_to_it(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2], [2, 3])
    requests: list[tuple[Any, Any]] = [
        (create_partitions(("t", 3, None), ("u", 3, None)), lambda r: {each.error_code for each in r.results}),
        (
            elect(PREFERRED, [("t", [0, 1])]),
            lambda r: {each.error_code for topic in r.replica_election_results for each in topic.partition_result},
        ),
        (
            elect(PREFERRED, None),
            lambda r: {each.error_code for topic in r.replica_election_results for each in topic.partition_result},
        ),
        (reassign(("t", 0, [3])), lambda r: {r.error_code}),
        (list_reassignments(), lambda r: {r.error_code}),
        (m.AlterPartitionRequest(broker_id=1), lambda r: {r.error_code}),
        (m.AllocateProducerIdsRequest(broker_id=1), lambda r: {r.error_code}),
    ]
    for broker_id in cluster.others:
        shutdown = await cluster.clients[broker_id].ask(m.ControlledShutdownRequest(broker_id=9))
        assert shutdown.error_code == ErrorCode.STALE_CONTROLLER_EPOCH  # Kafka: ControllerMovedException
        for request, errors in requests:
            answer = await cluster.clients[broker_id].ask(request)
            assert errors(answer) == {ErrorCode.NOT_CONTROLLER}, answer
    caches = [broker.running.metadata_cache for broker in cluster.brokers.values()]
    assert [len(cache.topics["t"].partitions) for cache in caches] == [2, 2, 2]


async def test_new_partitions_exist_when_the_controller_has_answered(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2])
    client = cluster.clients[cluster.controller]
    answer = await client.ask(create_partitions(("t", 3, [[2, 3], [3, 1]])))
    assert answer.results[0].error_code == ErrorCode.NONE
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])
    (topic,) = (await client.ask(request, 12)).topics
    assert [(each.partition_index, each.leader_id, each.replica_nodes) for each in topic.partitions] == [
        (0, 1, [1, 2]),
        (1, 2, [2, 3]),
        (2, 3, [3, 1]),
    ]
    await cluster.known(cluster.clients[3], "t", [[1, 2], [2, 3], [3, 1]])
    assert (await cluster.clients[3].produce("t", batch(b"v"), partition=2)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2**31 - 1, id="absurd"),
        pytest.param(99_999, id="larger than a node of the registry", marks=pytest.mark.slow),
    ],
)
async def test_a_number_of_partitions_over_the_limit_is_refused(cluster: Cluster, count: int) -> None:
    await cluster.create("t", [1, 2, 3])
    client = cluster.clients[cluster.controller]
    maker = cluster.brokers[cluster.controller].running.controller.maker
    plenty = (10**6, 10**6)  # more than this process may have
    maker.budget = DescriptorBudget(cluster.controller, lambda name: True, lambda: plenty)
    grown = await client.ask(create_partitions(("t", count, None)))
    assert grown.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    topic = m.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=count, replication_factor=3)
    made = await client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert made.topics[0].error_code == ErrorCode.INVALID_PARTITIONS
    assert (await client.ask(create_partitions(("t", 2, [[1, 2, 3]])))).results[0].error_code == ErrorCode.NONE


async def test_a_configuration_that_cannot_be_stored_is_refused(cluster: Cluster) -> None:
    too_much = [(f"plug.in.{number}", SET, "x" * 32_000) for number in range(40)]
    for client in cluster.clients.values():
        answer = await client.ask(alter((BROKER, "", too_much)), 1)
        assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
        answer = await client.ask(alter((BROKER, "", too_much[:2])), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE


async def test_a_change_of_assignment_keeps_the_number_of_replicas_where_it_must(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2])
    client = cluster.clients[cluster.controller]
    request = reassign(("t", 0, [1, 2, 3]))
    request.allow_replication_factor_change = False
    answer = await client.ask(request, 1)
    assert answer.allow_replication_factor_change is False
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    request.allow_replication_factor_change = True
    assert (await client.ask(request, 1)).responses[0].partitions[0].error_code == ErrorCode.NONE
    await cluster.known(client, "t", [[1, 2, 3]])


# ---- changes that reach all brokers


async def test_any_broker_changes_a_topic_for_all(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    asked = cluster.clients[cluster.others[0]]
    answer = await asked.ask(alter((TOPIC, "t", [("max.message.bytes", SET, "1000")])), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE
    for partition, leader in enumerate(BROKERS):
        await eventually_async(
            lambda leader=leader, partition=partition: cluster.clients[leader].produce(
                "t", batch(bytes(2000)), partition=partition
            ),
            lambda answer: answer.error_code == ErrorCode.MESSAGE_TOO_LARGE,
        )


async def test_min_insync_replicas_takes_effect_at_once(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    leader = cluster.clients[1]
    assert (await leader.produce("t", batch(b"v"))).error_code == ErrorCode.NONE
    await cluster.brokers.pop(3).stop()
    await eventually_async(
        lambda: leader.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]), 12),
        lambda answer: set(answer.topics[0].partitions[0].isr_nodes) == {1, 2},
    )
    assert (await leader.produce("t", batch(b"v"))).error_code == ErrorCode.NONE
    answer = await cluster.clients[2].ask(alter((TOPIC, "t", [("min.insync.replicas", SET, "3")])), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE
    await eventually_async(
        lambda: leader.produce("t", batch(b"v")), lambda answer: answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    )
    assert (await leader.produce("t", batch(b"v"), acks=1)).error_code == ErrorCode.NONE


async def test_a_broker_changes_its_own_configuration_and_any_broker_the_default(cluster: Cluster) -> None:
    wrong = await cluster.clients[1].ask(alter((BROKER, "2", [("message.max.bytes", SET, "5")])), 1)
    assert wrong.responses[0].error_code == ErrorCode.INVALID_REQUEST
    both = [("", "1000"), ("2", "2000")]
    for name, value in both:
        answer = await cluster.clients[2].ask(alter((BROKER, name, [("message.max.bytes", SET, value)])), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE
    for broker_id, expected in ((1, "1000"), (2, "2000"), (3, "1000")):
        await eventually_async(
            lambda broker_id=broker_id: cluster.clients[broker_id].ask(
                describe(BROKER, str(broker_id), "message.max.bytes"), 4
            ),
            lambda answer, expected=expected: answer.results[0].configs[0].value == expected,
        )


# ---- data directories


async def test_followers_have_logs_of_the_leaders_size(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2, 3])
    assert (await cluster.clients[1].produce("t", batch(b"v" * 100))).error_code == ErrorCode.NONE
    wanted = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0])
    sizes = set()
    for client in cluster.clients.values():
        answer = await client.ask(m.DescribeLogDirsRequest(topics=[wanted]))
        (partition,) = answer.results[0].topics[0].partitions
        assert partition.offset_lag == 0
        sizes.add(partition.partition_size)
    assert len(sizes) == 1
    assert sizes.pop() > 100


def test_a_failed_directory_is_described_by_its_error_alone(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("good", "bad")]
    good, bad = (Directory.open(path, DirectoryRequest(1, "cluster", 0)) for path in paths)
    try:
        for index, directory in enumerate((good, bad)):
            directory.create_log(("t", index), bytes(16), DirectoryRequest(1, "", 0).config_for("t"), now_ms=0)
        bad.fail("the disk is gone")
        described = LogDirs([good, bad], Replicas(), lambda path: (1000, 100)).describe(None)
        assert described == [
            DirectoryDescription(paths[0], None, (LogDescription("t", 0, 0, -1),), 1000, 100),
            DirectoryDescription(paths[1], "the disk is gone"),
        ]

        def unknown(path: str) -> tuple[int, int]:
            raise OSError("unknown error")

        (only, _) = LogDirs([good, bad], Replicas(), unknown).describe([("other", 0)])
        assert only == DirectoryDescription(paths[0], None)
    finally:
        for directory in (good, bad):
            directory.close(now_ms=0, clean=False)


def test_a_log_that_moves_during_a_description_is_in_one_directory(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    directories = [Directory.open(path, DirectoryRequest(1, "cluster", 0)) for path in paths]
    one, two = directories
    one.create_log(("t", 0), bytes(16), DirectoryRequest(1, "", 0).config_for("t"), now_ms=0)

    def move(path: str) -> tuple[int, int]:
        if path == paths[0]:
            two.logs["t", 0] = one.logs.pop(("t", 0))
        return 1000, 100

    try:
        described = LogDirs(directories, Replicas(), move).describe(None)
        assert [len(each.logs) for each in described] == [1, 0]
    finally:
        for directory in directories:
            directory.close(now_ms=0, clean=False)
