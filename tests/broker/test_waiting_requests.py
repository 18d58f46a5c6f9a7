"""No request waits for a condition that holds already, and none is answered twice.

A move between the check of a condition and the registration for the next move wakes no request. The request itself can
move a partition in between: it completes operations of others, and these append.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.apis.delete_records import DeleteRecords
from odradek.broker.apis.fetch import Fetch
from odradek.broker.coordinator.log import InternalTopicLog
from odradek.broker.metadata.cache import BrokerMetadata, MetadataCache
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.state.rates import QuotaConfig
from odradek.broker.replication.delayed_append import DelayedAppend
from odradek.broker.replication.fetch_reader import FetchReader
from odradek.broker.replication.partition import Replica, Replicas, Worker
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine
from odradek.broker.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory, check_and_complete
from odradek.broker.security.auth_helper import AuthHelper
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LoadRequest
from tests.broker.failing_disk import Disk, spread, two
from tests.broker.idle_coordinator import Idle
from tests.broker.transaction_requests import markers
from tests.broker.wire import Client, batch, produce_request, running_broker
from tests.machines.group_harness import VirtualTime
from tests.storage.batches import NOW_MS, TOPIC_ID

TOPIC = "log"
WAIT_MS = 500
ENTRY = (b"key", b"value")


class Call:
    """A request that records its responses."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.closed = False
        self.from_follower = False
        self.replies: list[Any] = []

    def reply(self, response: Any) -> None:
        self.replies.append(response)


class Leader:
    """Two partitions of a topic with the ISR (0, 1), led by this broker, and a coordinator's appends to them."""

    def __init__(self, folder: Path, config: LogConfig | None = None, worker: Worker | None = None) -> None:
        self.time = VirtualTime()
        self.replicas = Replicas()
        self._config, self._worker = config or LogConfig(), worker or Idle()
        self.logs = [self._make(folder / f"{TOPIC}-{index}", index) for index in range(2)]
        self.purgatory = DelayedOperationPurgatory(self.time)
        self.coordinator = InternalTopicLog(TOPIC, self.replicas, self.time, self.purgatory, timeout_ms=10_000)
        self.metadata_cache = MetadataCache("cluster")
        self.metadata_cache.brokers = {number: BrokerMetadata(number, ()) for number in (0, 1)}
        reader = FetchReader(self.replicas, self.metadata_cache, self.purgatory, 1 << 20)
        sessions = FetchSessions(10, iter(range(1, 10)).__next__)
        quotas = QuotaManagers(QuotaConfig(), QuotaConfig(), self.time)
        auth = AuthHelper()
        self._fetch = Fetch(
            reader, self.replicas, self.metadata_cache, sessions, self.time, Idle(), auth, quotas, lambda *_: None
        )

    def _make(self, folder: Path, index: int) -> Replica:
        disk = OsDisk()
        disk.make_directory(str(folder))
        request = LoadRequest(
            config=self._config,
            clean=True,
            start_offset=0,
            recovery_point=0,
            cleaned_to=-1,
            gaps_are_losses=True,
            now_ms=NOW_MS,
        )
        log = Log.open(Folder(disk, str(folder)), (TOPIC, index), TOPIC_ID, request)
        machine = PartitionMachine(0, high_watermark=0, local_end=0)
        replica = Replica(log, machine, self.time, self._worker, Idle(), lambda _: None)
        self.replicas.add(replica)
        replica.lead(LeaderAndIsr(0, 1, (0, 1), (0, 1)))
        return replica

    def append(self, index: int, done: Callable[[ErrorCode], None] = lambda code: None) -> None:
        """One record of the coordinator."""
        self.coordinator.append(index, [ENTRY], done)

    def fetch(self, *offsets: int, replica_id: int = 1, isolation_level: int = 0) -> Call:
        """A fetch of the partitions from 0 on; without session, and answered after WAIT_MS at the latest."""
        state = m.FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=1)
        partitions = [
            m.FetchRequest.FetchPartition(
                partition=index, current_leader_epoch=1, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            for index, offset in enumerate(offsets)
        ]
        request = m.FetchRequest(
            replica_state=state,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=[m.FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=partitions)],
        )
        call = Call(17)
        response = self._fetch.handle(call, request)  # type: ignore[arg-type]
        if response is not None:
            call.reply(response)
        return call


