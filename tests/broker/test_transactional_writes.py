"""Transactions in the leader of a partition: batches, markers, verification, and readable records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine
from odradek.broker.replication.transaction_verification import TransactionVerification
from odradek.broker.replication.transactional_produce import HeldWrite, Sender, TransactionalWrites
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.validation import Appended
from tests.broker.idle_coordinator import Idle
from tests.broker.transaction_requests import UNVERIFIED, codes, markers, producer, write
from tests.broker.wire import Client, batch, running_broker
from tests.machines.group_harness import VirtualTime
from tests.storage.batches import open_log


async def test_a_marker_is_refused_by_epoch_coordinator_and_place(client: Client) -> None:
    await client.create_topic("t")
    assert codes(await client.ask(markers(7, 3, ("t", 0), coordinator_epoch=5), 1)) == [ErrorCode.NONE]
    assert codes(await client.ask(markers(7, 2, ("t", 0), coordinator_epoch=5), 1)) == [
        ErrorCode.INVALID_PRODUCER_EPOCH
    ]
    assert codes(await client.ask(markers(7, 3, ("t", 0), coordinator_epoch=4), 0)) == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ]
    assert codes(await client.ask(markers(7, 3, ("t", 9), ("nothing", 0)), 1)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# ---- reads of a consumer


async def aborted_and_values(client: Client, offset: int = 0) -> tuple[list[tuple[int, int]], list[bytes], int]:
    """The result of a read_committed fetch from `offset` on: the aborted list, the values, the last stable offset."""
    part = await client.fetch("t", offset, isolation_level=1)
    assert part.error_code == 0
    listed = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    values = [
        record.value or b""
        for position, header in headers(bytes(part.records or b""))
        if not header.is_control
        for record in records(bytes(part.records or b""), position)
    ]
    return listed, values, part.last_stable_offset


async def end_offset(client: Client, isolation_level: int) -> int:
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
    answer = await client.ask(m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic]), 7)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


async def test_read_committed_stops_at_open_transactions_and_names_the_aborted(tmp_path: Path) -> None:
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert (await write(client, batch(b"a0", **producer(1)))).base_offset == 0
        assert (await write(client, batch(b"b0", **producer(2)))).base_offset == 1
        assert (await client.produce("t", batch(b"plain"))).base_offset == 2
        assert await aborted_and_values(client) == ([], [], 0)
        assert [await end_offset(client, level) for level in (0, 1)] == [3, 0]
        assert codes(await client.ask(markers(1, 0, ("t", 0), commit=False), 1)) == [ErrorCode.NONE]
        assert await aborted_and_values(client) == ([(1, 0)], [b"a0"], 1)
        assert codes(await client.ask(markers(2, 0, ("t", 0), commit=True), 1)) == [ErrorCode.NONE]
        assert await aborted_and_values(client) == ([(1, 0)], [b"a0", b"b0", b"plain"], 5)
        assert await aborted_and_values(client, 4) == ([], [], 5), "the transaction ended below"
        assert [await end_offset(client, level) for level in (0, 1)] == [5, 5]
        client.close()


async def test_an_open_transaction_survives_a_restart_and_ends_afterwards(tmp_path: Path) -> None:
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await write(client, batch(b"a0", **producer(1)))
        client.close()
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        assert await aborted_and_values(client) == ([], [], 0)
        assert (await write(client, batch(b"a1", **producer(1, sequence=1)))).base_offset == 1
        assert codes(await client.ask(markers(1, 0, ("t", 0), commit=False), 1)) == [ErrorCode.NONE]
        assert await aborted_and_values(client) == ([(1, 0)], [b"a0", b"a1"], 3)
        client.close()


async def test_producers_are_described_with_their_open_transactions(tmp_path: Path) -> None:
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await client.produce("t", batch(b"plain"))
        await write(client, batch(b"a0", b"a1", **producer(1, epoch=2)))
        await client.ask(markers(2, 5, ("t", 0), coordinator_epoch=8), 1)
        topic = m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1])
        unknown = m.DescribeProducersRequest.TopicRequest(name="nothing", partition_indexes=[0])
        answer = await client.ask(m.DescribeProducersRequest(topics=[topic, unknown]))
        found, beyond = answer.topics[0].partitions
        assert [
            (
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in found.active_producers
        ] == [(1, 2, 1, 1_700_000_000_001, -1, 1), (2, 5, -1, found.active_producers[1].last_timestamp, 8, -1)]
        for refused in (beyond, answer.topics[1].partitions[0]):
            assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.close()


async def test_a_marker_of_transactions_version_2_exceeds_its_transaction_and_may_be_repeated(tmp_path: Path) -> None:
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")

        async def end(epoch: int) -> ErrorCode:
            (code,) = codes(await client.ask(markers(1, epoch, ("t", 0), transaction_version=2), 2))
            return code

        await write(client, batch(b"a", **producer(1, epoch=4)))
        assert await end(4) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(5) is ErrorCode.NONE
        assert await end(5) is ErrorCode.NONE
        assert await end(4) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await write(client, batch(b"b", **producer(1, epoch=4, sequence=1)))).error_code == (
            ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert (await write(client, batch(b"b", **producer(1, epoch=5, sequence=1)))).error_code == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert (await write(client, batch(b"b", **producer(1, epoch=5)))).error_code == ErrorCode.NONE
        client.close()


async def test_a_transactional_batch_needs_a_transactional_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path, UNVERIFIED) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        for _ in range(2):
            refused = await client.produce("t", batch(b"a", **producer(1)), version=11)
            assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await write(client, batch(b"a", **producer(1)))
        client.close()


async def test_without_a_coordinator_no_transaction_begins(client: Client) -> None:
    await client.create_topic("t")
    for version in (3, 11, 12):
        refused = await write(client, batch(b"a", **producer(1)), version=version)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, version
    assert (await client.produce("t", batch(b"a"))).base_offset == 0


# ---- the verification request to the coordinator


class Coordinator:
    """A transaction coordinator that answers on demand of the test."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, m.AddPartitionsToTxnRequest]] = []
        self._owed: list[tuple[Callable[[Any], None], Callable[[PeerLostError], None]]] = []
        self.leader: int | None = 5

    def send_request(
        self,
        broker_id: int,
        request: m.AddPartitionsToTxnRequest,
        on_answer: Callable[[Any], None],
        on_lost: Callable[[PeerLostError], None],
    ) -> None:
        self.requests.append((broker_id, request))
        self._owed.append((on_answer, on_lost))

    @property
    def owes(self) -> int:
        return len(self._owed)

    def answer(self, code: ErrorCode = ErrorCode.NONE, whole: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest request, with the same error for every partition."""
        request = self.requests[len(self.requests) - len(self._owed)][1]
        on_answer, _ = self._owed.pop(0)
        response = m.AddPartitionsToTxnResponse
        on_answer(
            response(
                error_code=whole,
                results_by_transaction=[
                    response.AddPartitionsToTxnResult(
                        transactional_id=each.transactional_id,
                        topic_results=[
                            response.AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    response.AddPartitionsToTxnPartitionResult(
                                        partition_index=index, partition_error_code=code
                                    )
                                    for index in topic.partitions
                                ],
                            )
                            for topic in each.topics
                        ],
                    )
                    for each in request.transactions
                ],
            )
        )

    def vanish(self) -> None:
        self._owed.pop(0)[1](PeerLostError("gone"))


class Leader:
    """A leader of partition t-0 that verifies, and the outcomes of its batches."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = Coordinator()
        self.time = VirtualTime()
        self.enabled = True
        self.verification = TransactionVerification(
            self.coordinator.send_request, lambda _: self.coordinator.leader, lambda: self.enabled, self.time, self.time
        )
        self.writes = TransactionalWrites(self.verification, self.time)
        log = open_log(folder / "topic-0")
        machine = PartitionMachine(0, high_watermark=0, local_end=0)
        self.replica = Replica(log, machine, self.time, Idle(), Idle(), lambda _: None)
        self.replica.lead(LeaderAndIsr(0, 1, (0,), (0,)))
        self.outcomes: list[int | ErrorCode] = []

    def produce(
        self,
        value: bytes,
        *,
        sequence: int = 0,
        producer_id: int = 1,
        epoch: int = 0,
        version: int = 11,
        transactional_id: str = "id",
    ) -> None:
        """One request with one batch; its base offset or its error goes to `outcomes`, in the order of the
        responses.
        """
        data = bytearray(batch(value, **producer(producer_id, epoch, sequence)))
        sender = Sender(transactional_id, version, -1)
        try:
            written = self.writes.write(sender, self.replica, memoryview(data), self.time.now_ms())
        except KafkaError as refused:
            self.outcomes.append(refused.code)
            return
        data[:] = bytes(len(data))  # the receive buffer is used again
        if isinstance(written, HeldWrite):
            self.writes.hold([written], self._received)
        else:
            self.outcomes.append(written.first_offset)

    def _received(self, write: HeldWrite, outcome: Appended | KafkaError) -> None:
        self.outcomes.append(outcome.code if isinstance(outcome, KafkaError) else outcome.first_offset)

    def end(self, *, epoch: int = 0, commit: bool = True) -> None:
        self.replica.end_transaction(1, epoch, 0, commit, self.time.now_ms())


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def test_a_transaction_begins_after_its_coordinator_confirms_it(leader: Leader) -> None:
    leader.produce(b"a")
    assert leader.outcomes == []
    ((broker_id, request),) = leader.coordinator.requests
    (asked,) = request.transactions
    assert broker_id == 5
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.verify_only) == ("id", 1, 0, True)
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("topic", [0])]
    leader.coordinator.answer()
    assert leader.outcomes == [0]
    leader.produce(b"b", sequence=1)
    assert leader.outcomes == [0, 1], "an open transaction is not verified again"
    leader.end()
    leader.produce(b"c", sequence=2)
    assert leader.outcomes == [0, 1]
    leader.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert leader.outcomes == [0, 1, ErrorCode.TRANSACTION_ABORTABLE]
    assert leader.replica.log.end_offset == 3


