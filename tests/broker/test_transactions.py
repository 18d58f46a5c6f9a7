"""The transaction coordinator: a real client over the wire, and the coordinator with its markers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer

from odradek.broker.metadata.cache import BrokerMetadata, MetadataCache, PartitionMetadata, TopicMetadata
from odradek.broker.network.inter_broker_client import InterBrokerClient
from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.markers import Markers, NewMarkers, PendingMarker
from odradek.broker.transaction.next_transaction_queue import DEADLINE_MS, MOST_WAITING
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.settings import TransactionSettings
from odradek.broker.transaction.state.transaction import Outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.wire import Client, running_broker
from tests.machines.group_harness import MemoryLog, VirtualTime

NONE = ErrorCode.NONE
ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
ID = "payments"
TIMEOUT_MS = 60_000
A0: TopicPartition = ("a", 0)
B0: TopicPartition = ("b", 0)


class StateLog(MemoryLog):
    """`__transaction_state` in memory; its records are replicated on demand of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.replicated = True
        self.until_replicated: list[Callable[[], None]] = []

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        if self.replicated:
            done()
        else:
            self.until_replicated.append(done)


class Links:
    """Brokers that answer WriteTxnMarkers on demand of the test."""

    def __init__(self) -> None:
        self.owed: list[tuple[int, m.WriteTxnMarkersRequest, Any, Any]] = []

    def send_request(self, broker_id: int, request: Any, on_answer: Any, on_lost: Any, timeout_ms: int) -> None:
        self.owed.append((broker_id, request, on_answer, on_lost))

    def answer(self, code: ErrorCode = NONE) -> None:
        """Answer the oldest request, with the same error for every partition."""
        _, request, on_answer, _ = self.owed.pop(0)
        made = m.WriteTxnMarkersResponse
        on_answer(
            made(
                markers=[
                    made.WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            made.WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    made.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    def vanish(self) -> None:
        self.owed.pop(0)[3](PeerLostError("gone"))


class Ids:
    """Producer ids, one after the other."""

    def __init__(self) -> None:
        self._next = 1000

    def take(self, done: Callable[[int, ErrorCode], None]) -> None:
        self._next += 1
        done(self._next, NONE)


class Shell:
    """A coordinator that has loaded its one partition, in epoch 7."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.log = StateLog()
        self.metadata_cache = MetadataCache("cluster")
        self.metadata_cache.brokers = {1: BrokerMetadata(1, ())}
        self.settings = TransactionSettings(transaction_state_log_num_partitions=1)
        self.ids = Ids()
        for topic in ("a", "b"):
            self.lead(topic, 1)
        self.start()

    def lead(self, topic: str, leader: int) -> None:
        partition = PartitionMetadata(0, leader, 0, (1, 2), (1, 2))
        self.metadata_cache.put_topics([TopicMetadata(topic, topic.encode() * 16, False, (partition,))])

    def start(self, epoch: int = 7) -> None:
        """A coordinator begins with the state in its log."""
        self.links = Links()
        self.coordinator = TransactionCoordinator(
            self.settings, self.time, self.time, self.ids, self.log, self.new_markers()
        )
        self.coordinator.runtime.load(0, epoch)

    def new_markers(self) -> NewMarkers:
        return partial(
            Markers, cast("InterBrokerClient", self.links), self.metadata_cache, self.time, self.time, 30_000
        )

    def stop(self) -> None:
        self.coordinator.close()

    def init(self, expected: Owner | None = None) -> Outcome:
        received: list[Outcome] = []
        self.coordinator.init(ID, TIMEOUT_MS, expected, received.append)
        (outcome,) = received
        return outcome

    def begin(self, *partitions: TopicPartition) -> Owner:
        owner = self.init().owner
        received: list[Outcome] = []
        self.coordinator.add(ID, owner, partitions, 0, received.append)
        assert [outcome.error for outcome in received] == [NONE]
        return owner

    def end(self, owner: Owner, *, commit: bool = True) -> ErrorCode:
        received: list[Outcome] = []
        self.coordinator.end(ID, owner, commit, 0, received.append)
        (outcome,) = received
        return outcome.error

    @property
    def state(self) -> str:
        metadata = self.coordinator.describe(ID)[1]
        return metadata.status.label if metadata is not None else "unknown"


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_a_decision_goes_to_every_leader_and_is_then_complete(shell: Shell) -> None:
    shell.lead("b", 2)
    owner = shell.begin(A0, B0)
    assert shell.end(owner) is NONE
    shell.time.advance(1)
    assert sorted(each[0] for each in shell.links.owed) == [1, 2]
    for _, request, _, _ in shell.links.owed:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (*owner, True)
        assert marker.coordinator_epoch == 7
    shell.links.answer()
    assert shell.state == "PrepareCommit"
    shell.links.answer()
    assert shell.state == "CompleteCommit"


def test_no_marker_is_sent_before_the_decision_is_durable(shell: Shell) -> None:
    owner = shell.begin(A0)
    shell.log.hold = True
    received: list[Outcome] = []
    shell.coordinator.end(ID, owner, True, 0, received.append)
    shell.time.advance(1000)
    assert (received, shell.links.owed) == ([], [])
    shell.log.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    shell.time.advance(1000)
    assert [outcome.error for outcome in received] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (shell.state, shell.links.owed) == ("Ongoing", [])


def test_a_marker_follows_its_leader_until_it_is_written(shell: Shell) -> None:
    owner = shell.begin(A0)
    shell.end(owner, commit=False)
    shell.time.advance(1)
    shell.links.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    shell.lead("a", -1)
    shell.time.advance(1000)
    assert shell.links.owed == [], "it has no leader"
    shell.lead("a", 2)
    shell.time.advance(1000)
    assert [each[0] for each in shell.links.owed] == [2]
    shell.links.vanish()
    shell.time.advance(1000)
    shell.links.answer()
    assert shell.state == "CompleteAbort"


def test_a_partition_without_a_leader_does_not_delay_the_markers_of_others(shell: Shell) -> None:
    shell.lead("a", -1)
    owner = shell.begin(A0)
    shell.end(owner)
    shell.time.advance(1)
    assert shell.links.owed == [], "it has no leader"
    other = Owner(77, 0)
    shell.coordinator.markers.write(PendingMarker("another id", other, True, 7), [B0])
    shell.time.advance(1)
    assert [each[0] for each in shell.links.owed] == [1]
    shell.links.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    shell.lead("a", 2)
    shell.time.advance(1)
    assert [each[0] for each in shell.links.owed] == [2], "the new leader gets it at once"
    shell.links.answer()
    assert shell.state == "CompleteCommit"


def test_a_deleted_partition_needs_no_marker(shell: Shell) -> None:
    owner = shell.begin(A0, B0)
    shell.end(owner)
    shell.time.advance(1)
    shell.metadata_cache.remove_topic("b")
    shell.links.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    shell.metadata_cache.remove_topic("a")
    shell.time.advance(1000)
    assert (shell.links.owed, shell.state) == ([], "CompleteCommit")


def test_a_request_before_the_markers_are_written_waits_for_them(shell: Shell) -> None:
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[Outcome] = []
    for _ in range(2):
        shell.coordinator.add(ID, owner, [B0], 0, received.append)
    shell.time.advance(DEADLINE_MS - 1)
    assert (received, shell.state) == ([], "PrepareCommit")
    shell.links.answer()
    assert [outcome.error for outcome in received] == [NONE, NONE]
    assert shell.state == "Ongoing"
    described = shell.coordinator.describe(ID)[1]
    assert described is not None
    assert described.partitions == {B0}


def test_waiting_requests_are_limited_in_time_and_number(shell: Shell) -> None:
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[Outcome] = []
    for _ in range(MOST_WAITING + 1):
        shell.coordinator.add(ID, owner, [B0], 0, received.append)
    assert [outcome.error for outcome in received] == [ErrorCode.CONCURRENT_TRANSACTIONS]
    shell.time.advance(DEADLINE_MS)
    assert [outcome.error for outcome in received] == [ErrorCode.CONCURRENT_TRANSACTIONS] * (MOST_WAITING + 1)
    assert shell.state == "PrepareCommit"
    shell.links.answer()
    assert shell.state == "CompleteCommit"


def test_early_requests_are_admitted_one_after_the_other(shell: Shell) -> None:
    """The second waits for the record of the first, and gets no CONCURRENT_TRANSACTIONS."""
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[Outcome] = []
    for partition in (A0, B0):
        shell.coordinator.add(ID, owner, [partition], 0, received.append)
    shell.time.advance(1)
    shell.log.hold = True
    shell.links.answer()
    assert received == []
    shell.log.release()
    assert [outcome.error for outcome in received] == [NONE, NONE]
    described = shell.coordinator.describe(ID)[1]
    assert described is not None
    assert described.partitions == {A0, B0}


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_stays_behind_its_early_partitions(shell: Shell, commit: bool) -> None:
    """librdkafka sends EndTxn without the response to AddPartitionsToTxn, and takes INVALID_TXN_STATE as fatal."""
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[tuple[str, ErrorCode]] = []
    shell.coordinator.add(ID, owner, [B0], 0, lambda outcome: received.append(("add", outcome.error)))
    shell.coordinator.end(ID, owner, commit, 0, lambda outcome: received.append(("end", outcome.error)))
    assert received == []
    shell.time.advance(1)
    shell.log.hold = True
    shell.links.answer()
    while len(received) < 2:
        shell.log.release()
    assert received == [("add", NONE), ("end", NONE)]
    shell.log.hold = False
    shell.time.advance(1)
    shell.links.answer()
    assert shell.state == ("CompleteCommit" if commit else "CompleteAbort")


def test_an_early_request_is_admitted_when_the_append_of_another_id_completes_its_record(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[Outcome] = []
    shell.coordinator.add(ID, owner, [B0], 0, received.append)
    shell.time.advance(1)
    shell.log.hold = True
    shell.links.answer()
    append = shell.log.append

    def completing(*arguments: Any) -> None:
        shell.log.hold = False
        shell.log.release()
        append(*arguments)

    monkeypatch.setattr(shell.log, "append", completing)
    shell.coordinator.init("another id", TIMEOUT_MS, None, lambda outcome: None)
    assert [outcome.error for outcome in received] == [NONE]
    assert shell.state == "Ongoing"


def test_a_request_whose_coordinator_moves_returns_not_coordinator(shell: Shell) -> None:
    owner = shell.begin(A0)
    assert shell.end(owner) is NONE
    received: list[Outcome] = []
    shell.coordinator.add(ID, owner, [B0], 0, received.append)
    shell.coordinator.runtime.unload(0)
    assert [outcome.error for outcome in received] == [ErrorCode.NOT_COORDINATOR]


def test_two_markers_of_one_producer_never_share_a_request(shell: Shell) -> None:
    """A response names the producer only: the leader's refusal of the older would count for the newer."""
    written: list[tuple[PendingMarker, TopicPartition]] = []
    older, newer = (PendingMarker(ID, Owner(8, 3), True, epoch) for epoch in (5, 6))
    markers = shell.new_markers()(
        on_written=lambda marker, partition: written.append((marker, partition)),
        is_wanted=lambda marker: marker == newer,
    )
    for marker in (older, newer):
        markers.write(marker, [A0])
    shell.time.advance(1)
    ((_, request, _, _),) = shell.links.owed
    assert [each.coordinator_epoch for each in request.markers] == [5]
    shell.links.answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    shell.time.advance(1000)
    ((_, request, _, _),) = shell.links.owed
    assert [each.coordinator_epoch for each in request.markers] == [6]
    shell.links.answer()
    assert written == [(newer, A0)]
    markers.close()


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_coordinator_leaves_the_transaction_to_the_next(shell: Shell, code: ErrorCode) -> None:
    owner = shell.begin(A0)
    shell.end(owner)
    shell.time.advance(1)
    shell.links.answer(code)
    shell.time.advance(60_000)
    assert (shell.links.owed, shell.state) == ([], "PrepareCommit")


def test_the_next_coordinator_continues_once_the_decision_cannot_be_lost(shell: Shell) -> None:
    owner = shell.begin(A0)
    shell.end(owner)
    shell.stop()
    shell.time.advance(1)
    assert shell.end(owner) is ErrorCode.NOT_COORDINATOR
    shell.log.replicated = False
    shell.start(epoch=8)
    shell.time.advance(1000)
    assert (shell.links.owed, shell.state) == ([], "PrepareCommit")
    assert shell.end(owner) is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.log.until_replicated.pop()()
    shell.time.advance(1)
    assert shell.links.owed[0][1].markers[0].coordinator_epoch == 8
    shell.links.answer()
    assert shell.state == "CompleteCommit"


def test_an_open_transaction_keeps_its_timeout_over_a_failover(shell: Shell) -> None:
    owner = shell.begin(A0)
    shell.time.advance(TIMEOUT_MS - 10)
    shell.stop()
    shell.start(epoch=8)
    shell.coordinator.abort_timed_out()
    assert shell.state == "Ongoing"
    shell.time.advance(11)
    shell.coordinator.abort_timed_out()
    shell.time.advance(1)
    assert shell.state == "PrepareAbort"
    assert shell.end(owner) is ErrorCode.PRODUCER_FENCED
    shell.links.answer()
    assert shell.state == "CompleteAbort"


def test_an_unused_id_expires_and_stays_expired(shell: Shell) -> None:
    shell.init()
    shell.time.advance(shell.settings.transactional_id_expiration_ms - 1)
    shell.coordinator.forget_expired()
    assert shell.state == "Empty"
    shell.time.advance(1)
    shell.coordinator.forget_expired()
    assert shell.state == "unknown"
    shell.stop()
    shell.start(epoch=8)
    assert shell.state == "unknown"


@pytest.mark.slow
async def test_a_client_commits_and_aborts_and_a_consumer_reads_committed_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", ALONE) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        client.close()
        seen = await asyncio.to_thread(_write_and_read, f"127.0.0.1:{broker.port}")
    assert seen == [b"1", b"3"]


def _write_and_read(bootstrap: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": ID})
    producer.init_transactions(20)
    for value, commits in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush(20)
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    options = {"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.subscribe(["t"])
    seen: list[bytes] = []
    while len(seen) < 2:
        message = consumer.poll(20)
        assert message is not None, f"nothing more came after {seen}"
        assert message.error() is None, message.error()
        seen.append(message.value() or b"")
    consumer.close()
    return seen
