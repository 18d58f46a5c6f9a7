"""Requests that change topics are answered after the controller's own metadata shows the change, or with
REQUEST_TIMED_OUT (Kafka: delayed operations of ZkAdminManager, DelayedElectLeader).

The controller notifies brokers by UpdateMetadata, its own broker too. The tests hold these requests back in front of
the controller's broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_requests import PREFERRED, elect, reassign
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import Client

DEADLINE_S = 30
PATIENT_MS = 20_000
SHORT_MS = 200


class Held:
    """UpdateMetadata requests for one broker, held back while `open` is not set."""

    def __init__(self) -> None:
        self.broker_id = -1
        self.open = asyncio.Event()
        self.open.set()
        self.waits = asyncio.Event()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Those for the controller's own broker."""
    held = Held()
    apply = ReplicaManager._update_metadata

    async def apply_when_open(
        replica_manager: ReplicaManager, request: m.UpdateMetadataRequest
    ) -> m.UpdateMetadataResponse:
        if replica_manager._dependencies.broker_id == held.broker_id and not held.open.is_set():
            held.waits.set()
            await held.open.wait()
        return await apply(replica_manager, request)

    monkeypatch.setattr(ReplicaManager, "_update_metadata", apply_when_open)
    return held


@pytest.fixture
async def cluster(tmp_path: Path, held: Held) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, auto_leader_rebalance_enable="false") as running, asyncio.timeout(DEADLINE_S):
        held.broker_id = running.controller
        yield running


async def partitions(client: Client, topic: str) -> list[m.MetadataResponse.MetadataResponsePartition]:
    """The response of a broker for a topic; nothing where it has no such topic."""
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (answer,) = (await client.ask(request, 12)).topics
    assert (answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == (not answer.partitions)
    found: list[m.MetadataResponse.MetadataResponsePartition] = answer.partitions
    return sorted(found, key=lambda each: each.partition_index)


def create(timeout_ms: int) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name="new", num_partitions=2, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def delete(timeout_ms: int) -> m.DeleteTopicsRequest:
    return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=timeout_ms)


def grow(timeout_ms: int) -> m.CreatePartitionsRequest:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    return m.CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms)


def elect_preferred(timeout_ms: int) -> m.ElectLeadersRequest:
    request = elect(PREFERRED, [("t", [0])])
    request.timeout_ms = timeout_ms
    return request


Case = tuple[Callable[[int], Any], Callable[[Any], int], Callable[[Cluster, Client], Any]]


async def has_new(cluster: Cluster, client: Client) -> bool:
    found = await partitions(client, "new")
    return len(found) == 2 and all(each.leader_id >= 0 for each in found)


async def has_no_t(cluster: Cluster, client: Client) -> bool:
    return not await partitions(client, "t")


async def has_three(cluster: Cluster, client: Client) -> bool:
    found = await partitions(client, "t")
    return len(found) == 3 and all(each.leader_id >= 0 for each in found)


async def is_led_by_preferred(cluster: Cluster, client: Client) -> bool:
    (first, *_) = await partitions(client, "t")
    return first.leader_id == first.replica_nodes[0]


CASES: dict[str, Case] = {
    "CreateTopics": (create, lambda answer: answer.topics[0].error_code, has_new),
    "DeleteTopics": (delete, lambda answer: answer.responses[0].error_code, has_no_t),
    "CreatePartitions": (grow, lambda answer: answer.results[0].error_code, has_three),
    "ElectLeaders": (
        elect_preferred,
        lambda answer: answer.replica_election_results[0].partition_result[0].error_code,
        is_led_by_preferred,
    ),
}


async def prepare(cluster: Cluster) -> Client:
    """A topic on brokers other than the controller, which its preferred leader does not lead; a client of the
    controller.
    """
    one, other = cluster.others
    await cluster.create("t", [one, other])
    client = cluster.clients[cluster.controller]
    answer = await client.ask(reassign(("t", 0, [other, one])))
    assert not answer.error_code
    await cluster.known(client, "t", [[other, one]])
    return client


@pytest.mark.parametrize("api", CASES)
async def test_the_response_comes_after_the_metadata(cluster: Cluster, held: Held, api: str) -> None:
    request, code, shows = CASES[api]
    client = await prepare(cluster)
    held.open.clear()
    await client.send(request(PATIENT_MS), type(request(0)).MAX_VERSION)
    await held.waits.wait()
    other = await Client.connect(cluster.brokers[cluster.controller].port)
    assert not await shows(cluster, other), "the metadata are held back"
    asyncio.get_running_loop().call_later(SHORT_MS / 1000, held.open.set)
    answer = await client.receive()
    assert held.open.is_set(), "the answer came first"
    assert code(answer) == ErrorCode.NONE
    assert await shows(cluster, other)
    other.close()


@pytest.mark.parametrize("timeout_ms", [SHORT_MS, 0, -1])
@pytest.mark.parametrize("api", CASES)
async def test_metadata_that_comes_too_late_causes_request_timed_out(
    cluster: Cluster, held: Held, api: str, timeout_ms: int
) -> None:
    request, code, _ = CASES[api]
    client = await prepare(cluster)
    held.open.clear()
    assert code(await client.ask(request(timeout_ms))) == ErrorCode.REQUEST_TIMED_OUT
    held.open.set()


async def test_a_topic_with_all_partitions_and_its_id_in_the_cache_is_known(cluster: Cluster, held: Held) -> None:
    """A topic of the same name that was deleted a moment ago is another topic."""
    client = await prepare(cluster)
    held.open.clear()
    assert CASES["DeleteTopics"][1](await client.ask(delete(0))) == ErrorCode.REQUEST_TIMED_OUT
    again = create(SHORT_MS)
    again.topics[0].name = "t"
    again.topics[0].num_partitions = 1
    codes: set[int] = {ErrorCode.TOPIC_ALREADY_EXISTS}
    while ErrorCode.TOPIC_ALREADY_EXISTS in codes:
        codes = {(await client.ask(again)).topics[0].error_code}
    assert codes == {ErrorCode.REQUEST_TIMED_OUT}
    held.open.set()


async def test_a_topic_during_its_deletion_is_unknown(cluster: Cluster, held: Held) -> None:
    """A replica's broker is away: the topic is gone for clients, and so it is for another DeleteTopics."""
    client = await prepare(cluster)
    await cluster.brokers[cluster.others[0]].stop()
    code = CASES["DeleteTopics"][1]
    assert code(await client.ask(delete(PATIENT_MS))) == ErrorCode.NONE
    assert code(await client.ask(delete(PATIENT_MS))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
