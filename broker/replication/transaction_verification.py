"""Transaction verification: verifies partitions with transaction coordinators (Kafka: AddPartitionsToTxnManager).

Before a leader appends the first batch of a transaction in a partition, it verifies with the transaction coordinator
that the partition belongs to the transaction (KIP-890).

One request at a time is in flight to each coordinator; verifications that arrive meanwhile go into the next one.
Producers of transactions version 2 do not add their partitions themselves: for them the verification request adds the
partition as well.

| request of the producer              | support       | the coordinator                              |
|--------------------------------------|---------------|----------------------------------------------|
| Produce 0 to 10, TxnOffsetCommit 0-3 | OLD_ERRORS    | looks up the partition                       |
| Produce 11, TxnOffsetCommit 4        | ALL_ERRORS    | looks up the partition                       |
| Produce 12, TxnOffsetCommit 5        | ADDS          | adds the partition                           |

A producer of version 2 begins its next transaction when the previous one is decided, which may be before all of its
markers are written. The coordinator then returns CONCURRENT_TRANSACTIONS. The leader repeats the request for up to
REPEAT_FOR_MS before it returns that error to the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.metadata.state.topics import TRANSACTION_STATE
from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

REPEAT_MS: Final = 20
REPEAT_FOR_MS: Final = 100

Verdicts = dict[TopicPartition, ErrorCode]
Request = m.AddPartitionsToTxnRequest
Response = m.AddPartitionsToTxnResponse


def coordinator_in(metadata_cache: MetadataCache, transactional_id: str) -> int | None:
    """The broker id of the coordinator of a transactional id, None if it has none."""
    topic = metadata_cache.topics.get(TRANSACTION_STATE)
    if topic is None:
        return None
    leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
    return leader if leader in metadata_cache.brokers else None


class Support(Enum):
    """Error codes and features that the client supports (Kafka: TransactionSupportedOperation)."""

    OLD_ERRORS = "older than TRANSACTION_ABORTABLE"
    ALL_ERRORS = "supports TRANSACTION_ABORTABLE"
    ADDS = "leaves adding the partition to its leader"


class ProducerTransaction(NamedTuple):
    """Transactional id, producer id and producer epoch of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class SendToBroker(Protocol):
    """Sends a request to a broker; one callback is called, never before this returns.

    `InterBrokerClient.send_request` is one.
    """

    def __call__(
        self,
        broker_id: int,
        request: Request,
        on_answer: Callable[[Response], None],
        on_lost: Callable[[PeerLostError], None],
    ) -> None: ...


class _Question(NamedTuple):
    """One caller's partitions."""

    partitions: list[TopicPartition]
    support: Support
    give_up_ms: int
    done: Callable[[Verdicts], None]


class _Entry:
    """The part of a request for one transaction."""

    __slots__ = ("adds", "questions", "transaction")

    def __init__(self, transaction: ProducerTransaction, adds: bool) -> None:
        self.transaction = transaction
        self.adds = adds
        self.questions: list[_Question] = []

    def encode(self) -> Request.AddPartitionsToTxnTransaction:
        topics: dict[str, dict[int, None]] = {}
        for question in self.questions:
            for topic, index in question.partitions:
                topics.setdefault(topic, {})[index] = None
        return Request.AddPartitionsToTxnTransaction(
            transactional_id=self.transaction.transactional_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            verify_only=not self.adds,
            topics=[Request.AddPartitionsToTxnTopic(name=name, partitions=list(each)) for name, each in topics.items()],
        )

    def refuse(self, code: ErrorCode) -> None:
        """Complete all questions with this error."""
        for question in self.questions:
            question.done(dict.fromkeys(question.partitions, code))


