"""Compaction progress of replicas, exchanged between brokers: Odradek's own tagged fields in Fetch, over the wire.

A test that fetches as a follower sees the leader's fields for each follower. Three brokers that follow each other all
receive the progress of the broker that is farthest behind, and keep it when that broker is gone. The test sets how far
a log is compacted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import Role
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import batch, fetch_request
from tests.support.eventually import eventually_async

Cleaned = defaultdict[int, int]
"""Below which offset each broker has compacted; -1 where it has not."""
RECORDS = 20
NO_OUTPUT = -1


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> Cleaned:
    offsets: Cleaned = defaultdict(lambda: -1)
    monkeypatch.setattr(Replica, "cleaned_to", property(lambda replica: offsets[replica.machine.broker_id]))
    return offsets


@pytest.fixture
async def cluster(tmp_path: Path, cleaned: Cleaned) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, replica_fetch_wait_max_ms="50", replica_lag_time_max_ms="1000") as running:
        yield running


def replica_of(cluster: Cluster, broker_id: int) -> Replica:
    replica = cluster.brokers[broker_id].replicas.get("t", 0)
    assert replica is not None
    return replica


async def known(cluster: Cluster, broker_id: int) -> int:
    return replica_of(cluster, broker_id).machine.compacted_everywhere


async def written(cluster: Cluster, leader: int) -> None:
    answer = await cluster.clients[leader].produce("t", batch(*[b"v"] * RECORDS), acks=-1)
    assert answer.error_code == ErrorCode.NONE


async def stop(cluster: Cluster, broker_id: int, observer: int) -> None:
    """Stop a broker, and wait until another one has all control requests about that.

    They raise the leader epoch, and with that the leader discards the progress of its followers.
    """
    await cluster.brokers[broker_id].stop()

    async def live() -> set[int]:
        return set(cluster.brokers[observer].running.metadata_cache.brokers)

    await eventually_async(live, lambda brokers: broker_id not in brokers)


class Follower:
    """Sends requests as a replica that does not run."""

    def __init__(self, cluster: Cluster, broker_id: int, leader: int) -> None:
        self._client = cluster.clients[leader]
        self._state = m.FetchRequest.ReplicaState(replica_id=broker_id)
        self._topic_id = replica_of(cluster, leader).topic_id
        self._session_id = self._epoch = 0

    async def fetch(self, cleaned_to: int | None = None, *, offset: int = RECORDS) -> list[int]:
        """The fields of the partition in the response to the next request of its session: nothing, or one number.

        Without `cleaned_to` the request does not name the partition, unless it is the first.
        """
        topics = []
        if cleaned_to is not None or not self._epoch:
            printed = NO_OUTPUT if cleaned_to is None else cleaned_to
            wanted = m.FetchRequest.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20, cleaned_to=printed)
            topics = [m.FetchRequest.FetchTopic(topic_id=self._topic_id, partitions=[wanted])]
        request = m.FetchRequest(
            replica_state=self._state,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=topics,
        )
        answer = await self._client.ask(request, 17)
        assert answer.error_code == ErrorCode.NONE
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        found = [each for topic in answer.responses for each in topic.partitions]
        assert all(each.error_code == ErrorCode.NONE for each in found)
        return [each.compacted_everywhere for each in found]


async def test_a_follower_sends_its_progress_and_receives_the_lowest(cluster: Cluster, cleaned: Cleaned) -> None:
    await cluster.create("t", [1, 2])
    await written(cluster, 1)
    await stop(cluster, 2, 1)
    cleaned[1] = 15
    follower = Follower(cluster, 2, 1)
    assert await follower.fetch(0) == [0]
    assert await follower.fetch() == [], "nothing new"
    assert await follower.fetch(12) == [12]
    assert await follower.fetch() == []
    assert await follower.fetch(18) == [15], "the leader itself is behind"
    cleaned[1] = 17
    assert await follower.fetch() == [17], "sent although the request did not name the partition"
    assert await known(cluster, 1) == 17
    assert await follower.fetch(5) == [5]


async def test_a_kafka_broker_receives_no_progress_and_counts_by_its_offset(cluster: Cluster, cleaned: Cleaned) -> None:
    await cluster.create("t", [1, 2])
    await written(cluster, 1)
    await stop(cluster, 2, 1)
    cleaned[1] = 15
    follower = Follower(cluster, 2, 1)
    assert await follower.fetch(offset=0) == [NO_OUTPUT]
    assert await known(cluster, 1) == 0
    assert await follower.fetch(NO_OUTPUT) == []
    assert await known(cluster, 1) == 15


async def test_a_consumer_receives_no_progress_and_has_no_effect_on_it(cluster: Cluster, cleaned: Cleaned) -> None:
    await cluster.create("t", [1])
    await written(cluster, 1)
    cleaned[1] = 15
    replica_of(cluster, 1).cleaned()
    assert await known(cluster, 1) == 15
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].cleaned_to = 3
    answer = (await cluster.clients[1].ask(request, 12)).responses[0].partitions[0]
    assert (answer.compacted_everywhere, answer.unknown_tagged_fields) == (NO_OUTPUT, None)
    assert len(answer.records)
    assert await known(cluster, 1) == 15


async def test_three_brokers_receive_the_progress_of_the_last(cluster: Cluster, cleaned: Cleaned) -> None:
    await cluster.create("t", [1, 2, 3])
    await written(cluster, 1)
    for broker_id in (1, 2, 3):
        await eventually_async(lambda asked=broker_id: known(cluster, asked), lambda offset: offset == 0)
    cleaned.update({1: 18, 2: 16, 3: 9})
    for broker_id in (1, 2, 3):
        await eventually_async(lambda asked=broker_id: known(cluster, asked), lambda offset: offset == 9)
    cleaned[3] = 17
    for broker_id in (1, 2, 3):
        await eventually_async(lambda asked=broker_id: known(cluster, asked), lambda offset: offset == 16)


async def test_an_absent_replica_holds_back_the_progress_of_all(cluster: Cluster, cleaned: Cleaned) -> None:
    await cluster.create("t", [1, 2, 3])
    await written(cluster, 1)
    cleaned.update({1: 8, 2: 8, 3: 8})
    await eventually_async(lambda: known(cluster, 2), lambda offset: offset == 8)
    await cluster.brokers[3].stop()
    await eventually_async(lambda: _isr(cluster, 1), lambda isr: 3 not in isr)
    cleaned.update({1: 19, 2: 19})
    leading = replica_of(cluster, 1).machine
    await eventually_async(lambda: _reported(cluster, 1, 2), lambda offset: offset == 19)
    assert leading.compacted_everywhere == 0, "its loss began an epoch, in which it has not reported"
    assert await Follower(cluster, 3, 1).fetch(8) == [8]
    await eventually_async(lambda: known(cluster, 2), lambda offset: offset == 8)
    await cluster.brokers[1].stop()
    await eventually_async(lambda: _role(cluster, 2), lambda role: role is Role.LEADER)
    assert await known(cluster, 2) == 0, "no broker except broker 2 itself has reported to it"


async def _isr(cluster: Cluster, leader: int) -> frozenset[int]:
    return replica_of(cluster, leader).machine.isr


async def _reported(cluster: Cluster, leader: int, follower: int) -> int:
    return replica_of(cluster, leader).machine.remotes[follower].compacted_to


async def _role(cluster: Cluster, broker_id: int) -> Role:
    return replica_of(cluster, broker_id).machine.role
