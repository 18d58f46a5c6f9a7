"""Mistakes that Kafka once made with producers and transactions, each a mutant for the simulation to find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from odradek.broker.composition.partition_state_listener import CoordinatorEvents
from odradek.broker.metadata.state.topics import TRANSACTION_STATE
from odradek.broker.replication.fetch_reader import FetchReading
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.transaction_verification import Support, TransactionVerification
from odradek.broker.runtime.state.effects import Now
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import EPOCH_PER_TRANSACTION, Status
from odradek.broker.transaction.state.transaction import Effects, Transaction, WriteMarkers
from odradek.protocol.batch import Header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage import producers
from odradek.storage.markers import EndTransactionMarker
from odradek.storage.producers import WAIVED, Producer, ProducerState, Verification
from tests.mutants.groups import GROUP_MUTANTS
from tests.mutants.replication import Plant, late_fsync


@contextmanager
def lost_acknowledgement() -> Iterator[None]:
    """The log does not detect a duplicate batch, and writes its retry as well."""

    def duplicate_of(producer: Producer, header: Header) -> None:
        return None

    def check_sequence(producer: Producer, header: Header, offset: int) -> None:
        return None

    with (
        mock.patch.object(Producer, "duplicate_of", duplicate_of),
        mock.patch.object(producers, "_check_sequence", check_sequence),
    ):
        yield


@contextmanager
def kip_360() -> Iterator[None]:
    """A log that takes every producer that begins with sequence 0 for a new one accepts a fenced zombie."""
    real = ProducerState.check

    def check(state: ProducerState, header: Header, *arguments: Any) -> Any:
        producer = state.get(header.producer_id)
        if header.base_sequence == 0 and producer is not None and header.producer_epoch < producer.epoch:
            return None
        return real(state, header, *arguments)

    with mock.patch.object(ProducerState, "check", check), unverified():
        yield


@contextmanager
def kip_890() -> Iterator[None]:
    """An EndTxn that was delayed past its retry ends the next transaction."""
    real = Transaction._check_end

    def check(transaction: Transaction, owner: Owner, commit: bool, version: int) -> ErrorCode | None:
        late = version >= EPOCH_PER_TRANSACTION and owner.epoch == transaction.metadata.epoch - 1
        if late and transaction.metadata.status is Status.ONGOING and not transaction.busy:
            return None
        return real(transaction, owner, commit, version)

    with mock.patch.object(Transaction, "_check_end", check):
        yield


@contextmanager
def unverified() -> Iterator[None]:
    """The leader does not verify that the partition is in the transaction; a late batch begins one that hangs."""

    def must_verify(verification: TransactionVerification, support: Support) -> bool:
        return support is Support.ADDS

    with mock.patch.object(TransactionVerification, "must_verify", must_verify):
        yield


@contextmanager
def kafka_14884() -> Iterator[None]:
    """After the coordinator's confirmation the leader does not check whether a marker has ended the transaction
    meanwhile.
    """
    real = ProducerState._check_verified

    def check_verified(state: ProducerState, header: Header, offset: int, verification: Verification | None) -> None:
        real(state, header, offset, WAIVED if verification is not None else None)

    with mock.patch.object(ProducerState, "_check_verified", check_verified):
        yield


@contextmanager
def kafka_9144() -> Iterator[None]:
    """A log forgets the coordinator epoch of its last marker, and accepts a late one of the coordinator before."""
    real = ProducerState.apply_marker

    def apply_marker(state: ProducerState, header: Header, offset: int, marker: EndTransactionMarker) -> Any:
        aborted = real(state, header, offset, marker)
        producer = state.get(header.producer_id)
        if producer is not None:
            producer.coordinator_epoch = -1
        return aborted

    with mock.patch.object(ProducerState, "apply_marker", apply_marker):
        yield


@contextmanager
def kafka_19999() -> Iterator[None]:
    """A marker whose response was lost is refused when it comes again."""
    real = Replica.end_transaction

    def end(replica: Replica, producer_id: int, epoch: int, *arguments: Any, **options: Any) -> int:
        producer = replica.log.producers.get(producer_id)
        if producer is not None and epoch == producer.epoch and producer.transaction_start < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "this epoch has its marker")
        return real(replica, producer_id, epoch, *arguments, **options)

    with mock.patch.object(Replica, "end_transaction", end):
        yield


@contextmanager
def kafka_9807() -> Iterator[None]:
    """The last stable offset moves with the high watermark, through open transactions."""

    def last_stable_offset(replica: Replica) -> int:
        return replica.machine.high_watermark

    with mock.patch.object(Replica, "last_stable_offset", property(last_stable_offset)):
        yield


@contextmanager
def markers_first() -> Iterator[None]:
    """The markers are sent together with the decision, not after it (T4)."""
    real = Transaction._decide

    def decide(transaction: Transaction, token: Any, commit: bool, version: int, fresh_id: int, now: Now) -> Effects:
        effects = real(transaction, token, commit, version, fresh_id, now)
        metadata = transaction.metadata
        epoch = metadata.epoch + 1 if version >= EPOCH_PER_TRANSACTION else metadata.epoch
        return [*effects, WriteMarkers(Owner(metadata.producer_id, epoch), commit, metadata.partitions)]

    with (
        mock.patch.object(Transaction, "_decide", decide),
        mock.patch("odradek.broker.transaction.coordinator.TransactionCoordinator._awaits", return_value=True),
    ):
        yield


@contextmanager
def kafka_9307() -> Iterator[None]:
    """To begin or end coordinating, a broker reads the registry once more when it has taken its new role already.

    Where the registry cannot be reached at this moment, the control request fails midway: the epoch is stored, the
    repeated control request is ignored, and the coordinator neither loads nor unloads.
    """
    real, led, left = ReplicaManager._leader_and_isr, CoordinatorEvents.led, CoordinatorEvents.left
    postponed: list[Callable[[], None]] = []

    def postpone_led(events: CoordinatorEvents, replica: Replica) -> None:
        if replica.topic == TRANSACTION_STATE:
            postponed.append(partial(led, events, replica))
        else:
            led(events, replica)

    def postpone_left(events: CoordinatorEvents, topic: str, partition: int) -> None:
        if topic == TRANSACTION_STATE:
            postponed.append(partial(left, events, topic, partition))
        else:
            left(events, topic, partition)

    async def leader_and_isr(replica_manager: ReplicaManager, order: Any) -> Any:
        answer = await real(replica_manager, order)
        todo = postponed[:]
        postponed.clear()
        configs: Any = replica_manager._dependencies.configs  # the class behind the protocol reads a single topic, too
        for change in todo:
            await configs.read(TRANSACTION_STATE)
            change()
        return answer

    with (
        mock.patch.object(ReplicaManager, "_leader_and_isr", leader_and_isr),
        mock.patch.object(CoordinatorEvents, "led", postpone_led),
        mock.patch.object(CoordinatorEvents, "left", postpone_left),
    ):
        yield


@contextmanager
def late_registration() -> Iterator[None]:
    """A follower's fetch begins to wait although its own position has completed an append, which led to another.

    The next transaction then waits for replica.fetch.wait.max.ms; a mistake of this broker, not of Kafka's.
    """

    def is_outdated(reading: FetchReading, replicas: Iterable[Replica]) -> bool:
        return False

    with mock.patch.object(FetchReading, "is_outdated", is_outdated):
        yield


TRANSACTION_MUTANTS: dict[str, Plant] = {
    "lost ack": lost_acknowledgement,
    "KIP-360": kip_360,
    "KIP-890": kip_890,
    "KIP-890 unverified": unverified,
    "KAFKA-14884": kafka_14884,
    "KAFKA-9144": kafka_9144,
    "KAFKA-9307": kafka_9307,
    "KAFKA-19999": kafka_19999,
    "KAFKA-9807": kafka_9807,
    "markers first": markers_first,
    "late registration": late_registration,
    "late fsync": late_fsync,
    **GROUP_MUTANTS,
}
