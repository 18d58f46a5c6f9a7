"""Transactional clients of a simulated cluster; `verdict` has the checks of their transactions.

A client runs one transaction after the other: writes to several partitions, sometimes offsets of a group with them,
then a commit or an abort. It gives up at any step, crashes, and comes back under the same transactional id while its
previous instance may go on as a zombie. Some use the protocol of 3.x clients, some that of 4.x (KIP-890). When a batch
has no response for long, the client gives it up and aborts, although the batch may still be on its way; a client of 3.x
then takes another epoch, as Kafka's does (KIP-360): without one, a leader could not distinguish the batch from those of
the next transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final

from odradek.broker.metadata.state.topics import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.protocol import messages as m
from odradek.protocol.batch import build, read_header, records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.clients import BACKOFF_S, Client, LostError
from tests.simulation.verdict import Fate, Transaction, TransactionHistory, batches

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_PARTITION_OF: Final = {GROUP_KEY: (GROUP_OFFSETS, 0), TRANSACTION_KEY: (TRANSACTION_STATE, 0)}
MOST_TRIES: Final = 40
TIMEOUT_MS: Final = 3000
LONGEST_PAUSE_S: Final = 0.6
GIVES_UP: Final = 0.5
"""How often a batch without a response is not sent again."""
DELETES: Final = 0.2
"""How often a group is deleted while offsets of it are in a transaction."""
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""After these errors the same request is sent once more."""
OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""After these errors the transaction, or this instance, is at its end."""


class OverError(Exception):
    """The transaction cannot go on."""


class RejectedError(OverError):
    """A leader or a coordinator has rejected a request of the transaction for good."""


class OldMetadataError(OverError):
    """A broker with old metadata has rejected a request of the transaction for good, as a broker of Kafka does.

    A broker that does not have the metadata that another one leads the partition, or coordinates the transactions,
    decides by its own log and state, or by those of the former coordinator. The transaction has not ended.
    """


@dataclass
class Instance:
    """One instance of a transactional id."""

    producer_id: int
    epoch: int
    replaced: bool = False
    """Whether a later one has begun, so that this one is a zombie."""
    doubtful: bool = False
    """Whether there is a batch with an unknown outcome."""
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    added: set[TopicPartition | str] = field(default_factory=set)


class TransactionalProducer(Client):
    """One transactional id."""

    def begin(self, history: TransactionHistory, *, newest: bool, pauses: Random | None = None) -> None:
        """`newest` is a client of 4.x: writing adds a partition, and each transaction has an epoch of its own.

        Half of the clients that have `pauses` do other work between the steps of a transaction, as they draw it. Most
        late requests arrive within such a transaction; where it has no pauses they arrive between two.
        """
        self._transactions = history
        self._newest = newest
        self._pauses = pauses
        self._pause_s = 0.0 if pauses is None else pauses.choice((0.0, LONGEST_PAUSE_S))
        self._id = f"id-{self.owner.name}"
        self.group = f"group-{self.owner.name}"
        self._coordinators: dict[str, tuple[str, int]] = {}
        self._count = 0
        self._unanswered = 0
        """How many requests to coordinators had no response."""
        self._fences_itself = False
        """Whether a request for an epoch had no response: it may arrive late, and fence this client."""
        history.groups[self.group] = []

    async def run(self, partitions: list[TopicPartition], spawn: Callable[[Any], None]) -> None:
        """Until stopped. `spawn` starts a task for work beside this."""
        history = self._transactions
        instance: Instance | None = None
        zombies: list[Instance] = []
        while not self.stopped:
            if instance is None:
                instance = await self._init()
                for each in zombies if instance is not None else ():
                    each.replaced = True
                continue
            self._count += 1
            transaction = Transaction(f"{self.owner.name}:{self._count}")
            self._transactions.transactions[transaction.name] = transaction
            crashes = self.random.random() < 0.1
            ends = False
            begun = asyncio.get_running_loop().time(), history.coordinator()
            try:
                commit = await self._work(instance, transaction, partitions)
                if not crashes:
                    ends = True
                    await self._end(instance, transaction, commit=commit)
                    if instance.doubtful and not self._newest:
                        instance = await self._init(instance)
            except RejectedError as rejected:
                self._check_own_end(transaction, begun, rejected)
                crashes = True
            except OverError:
                crashes = True
            if crashes:
                # After a request to end the transaction, a zombie could begin another transaction of the same name.
                if (
                    self.random.random() < 0.5
                    and instance is not None
                    and instance.added
                    and not ends
                    and not instance.doubtful
                ):
                    self._transactions.zombies += 1
                    transaction.fate = Fate.UNKNOWN
                    zombies.append(instance)
                    spawn(self._haunt(instance, transaction, partitions))
                instance = None
            await asyncio.sleep(self.random.random() * 0.3)

    def _check_own_end(
        self, transaction: Transaction, begun: tuple[float, tuple[int, int]], rejected: RejectedError
    ) -> None:
        """A request was rejected after others of the transaction had been acknowledged: its end. That is wrong unless
        a newer epoch of this client, or a timeout, has ended it.

        A coordinator elected meanwhile has another clock, and may end the transaction before its client expects that.
        """
        begun_s, coordinator = begun
        lasted_ms = (asyncio.get_running_loop().time() - begun_s) * 1000
        is_same = coordinator == self._transactions.coordinator()
        is_own = is_same and lasted_ms < TIMEOUT_MS and not self._fences_itself
        assert not (is_own and transaction.has_begun), (
            f"T1: {transaction.name} was ended, and not by its client: {rejected}"
        )

    # ---- steps

    async def _init(self, former: Instance | None = None) -> Instance | None:
        request = m.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        if former is not None:
            request.producer_id, request.producer_epoch = former.producer_id, former.epoch
        before = self._unanswered
        try:
            answer = await self._insist(TRANSACTION_KEY, self._id, request, 4, lambda each: [each.error_code])
        finally:
            self._fences_itself |= self._unanswered > before
        return None if answer is None else Instance(answer.producer_id, answer.producer_epoch)

    async def _work(self, instance: Instance, transaction: Transaction, partitions: list[TopicPartition]) -> bool:
        """Some writes; returns whether to commit them."""
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.1:
                return False
            if self.random.random() < 0.2:
                done = await self._commit_offset(instance, transaction)
                if self.random.random() < DELETES:
                    await self._delete_group()
            else:
                done = await self._write(instance, transaction, self.random.choice(partitions))
            if not done:
                return False
            if self._pauses is not None and self._pause_s:
                await asyncio.sleep(self._pauses.random() * self._pause_s)
        return self.random.random() < 0.8

    async def _write(self, instance: Instance, transaction: Transaction, partition: TopicPartition) -> bool:
        if not self._newest and partition not in instance.added:
            topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])
            request = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=instance.producer_id,
                v3_and_below_producer_epoch=instance.epoch,
                v3_and_below_topics=[topic],
            )
            added = await self._insist(TRANSACTION_KEY, self._id, request, 3, _added_codes)
            if added is None:
                return False
        instance.added.add(partition)
        values = [f"{transaction.name}:{partition[1]}:{self.random.getrandbits(40)}".encode() for _ in range(2)]
        notified = transaction.values.setdefault(partition, {})
        notified.update(dict.fromkeys(values))
        sequence = instance.sequences.get(partition, 0)
        batch = build(
            [self.record(number, value) for number, value in enumerate(values)],
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = m.ProduceRequest.PartitionProduceData(index=partition[1], records=batch)
        produce = m.ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=self.random.choice((500, 5000)),
            topic_data=[m.ProduceRequest.TopicProduceData(name=partition[0], partition_data=[data])],
        )
        instance.doubtful = True
        for _ in range(MOST_TRIES):
            code, offset, is_old = await self._produce(partition, produce)
            if code is ErrorCode.NONE:
                instance.doubtful = False
                instance.sequences[partition] = sequence + len(values)
                acknowledged = self.history.acknowledged.setdefault(partition, {})
                for number, value in enumerate(values):
                    notified[value] = acknowledged_at = offset + number
                    assert acknowledged.setdefault(acknowledged_at, value) == value, "one offset, two values"
                    self.history.count += 1
                return True
            if code in OVER:
                raise OldMetadataError(code.name) if is_old else RejectedError(code.name)
            assert code in AGAIN, f"P1: a batch of {transaction.name} with the sequence {sequence}: {code.name}"
            self.forget(partition)
            if code is ErrorCode.REQUEST_TIMED_OUT and self.random.random() < GIVES_UP:
                return False
            await asyncio.sleep(BACKOFF_S)
            if self.stopped:
                return False
        return False

    async def _produce(self, partition: TopicPartition, request: Any) -> tuple[ErrorCode, int, bool]:
        """Error, offset, and whether the metadata of the broker was old before or after the request."""
        has_old_metadata = self._transactions.has_old_metadata
        address = await self.leader(partition)
        is_old = has_old_metadata(address[0], partition)
        try:
            answer = await self.connection.ask(address, request, 12 if self._newest else 11)
        except LostError:
            return ErrorCode.REQUEST_TIMED_OUT, -1, is_old
        notified = answer.responses[0].partition_responses[0]
        is_old = is_old or has_old_metadata(address[0], partition)
        return ErrorCode(notified.error_code), notified.base_offset, is_old

    async def _commit_offset(self, instance: Instance, transaction: Transaction) -> bool:
        if not self._newest:
            add = m.AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=instance.producer_id,
                producer_epoch=instance.epoch,
                group_id=self.group,
            )
            if await self._insist(TRANSACTION_KEY, self._id, add, 4, lambda each: [each.error_code]) is None:
                return False
        instance.added.add(self.group)
        offset = self._count
        commit = m.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self.group,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            topics=[
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        history = self._transactions.groups[self.group]
        if not history or history[-1] is not transaction:
            history.append(transaction)
        answer = await self._insist(
            GROUP_KEY,
            self.group,
            commit,
            5 if self._newest else 4,
            lambda each: [part.error_code for topic in each.topics for part in topic.partitions],
        )
        if answer is None:
            return False
        transaction.offset = offset
        return True

    async def _delete_group(self) -> None:
        """Committed offsets may be gone then; offsets of an open transaction have to stay."""
        address = await self._coordinator(GROUP_KEY, self.group)
        if address is None:
            return
        deletions = self._transactions.deletions.setdefault(self.group, [])
        deletions.append(inf)  # the time of its arrival is unknown
        with contextlib.suppress(LostError):
            await self.connection.ask(address, m.DeleteGroupsRequest(groups_names=[self.group]), 2)
            deletions[-1] = asyncio.get_running_loop().time()

    async def _end(self, instance: Instance, transaction: Transaction, *, commit: bool) -> None:
        if not instance.added:
            return
        transaction.ending_s = asyncio.get_running_loop().time()
        if commit:
            transaction.fate = Fate.UNKNOWN
        was_replaced = instance.replaced
        request = m.EndTxnRequest(
            transactional_id=self._id,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            committed=commit,
        )
        version = 5 if self._newest else 4
        answer = await self._insist(TRANSACTION_KEY, self._id, request, version, lambda each: [each.error_code])
        if answer is None:
            raise OverError("its outcome is unknown")
        assert not (was_replaced and commit), f"T3: a zombie has committed {transaction.name}"
        if commit:
            transaction.fate = Fate.COMMITTED
        instance.added.clear()
        if self._newest:
            assert (answer.producer_id, answer.producer_epoch) != (instance.producer_id, instance.epoch), "no new epoch"
            instance.producer_id, instance.epoch = answer.producer_id, answer.producer_epoch
            instance.sequences.clear()

    async def _haunt(self, instance: Instance, transaction: Transaction, partitions: list[TopicPartition]) -> None:
        """A zombie writes and commits, perhaps after its successor has begun; only then does it have to fail."""
        await asyncio.sleep(self.random.random() * 2)
        with contextlib.suppress(OverError):
            await self._write(instance, transaction, self.random.choice(partitions))
            await self._end(instance, transaction, commit=True)

    # ---- the offset of its group

    @property
    def group_is_there(self) -> bool:
        """Whether an offset was ever to be committed."""
        return bool(self._transactions.groups[self.group])

    async def finish(self, done: Callable[[int], None]) -> None:
        """Initialize the transactional id once more, which only works when no transaction of it is open; then fetch the
        group's offset, -1 if it has none, once it is stable.

        Half of the producers commit one more offset, and delete the group before the transaction ends. (Only now can
        the offsets of a group be compared with the responses that clients received: a broker that does not yet have the
        metadata that another broker coordinates the group returns the old offsets, in Kafka as well.)
        """
        self.stopped = False
        instance = None
        while instance is None:
            instance = await self._init()
        if self.random.random() < 0.5:
            self._count += 1
            last = Transaction(f"{self.owner.name}:{self._count}")
            with contextlib.suppress(OverError):
                if await self._commit_offset(instance, last):
                    await self._delete_group()
                    await self._end(instance, last, commit=True)
        offset = None
        while offset is None:
            offset = await self._group_offset()
        done(offset)

    async def _group_offset(self) -> int | None:
        """The group's offset, -1 if it has none; None where no coordinator returns one."""
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = m.OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self._insist(GROUP_KEY, self.group, request, 8, _fetched_codes)
        return None if answer is None else int(answer.groups[0].topics[0].partitions[0].committed_offset)

    # ---- requests

    async def _insist(
        self, kind: int, key: str, request: Any, version: int, codes: Callable[[Any], Iterable[int]]
    ) -> Any:
        """Send a request to the coordinator until it returns a definite response; None if it never does. Raises
        OverError.
        """
        partition = _PARTITION_OF[kind]
        for _ in range(MOST_TRIES):
            address = await self._coordinator(kind, key)
            answer, is_old = None, False
            if address is not None:
                is_old = self._transactions.has_old_metadata(address[0], partition)
                try:
                    answer = await self.connection.ask(address, request, version)
                except LostError:
                    self._coordinators.pop(key, None)
                    self._unanswered += 1
            if answer is not None:
                found = [ErrorCode(code) for code in codes(answer)]
                if not any(found):
                    return answer
                if any(code in OVER for code in found):
                    assert address is not None
                    is_old = is_old or self._transactions.has_old_metadata(address[0], partition)
                    reason = ", ".join(code.name for code in found)
                    raise OldMetadataError(reason) if is_old else RejectedError(reason)
                assert all(code in AGAIN or not code for code in found), f"{type(request).__name__}: {found}"
                if ErrorCode.CONCURRENT_TRANSACTIONS not in found:
                    self._coordinators.pop(key, None)
            if self.stopped:
                return None
            await asyncio.sleep(BACKOFF_S)
        return None

    async def _coordinator(self, kind: int, key: str) -> tuple[str, int] | None:
        if key not in self._coordinators:
            request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            try:
                found = (await self.connection.ask(self.anybody(), request, 4)).coordinators[0]
            except LostError:
                return None
            if found.error_code:
                return None
            self._coordinators[key] = (found.host, found.port)
        return self._coordinators[key]