def test_batches_keep_their_order_behind_one_verification_request(leader: Leader) -> None:
    for sequence in range(4):
        leader.produce(b"%d" % sequence, sequence=sequence)
    assert len(leader.coordinator.requests) == 1
    leader.coordinator.answer()
    assert leader.outcomes == [0, 1, 2, 3]
    part = leader.replica.log.read(0, 1 << 20).records
    data = part if isinstance(part, bytes) else part.read()
    assert [record.value for position, _ in headers(data) for record in records(data, position)] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]


def test_batches_are_written_in_the_order_of_their_arrival(leader: Leader) -> None:
    leader.produce(b"second", sequence=1)
    leader.produce(b"first", sequence=0)
    leader.coordinator.answer()
    assert leader.outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]


def test_a_transaction_that_ends_during_the_verification_stays_ended(leader: Leader) -> None:
    leader.produce(b"late")
    leader.end(commit=False)
    leader.coordinator.answer()
    assert leader.outcomes == [ErrorCode.INVALID_TXN_STATE]
    assert leader.replica.log.first_unstable_offset is None or leader.replica.last_stable_offset == 1
    leader.produce(b"late")
    leader.produce(b"later", sequence=1)
    leader.replica.follow(LeaderAndIsr(1, 2, (0, 1), (0, 1)))
    leader.coordinator.answer()
    assert leader.outcomes[1:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_batch_after_the_marker_does_not_wait_for_a_verification_from_before_it(leader: Leader) -> None:
    """Seed 52 of the simulation: the late copy of a batch began a transaction that no marker ended."""
    leader.produce(b"sent again")
    leader.end(commit=False)
    leader.produce(b"late")
    assert len(leader.coordinator.requests) == 1, "one request is in flight to a coordinator"
    leader.coordinator.answer()
    assert leader.outcomes == [ErrorCode.INVALID_TXN_STATE]
    leader.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert leader.outcomes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
    assert leader.replica.last_stable_offset == leader.replica.log.end_offset == 1


def test_a_producer_of_version_2_leaves_adding_to_the_leader(leader: Leader) -> None:
    leader.enabled = False
    leader.produce(b"a", version=12)
    assert [each.verify_only for each in leader.coordinator.requests[0][1].transactions] == [False]
    leader.coordinator.answer()
    leader.end(epoch=1)
    leader.produce(b"b", version=11, epoch=1)
    assert leader.outcomes == [0, 2], "an old producer is not verified where that is switched off"


def test_a_producer_of_version_2_without_state_begins_at_0(leader: Leader) -> None:
    leader.produce(b"a", version=12, sequence=3)
    leader.coordinator.answer()
    assert leader.outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    leader.produce(b"a", version=11, sequence=3, producer_id=2)
    leader.coordinator.answer()
    assert leader.outcomes[1:] == [0]


def test_concurrent_transactions_are_retried_for_a_moment(leader: Leader) -> None:
    leader.produce(b"a", version=12)
    leader.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert leader.outcomes == []
    leader.time.advance(20)
    leader.coordinator.answer()
    assert leader.outcomes == [0]
    leader.end(epoch=1)
    leader.produce(b"b", version=12, epoch=1)
    while not leader.outcomes[1:]:
        leader.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        leader.time.advance(20)
    assert leader.outcomes[1:] == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(leader.coordinator.requests) == 2 + 6


@pytest.mark.parametrize(
    ("printed", "old", "newer", "version_2"),
    [
        ("COORDINATOR_NOT_AVAILABLE", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("COORDINATOR_LOAD_IN_PROGRESS", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("NOT_COORDINATOR", *["NOT_ENOUGH_REPLICAS"] * 3),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", None),
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("INVALID_TXN_STATE", *["INVALID_TXN_STATE"] * 3),
        ("PRODUCER_FENCED", *["INVALID_PRODUCER_EPOCH"] * 3),
        ("INVALID_PRODUCER_EPOCH", *["INVALID_PRODUCER_EPOCH"] * 3),
        ("INVALID_PRODUCER_ID_MAPPING", *["INVALID_PRODUCER_ID_MAPPING"] * 3),
    ],
)
def test_each_version_receives_errors_that_it_supports(
    leader: Leader, printed: str, old: str, newer: str, version_2: str | None
) -> None:
    for version, expected in ((10, old), (11, newer), (12, version_2)):
        if expected is not None:
            leader.produce(b"a", version=version)
            leader.coordinator.answer(ErrorCode[printed])
            assert leader.outcomes.pop() is ErrorCode[expected]
    assert leader.replica.log.end_offset == 0


def test_a_coordinator_that_is_lost_or_refuses_everything(leader: Leader) -> None:
    leader.produce(b"a")
    leader.coordinator.vanish()
    leader.produce(b"a")
    leader.coordinator.answer(whole=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    leader.coordinator.leader = None
    leader.produce(b"a")
    assert leader.outcomes == [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]


def test_one_request_is_in_flight_and_the_next_carries_everything(leader: Leader) -> None:
    for number in range(4):
        leader.produce(b"a", producer_id=number, transactional_id=f"id{number}")
    assert leader.coordinator.owes == 1
    leader.coordinator.answer()
    asked = [[each.transactional_id for each in request.transactions] for _, request in leader.coordinator.requests]
    assert asked == [["id0"], ["id1", "id2", "id3"]]
    leader.coordinator.answer()
    assert leader.outcomes == [0, 1, 2, 3]


def test_a_waiting_later_epoch_fences_the_earlier_one(leader: Leader) -> None:
    leader.produce(b"other", producer_id=9, transactional_id="other")
    leader.produce(b"old", epoch=3)
    leader.produce(b"new", epoch=4)
    assert leader.outcomes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    leader.produce(b"old", epoch=3)
    assert leader.outcomes == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    leader.coordinator.answer()
    leader.coordinator.answer()
    assert leader.outcomes[2:] == [0, 1]


def test_a_request_with_two_producers_is_refused(leader: Leader) -> None:
    sender = Sender("id", 11, -1)
    held = []
    for producer_id in (1, 2):
        data = memoryview(batch(b"a", **producer(producer_id)))
        held.append(leader.writes.write(sender, leader.replica, data, 0))
    leader.writes.hold([write for write in held if isinstance(write, HeldWrite)], leader._received)
    assert leader.outcomes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert leader.coordinator.requests == []


# ---- offsets in transactions


async def test_offsets_of_a_transaction_exist_when_its_marker_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {**UNVERIFIED, "offsets.topic.num.partitions": "1"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        while (await client.ask(m.FindCoordinatorRequest(key="g"), 3)).error_code:
            pass  # the topic of the coordinator is made after the first request for it

        async def commit(offset: int, version: int, topic: str = "t") -> ErrorCode:
            request = m.TxnOffsetCommitRequest
            partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topics = [request.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])]
            answer = await client.ask(
                request(transactional_id="id", group_id="g", producer_id=1, producer_epoch=0, topics=topics), version
            )
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        async def committed() -> tuple[int, ErrorCode]:
            request = m.OffsetFetchRequest
            topics = [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            groups = [request.OffsetFetchRequestGroup(group_id="g", topics=topics)]
            answer = await client.ask(request(groups=groups, require_stable=True), 8)
            found = answer.groups[0].topics[0].partitions[0]
            return found.committed_offset, ErrorCode(found.error_code)

        assert await commit(1, 3, "nothing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for version in range(5):
            assert await commit(10 + version, version) is ErrorCode.NONE
        assert await committed() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert codes(await client.ask(markers(1, 0, ("__consumer_offsets", 0)), 1)) == [ErrorCode.NONE]
        assert await committed() == (14, ErrorCode.NONE)
        assert await commit(20, 4) is ErrorCode.NONE
        assert codes(await client.ask(markers(1, 0, ("__consumer_offsets", 0), commit=False), 1)) == [ErrorCode.NONE]
        assert await committed() == (14, ErrorCode.NONE)
        assert await commit(21, 5) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "version 5 needs its coordinator"
        assert codes(await client.ask(markers(1, 1, ("__consumer_offsets", 0)), 1)) == [ErrorCode.NONE]
        assert await commit(22, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
        client.close()
