"""Producer id and transactions of one producer (Kafka: TransactionManager).

Without a transactional id there is only the producer id, which is replaced after a batch has failed. With one, calls
that the runtime makes between batches (register, send offsets, commit, abort) wait for the coordinator, up to their
timeout; a repeated call continues where the previous one ended. Partitions are added to the transaction while batches
wait for them.

A failed batch or a rejected request makes the transaction one that can only be aborted (KIP-588); the abort then also
raises the epoch, since sequence numbers are missing (KIP-360). A producer that was fenced is unusable.
"""

from __future__ import annotations

import enum
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.coordinator import GROUP, SOON_S, TRANSACTION, Coordinator, ask
from odradek.streams.clients.errors import described, failure, timed_out
from odradek.streams.clients.network import REQUESTS, ClientNetwork
from odradek.streams.clients.offsets import by_topic

NO_PRODUCER_ID: Final = -1
HIGHEST: Final[Mapping[int, int]] = {
    m.AddPartitionsToTxnRequest.API_KEY: 3,
    m.AddOffsetsToTxnRequest.API_KEY: 3,
    m.TxnOffsetCommitRequest.API_KEY: 3,
    m.EndTxnRequest.API_KEY: 3,
    m.InitProducerIdRequest.API_KEY: 4,
}
"""The versions of transactions without KIP-890, whose epoch stays the same from one to the next."""
BUMPS_SINCE: Final = 3
"""The first version of InitProducerId that raises the epoch of a producer (KIP-360)."""
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
FATAL: Final = FENCED | {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
}
_AGAIN_S: Final = 0.1


class TransactionStatus(enum.Enum):
    """Where a transactional producer is."""

    NEW = enum.auto()
    READY = enum.auto()
    OPEN = enum.auto()
    ABORTABLE = enum.auto()
    FATAL = enum.auto()


class ProducerIdentity:
    """The producer id of a producer without transactions (KIP-98)."""

    transactional_id: None = None

    def __init__(self, network: ClientNetwork, restart: Callable[[], None]) -> None:
        """`restart` is called with each new producer id."""
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.restarting = True
        self.fatal: KafkaError | None = None
        """The error that makes the producer unusable, or None."""
        self._network = network
        self._restart = restart
        self._in_flight = False
        self._again_s = 0.0

    def may_send(self, place: TopicPartition) -> bool:
        """Always, with a producer id."""
        return True

    def failed(self, code: int, text: str) -> None:
        """Sequence numbers are missing: the next batches need a new producer id."""
        self.restarting = True

    def drive(self, in_flight: bool) -> None:
        """Request a producer id where one is needed and no batch is in flight."""
        now = time.monotonic()
        if not self.restarting or in_flight or self._in_flight or now < self._again_s:
            return
        channel = (self._network.any_node(), REQUESTS)
        if self._network.ready(channel):
            self._in_flight = True
            request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            self._network.send(channel, request, self._receive, highest=HIGHEST[request.API_KEY])

    def _receive(self, response: Any, error: Exception | None) -> None:
        self._in_flight = False
        self._again_s = time.monotonic() + _AGAIN_S
        if error is None and not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.restarting = False
            self._restart()
        elif error is None and response.error_code in FATAL:
            self.fatal = KafkaError(response.error_code, f"no producer id: {described(response.error_code)}", True)

    @property
    def abortable(self) -> None:
        """None: there is no transaction."""