def _added_codes(answer: Any) -> list[int]:
    return [
        part.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]


def _fetched_codes(answer: Any) -> list[int]:
    group = answer.groups[0]
    return [group.error_code, *(part.error_code for topic in group.topics for part in topic.partitions)]


class IdempotentProducer(Client):
    """Writes with sequences, and sends a batch with an unknown outcome again until it has a response (P1)."""

    async def run(self, partitions: list[TopicPartition], pause_s: float) -> None:
        producer_id = None
        sequences: dict[TopicPartition, int] = {}
        count = 0
        while not self.stopped:
            await asyncio.sleep(self.random.random() * pause_s)
            if producer_id is None:
                sequences.clear()
                producer_id = await self._producer_id()
                continue
            partition = self.random.choice(partitions)
            count += 1
            value = f"{self.owner.name}-{count}".encode()
            sequence = sequences.get(partition, 0)
            if await self._write(partition, producer_id, sequence, value):
                sequences[partition] = sequence + 1
            else:
                producer_id = None  # the outcome is unknown; its sequence may be taken

    async def _producer_id(self) -> int | None:
        try:
            answer = await self.connection.ask(self.anybody(), m.InitProducerIdRequest(transactional_id=None), 4)
        except LostError:
            return None
        return None if answer.error_code else answer.producer_id

    async def _write(self, partition: TopicPartition, producer_id: int, sequence: int, value: bytes) -> bool:
        batch = build([self.record(0, value)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        data = m.ProduceRequest.PartitionProduceData(index=partition[1], records=batch)
        topic = m.ProduceRequest.TopicProduceData(name=partition[0], partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=500, topic_data=[topic])
        for _ in range(MOST_TRIES):
            try:
                notified = (await self.ask(partition, request)).responses[0].partition_responses[0]
            except LostError:
                code = ErrorCode.REQUEST_TIMED_OUT
            else:
                code = ErrorCode(notified.error_code)
            if code is ErrorCode.NONE:
                acknowledged = self.history.acknowledged.setdefault(partition, {})
                assert acknowledged.setdefault(notified.base_offset, value) == value, "one offset, two values"
                self.history.count += 1
                return True
            assert code in AGAIN, f"P1: a batch of {producer_id} with the sequence {sequence}: {code.name}"
            self.forget(partition)
            await asyncio.sleep(BACKOFF_S)
            if self.stopped:
                break
        return False


class CommittedReader(Client):
    """Reads only committed records, again and again from the start, and fails when they change."""

    async def run(self, partition: TopicPartition, history: TransactionHistory) -> None:
        seen = history.read.setdefault(partition, {})
        position = 0
        while not self.stopped:
            wanted = m.FetchRequest.FetchPartition(
                partition=partition[1], fetch_offset=position, partition_max_bytes=1 << 16
            )
            topic = m.FetchRequest.FetchTopic(topic=partition[0], partitions=[wanted])
            request = m.FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=-1, isolation_level=1, topics=[topic])
            try:
                answer = (await self.ask(partition, request)).responses[0].partitions[0]
            except LostError:
                self.forget(partition)
                continue
            if answer.error_code:
                self.forget(partition)
                await asyncio.sleep(BACKOFF_S)
                continue
            aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()]
            position = _take(bytes(answer.records or b""), aborted, position, seen)
            if self.random.random() < 0.1:
                position = 0


def _take(data: bytes, aborted: list[tuple[int, int]], position: int, seen: dict[int, bytes]) -> int:
    """Skip aborted records, as consumers do; returns the next position."""
    coming, skipped = sorted(aborted), set()
    for place in batches(data):
        header = read_header(data, place)
        while coming and coming[0][0] <= header.last_offset:
            skipped.add(coming.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            for record in records(memoryview(data), place):
                if record.offset >= position:
                    before = seen.setdefault(record.offset, record.value or b"")
                    assert before == record.value, f"R6: {before!r} was read at {record.offset}, now {record.value!r}"
        position = max(position, header.next_offset)
    return position