class TransactionVerification:
    """Sends verifications to the transaction coordinators (Kafka: AddPartitionsToTxnManager)."""

    def __init__(
        self,
        send_request: SendToBroker,
        coordinator_of: Callable[[str], int | None],
        enabled: Callable[[], bool],
        clock: Clock,
        timers: Timers,
    ) -> None:
        """`coordinator_of` returns the broker id of the coordinator of a transactional id, None if it has none;
        `enabled` returns `transaction.partition.verification.enable`.
        """
        self._send_request = send_request
        self._coordinator_of = coordinator_of
        self._enabled = enabled
        self._clock = clock
        self._timers = timers
        self._waiting: dict[int, dict[str, _Entry]] = {}  # broker id -> transactional id -> next entry
        self._under_way: dict[int, None] = {}

    def must_verify(self, support: Support) -> bool:
        """Whether the first write of a transaction in a partition has to wait for the coordinator."""
        return support is Support.ADDS or self._enabled()

    def verify(
        self,
        transaction: ProducerTransaction,
        partitions: list[TopicPartition],
        support: Support,
        done: Callable[[Verdicts], None],
    ) -> None:
        """Verify that these partitions are in the transaction; `done` receives a code for each, NONE if it is.

        `done` may be called before this returns: COORDINATOR_NOT_AVAILABLE, or INVALID_PRODUCER_EPOCH if a
        verification of the same producer with a later epoch is waiting.
        """
        give_up_ms = self._clock.monotonic_ms() + REPEAT_FOR_MS if support is Support.ADDS else 0
        self._put(transaction, _Question(partitions, support, give_up_ms, done))

    def _put(self, transaction: ProducerTransaction, question: _Question) -> None:
        broker_id = self._coordinator_of(transaction.transactional_id)
        if broker_id is None:
            question.done(dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        waiting = self._waiting.setdefault(broker_id, {})
        adds = question.support is Support.ADDS
        entry = waiting.get(transaction.transactional_id)
        if entry is None or (entry.transaction, entry.adds) != (transaction, adds):
            fresh = _Entry(transaction, adds)
            if entry is not None and transaction.producer_epoch < entry.transaction.producer_epoch:
                question.done(dict.fromkeys(question.partitions, ErrorCode.INVALID_PRODUCER_EPOCH))
                return
            waiting[transaction.transactional_id] = fresh
            if entry is not None:
                fenced = entry.transaction.producer_epoch < transaction.producer_epoch
                entry.refuse(ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION)
            entry = fresh
        entry.questions.append(question)
        self._send(broker_id)

    def _send(self, broker_id: int) -> None:
        if broker_id in self._under_way or not self._waiting.get(broker_id):
            return
        entries = self._waiting.pop(broker_id)
        self._under_way[broker_id] = None
        self._send_request(
            broker_id,
            Request(transactions=[entry.encode() for entry in entries.values()]),
            partial(self._answered, broker_id, entries),
            partial(self._lost, broker_id, entries),
        )

    def _answered(self, broker_id: int, entries: dict[str, _Entry], response: Response) -> None:
        del self._under_way[broker_id]
        refusal = ErrorCode(response.error_code)
        if refusal is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            refusal = ErrorCode.INVALID_TXN_STATE  # the client cannot handle CLUSTER_AUTHORIZATION_FAILED
        verdicts = {
            result.transactional_id: dict(_codes(result.topic_results)) for result in response.results_by_transaction
        }
        for transactional_id, entry in entries.items():
            if refusal:
                entry.refuse(refusal)
                continue
            codes = verdicts.get(transactional_id, {})
            for question in entry.questions:
                self._conclude(entry.transaction, question, codes)
        self._send(broker_id)

    def _conclude(self, transaction: ProducerTransaction, question: _Question, codes: Verdicts) -> None:
        # The coordinator has not verified a partition that its response leaves out.
        found = {each: codes.get(each, ErrorCode.NETWORK_EXCEPTION) for each in items_of(question.partitions)}
        if ErrorCode.CONCURRENT_TRANSACTIONS in found.values() and self._clock.monotonic_ms() < question.give_up_ms:
            self._timers.at(self._clock.monotonic_ms() + REPEAT_MS, partial(self._put, transaction, question))
            return
        question.done({each: _for_writers(code, question.support) for each, code in items_of(found.items())})

    def _lost(self, broker_id: int, entries: dict[str, _Entry], _: PeerLostError) -> None:
        del self._under_way[broker_id]
        for entry in entries.values():
            entry.refuse(ErrorCode.NETWORK_EXCEPTION)
        self._send(broker_id)


def _codes(topics: Iterable[Response.AddPartitionsToTxnTopicResult]) -> Iterator[tuple[TopicPartition, ErrorCode]]:
    for topic in topics:
        for result in items_of(topic.results_by_partition):
            yield (topic.name, result.partition_index), ErrorCode(result.partition_error_code)


def _for_writers(code: ErrorCode, support: Support) -> ErrorCode:
    """The coordinator's error code, mapped to a code that the producer supports."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is Support.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code