def test_a_coordinator_appends_at_once_to_the_only_replica(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    assert not leader.coordinator.append_at_once(0, [ENTRY]), "another replica is in sync"
    assert leader.logs[0].log.end_offset == 0
    for replica, config, at_once in (
        (leader.logs[0], LogConfig(), True),
        (leader.logs[1], LogConfig(flush_messages=1), False),
        (leader.logs[1], LogConfig(compression_type="zstd"), False),
        (leader.logs[1], LogConfig(message_timestamp_type="LogAppendTime"), False),
        (leader.logs[1], LogConfig(max_message_bytes=60), False),
        (leader.logs[1], LogConfig(segment_bytes=60), False),
    ):
        replica.lead(LeaderAndIsr(0, 2, (0,), (0,)))
        replica.log.config = config
        assert leader.coordinator.append_at_once(replica.partition, [ENTRY]) is at_once
        assert replica.log.end_offset == replica.machine.high_watermark == at_once
    outcomes: list[ErrorCode] = []
    leader.append(0, outcomes.append)
    assert outcomes == [ErrorCode.NONE]
    assert [(record.key, record.value) for _, record in leader.coordinator.read_all(0)] == [ENTRY, ENTRY]
    assert not leader.coordinator.append_at_once(2, [ENTRY]), "this broker has no such replica"


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def sizes(call: Call) -> list[int]:
    """The bytes of each partition in the only response."""
    (response,) = call.replies
    return [len(each.records or b"") for topic in response.responses for each in topic.partitions]


def test_a_follower_receives_at_once_the_append_that_its_own_position_triggered(leader: Leader) -> None:
    leader.append(0, lambda code: leader.append(0))
    call = leader.fetch(1)
    assert leader.logs[0].log.end_offset == 2
    assert sizes(call)[0] > 0


def test_a_follower_receives_at_once_an_append_to_a_partition_that_was_read_before(leader: Leader) -> None:
    leader.append(1, lambda code: leader.append(0))
    call = leader.fetch(0, 1)
    first, second = sizes(call)
    assert (first > 0, second) == (True, 0)


def test_a_follower_is_notified_of_a_partition_that_went_offline_while_the_next_was_read(leader: Leader) -> None:
    leader.append(1, lambda code: leader.logs[0].retire())
    (response,) = leader.fetch(0, 1).replies
    assert response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("replica_id", [-1, 1])
def test_a_fetch_that_completes_nothing_reads_each_partition_once_and_waits(leader: Leader, replica_id: int) -> None:
    leader.append(0)
    leader.fetch(1, 0)
    with mock.patch.object(Log, "read", autospec=True, side_effect=Log.read) as read:
        call = leader.fetch(1, 0, replica_id=replica_id)
    assert (read.call_count, call.replies) == (2, [])
    leader.time.advance(WAIT_MS - 1)
    assert not call.replies
    leader.time.advance(1)
    assert sizes(call) == [0, 0]


def test_a_fetch_that_a_nested_append_has_answered_is_not_answered_again(leader: Leader) -> None:
    """The append of the coordinator is registered first, so its completion answers the fetch, which is next in turn."""
    outcomes: list[ErrorCode] = []

    def next_append(code: ErrorCode) -> None:
        outcomes.append(code)
        leader.append(0)

    leader.append(0, next_append)
    leader.logs[0].machine.remotes[1].end_offset = 1  # the follower has it, and the leader advances at the next call
    waiting = leader.fetch(1, replica_id=-2)
    leader.logs[0].machine.reconsider(0)
    check_and_complete(leader.logs[0])
    assert outcomes == [ErrorCode.NONE]
    assert len(waiting.replies) == 1


def test_a_coordinator_is_notified_once_of_an_append_that_a_nested_append_completed(leader: Leader) -> None:
    outcomes: list[str] = []

    def first_settled(code: ErrorCode) -> None:
        outcomes.append("first")
        leader.append(0, lambda code: outcomes.append("third"))

    leader.append(0, first_settled)
    leader.append(0, lambda code: outcomes.append("second"))
    leader.fetch(2)
    assert sorted(outcomes) == ["first", "second"]
    leader.fetch(3)
    assert sorted(outcomes) == ["first", "second", "third"]


def test_events_before_the_request_waits_complete_an_append(leader: Leader) -> None:
    outcomes: list[ErrorCode] = []
    finished: list[bool] = []
    wait = DelayedAppend(lambda: finished.append(True))
    for replica in leader.logs:
        end_offset = replica.write(batch(b"marker"), NOW_MS)
        wait.add(replica, end_offset, outcomes.append)
    for replica in leader.logs:
        replica.retire()  # as when the disk fails under the last append of the request
    wait.start(leader.purgatory, 10_000)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert finished == [True]
    assert leader.time.waiting == 0


def test_a_request_completes_after_the_outcome_of_each_append_although_outcomes_nest(leader: Leader) -> None:
    """The first outcome appends to the other partition, which settles the last append of the request."""
    events: list[str] = []

    def first(code: ErrorCode) -> None:
        events.append("first")
        leader.logs[1].retire()

    operation = DelayedAppend(lambda: events.append("done"))
    outcomes = (first, lambda code: events.append("second"), lambda code: events.append("third"))
    for index, outcome in zip((0, 0, 1), outcomes, strict=True):
        operation.add(leader.logs[index], leader.logs[index].write(batch(b"marker"), NOW_MS), outcome)
    operation.start(leader.purgatory, 10_000)
    leader.logs[0].retire()
    assert events == ["first", "third", "second", "done"]
    assert leader.time.waiting == 0


class Saboteur(DelayedOperation[Replica]):
    """Takes another partition offline when the one that it watches moves for the first time."""

    def __init__(self, victim: Replica) -> None:
        super().__init__()
        self._victim = victim

    def try_complete(self, replica: Replica) -> None:
        self.force_complete()

    def on_complete(self) -> None:
        self._victim.retire()


def test_a_deletion_is_answered_for_a_partition_that_went_offline_before_the_request_waits(leader: Leader) -> None:
    for index in range(2):
        leader.append(index)
    leader.fetch(1, 1)
    Saboteur(leader.logs[0]).watch([leader.logs[1]])
    call = Call(2)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic
    offsets = [m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1) for index in range(2)]
    request = m.DeleteRecordsRequest(topics=[topic(name=TOPIC, partitions=offsets)], timeout_ms=10_000)
    handler = DeleteRecords(leader.replicas, leader.metadata_cache, leader.purgatory, AuthHelper())
    assert handler.handle(call, request) is None  # type: ignore[arg-type]
    leader.logs[1].retire()
    ((first, second),) = [[each.error_code for each in topic.partitions] for topic in call.replies[0].topics]
    assert (first, second) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert leader.time.waiting == 0