class Transactions:
    """The transactions of one producer."""

    def __init__(
        self, network: ClientNetwork, transactional_id: str, timeout_ms: int, restart: Callable[[], None]
    ) -> None:
        """`timeout_ms` is after how long the coordinator aborts a transaction; `restart` is called with each new
        producer id or epoch.
        """
        self.transactional_id = transactional_id
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.status = TransactionStatus.NEW
        self._network = network
        self._timeout_ms = timeout_ms
        self._restart = restart
        self._coordinator = Coordinator(network, transactional_id, TRANSACTION)
        self._groups: dict[str, Coordinator] = {}
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._adding = False
        self._again_s = 0.0
        self._begun = False
        """Whether the coordinator may have the transaction."""
        self._bump = False
        """Whether sequence numbers are missing."""
        self._why = (0, "")

    # ---- what the sender asks

    @property
    def restarting(self) -> bool:
        """Whether nothing may be sent."""
        return self.status not in (TransactionStatus.OPEN, TransactionStatus.ABORTABLE)

    def may_send(self, place: TopicPartition) -> bool:
        """Whether the transaction is open and contains the partition; else it is added."""
        if self.status is not TransactionStatus.OPEN:
            return False
        if place in self._added:
            return True
        self._wanted.add(place)
        return False

    def failed(self, code: int, text: str) -> None:
        """A batch of the transaction has failed."""
        self._bump = True
        self._reject(code, text)

    def drive(self, in_flight: bool) -> None:
        """Add the partitions that batches wait for."""
        if (
            not self._wanted
            or self._adding
            or self.status is not TransactionStatus.OPEN
            or time.monotonic() < self._again_s
        ):
            return
        channel = self._coordinator.channel()
        if channel is None:
            return
        adding, self._wanted, self._adding, self._begun = self._wanted, set(), True, True
        kind = m.AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                kind.AddPartitionsToTxnTopic(name=topic, partitions=[place[1] for place in places])
                for topic, places in by_topic(adding).items()
            ],
        )

        def receive(response: Any, error: Exception | None) -> None:
            self._adding = False
            code = ErrorCode.REQUEST_TIMED_OUT if error is not None else _worst_added(response)
            pause_s = self._coordinator.judge(code)
            if error is not None:
                self._coordinator.forget()
            if not code:
                self._added |= adding
            elif pause_s is not None:
                self._again_s = time.monotonic() + pause_s
                self._wanted |= adding
            else:
                self._reject(code, f"adding partitions to the transaction: {described(code)}")

        self._network.send(channel, request, receive, highest=HIGHEST[request.API_KEY])

    # ---- calls of the runtime

    def register(self, deadline: float, step: Callable[[], None]) -> None:
        """Get a producer id, and end the transaction of a predecessor (InitProducerId). Raises KafkaException."""
        self._check_fatal()
        self._init(NO_PRODUCER_ID, -1, deadline, step)

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._check_fatal()
        if self.status is not TransactionStatus.READY:
            raise failure(KafkaError._STATE, f"no transaction can begin in the state {self.status.name}")
        self.status = TransactionStatus.OPEN

    def send_offsets(self, offsets: Iterable[Any], metadata: bytes, deadline: float, step: Callable[[], None]) -> None:
        """Add offsets of a group to the transaction. Raises KafkaException."""
        self.check_open()
        group, generation, member, instance = read_group_metadata(metadata)
        identity: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        self._begun = True
        add = m.AddOffsetsToTxnRequest(**identity, group_id=group)
        self._call(self._coordinator, add, lambda answer: int(answer.error_code), "adding offsets", deadline, step)
        coordinator = self._groups.setdefault(group, Coordinator(self._network, group, GROUP))
        kind = m.TxnOffsetCommitRequest
        of = {(each.topic, each.partition): each for each in offsets}
        request = kind(
            **identity,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=place[1],
                            committed_offset=of[place].offset,
                            committed_metadata=of[place].metadata,
                        )
                        for place in places
                    ],
                )
                for topic, places in by_topic(of).items()
            ],
        )
        self._call(coordinator, request, _worst_committed, "committing offsets", deadline, step)

    def commit(self, deadline: float, step: Callable[[], None]) -> None:
        """Commit the transaction, whose batches are all acknowledged. Raises KafkaException."""
        self.check_open()
        self._end(True, deadline, step)

    def abort(self, deadline: float, step: Callable[[], None], *, sent: bool) -> None:
        """Abort the transaction, of which no batch is in flight; `sent` is whether a batch was discarded that had been
        sent. Raises KafkaException.
        """
        self._check_fatal()
        if self.status not in (TransactionStatus.OPEN, TransactionStatus.ABORTABLE):
            return
        self.status = TransactionStatus.ABORTABLE
        self._bump = self._bump or sent
        while self._adding and time.monotonic() < deadline:
            step()
            self._network.poll(SOON_S)
        if self._adding:
            raise timed_out("aborting a transaction")
        self._end(False, deadline, step)

    def check_open(self) -> None:
        """Raises KafkaException where the transaction cannot be committed."""
        self._check_fatal()
        if self.status is TransactionStatus.ABORTABLE:
            raise failure(self._why[0], self._why[1], abort=True)
        if self.status is not TransactionStatus.OPEN:
            raise failure(KafkaError._STATE, f"no transaction is open: {self.status.name}")

    # ---- internals

    def _init(self, producer_id: int, epoch: int, deadline: float, step: Callable[[], None]) -> None:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = self._call(
            self._coordinator, request, lambda answer: int(answer.error_code), "registering", deadline, step
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._bump = self._begun = False
        self.status = TransactionStatus.READY
        self._restart()

    def _end(self, committed: bool, deadline: float, step: Callable[[], None]) -> None:
        if self._begun:
            request = m.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            )
            what = "committing a transaction" if committed else "aborting a transaction"
            self._call(self._coordinator, request, lambda answer: int(answer.error_code), what, deadline, step)
            self._begun = False
        self._added.clear()
        self._wanted.clear()
        if self._bump:
            self._init(self.producer_id, self.epoch, deadline, step)
        self.status = TransactionStatus.READY

    def _call(
        self,
        coordinator: Coordinator,
        request: Any,
        code_of: Callable[[Any], int],
        what: str,
        deadline: float,
        step: Callable[[], None],
    ) -> Any:
        response, code = ask(
            self._network, coordinator, request, code_of, deadline, highest=HIGHEST[request.API_KEY], step=step
        )
        if code == ErrorCode.REQUEST_TIMED_OUT:
            raise timed_out(what)
        if code:
            self._reject(code, f"{what}: {described(code)}")
            self._raise()
        return response

    def _reject(self, code: int, text: str) -> None:
        if self.status is TransactionStatus.FATAL:
            return
        if self.status is not TransactionStatus.ABORTABLE:
            self._why = (code, text)
        if code in FATAL:
            self.status = TransactionStatus.FATAL
            self._why = (KafkaError._FENCED if code in FENCED else code, text)
        elif self.status is TransactionStatus.OPEN:
            self.status = TransactionStatus.ABORTABLE

    def _raise(self) -> NoReturn:
        code, text = self._why
        raise failure(
            code, text, fatal=self.status is TransactionStatus.FATAL, abort=self.status is TransactionStatus.ABORTABLE
        )

    def _check_fatal(self) -> None:
        if self.status is TransactionStatus.FATAL:
            self._raise()

    @property
    def fatal(self) -> KafkaError | None:
        """The error that makes the producer unusable, or None."""
        return KafkaError(self._why[0], self._why[1], True) if self.status is TransactionStatus.FATAL else None

    @property
    def abortable(self) -> KafkaError | None:
        """The error for which the transaction has to be aborted, or None."""
        return KafkaError(self._why[0], self._why[1]) if self.status is TransactionStatus.ABORTABLE else None


def read_group_metadata(data: bytes) -> tuple[str, int, str, str | None]:
    """Group, generation, member id and group.instance.id of `librdkafka_group_metadata`."""
    (generation,) = struct.unpack_from("=i", data, 7)
    group, member, rest = data[11:].split(b"\0", 2)
    instance = None if rest[:1] == b"\1" else rest[1:-1].decode()
    return group.decode(), generation, member.decode(), instance


def _worst_added(response: m.AddPartitionsToTxnResponse) -> int:
    """One error code of all partitions: one that cannot be retried, if there is any, and not that of the others."""
    codes = {
        part.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    }
    return _worst(codes)


def _worst_committed(response: m.TxnOffsetCommitResponse) -> int:
    return _worst({part.error_code for topic in response.topics for part in topic.partitions})


def _worst(codes: set[int]) -> int:
    from odradek.streams.clients.coordinator import RETRIED

    codes -= {0, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return min(codes, key=lambda code: (code in RETRIED, code), default=0)