class HeldWorker:
    """Blocking work that runs on demand of the test."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.held.append((work, done))

    def finish(self) -> None:
        work, done = self.held.pop(0)
        work()
        done(None)


def test_followers_faster_than_the_leaders_fsync_count_at_its_end(tmp_path: Path) -> None:
    worker = HeldWorker()
    leader = Leader(tmp_path, LogConfig(flush_messages=1), worker)
    outcomes: list[ErrorCode] = []
    leader.append(0, outcomes.append)
    leader.append(0, outcomes.append)  # which the next fsync covers
    leader.fetch(2)
    assert outcomes == []
    worker.finish()
    assert (outcomes, leader.logs[0].machine.high_watermark) == ([ErrorCode.NONE], 1)
    worker.finish()
    assert (outcomes, leader.logs[0].machine.high_watermark) == ([ErrorCode.NONE] * 2, 2)


async def test_a_write_is_answered_when_the_next_write_of_its_request_takes_the_disk_offline(tmp_path: Path) -> None:
    """The first partition waits for its fsync, and the second fails before the request is registered with the first."""
    disk = Disk()
    async with running_broker(two(tmp_path), disk=disk) as broker:
        client = await Client.connect(broker.port)
        _, (first, second) = await spread(client, tmp_path, **{"flush.messages": "1"})
        disk.place, disk.write_error = f"/d1/t-{second}/", errno.EIO
        request = produce_request("t", batch(b"v"), partition=first, timeout_ms=1_000_000)
        request.topic_data[0].partition_data += (
            produce_request("t", batch(b"v"), partition=second).topic_data[0].partition_data
        )
        answer = await client.ask(request, 12)
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        client.close()


async def test_markers_are_answered_when_the_next_marker_takes_the_disk_offline(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(two(tmp_path), {"request.timeout.ms": "1000000"}, disk=disk) as broker:
        client = await Client.connect(broker.port)
        _, (first, second) = await spread(client, tmp_path, **{"flush.messages": "1"})
        disk.place, disk.write_error = f"/d1/t-{second}/", errno.EIO
        answer = await client.ask(markers(1, 0, ("t", first), ("t", second)), 1)
        codes = [each.error_code for topic in answer.markers[0].topics for each in topic.partitions]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        client.close()
