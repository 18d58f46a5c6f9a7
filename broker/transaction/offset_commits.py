"""Appends offsets of transactions to `__consumer_offsets` (KIP-98, KIP-447, KIP-890).

The partition of a group is a partition of the transaction like any other: the transaction coordinator verifies that it
is in the transaction, or adds it, before the first offsets are appended, and a marker ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from odradek.broker.coordinator.log import await_append
from odradek.broker.coordinator.lookup import CODECS
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.state.topics import GROUP_OFFSETS
from odradek.broker.replication.partition import ACKS_ALL, Replica, Replicas
from odradek.broker.replication.transaction_verification import (
    ProducerTransaction,
    Support,
    TransactionVerification,
    Verdicts,
)
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.state.effects import KeyValue
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import later
from odradek.protocol.batch import NO_SEQUENCE, Record, build
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.producers import OPEN, WAIVED, Verification


class Permit(NamedTuple):
    """The permission to append offsets of a transaction now; it must not be stored."""

    producer_id: int
    producer_epoch: int
    verification: Verification


OnPermit = Callable[[ErrorCode, Permit | None], None]


class TransactionalOffsets:
    """Appends offsets of transactions to the partitions of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        settings: GroupSettings,
        replicas: Replicas,
        verification: TransactionVerification,
        clock: Clock,
        purgatory: DelayedOperationPurgatory,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._verification = verification
        self._clock = clock
        self._purgatory = purgatory

    def request_permit(
        self, partition: int, transaction: ProducerTransaction, support: Support, done: OnPermit
    ) -> None:
        """Verify the transaction; `done` is called with a permit or with an error, perhaps at once."""
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        replica = self._replicas.get(GROUP_OFFSETS, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            return
        if not self._verification.must_verify(support):
            done(ErrorCode.NONE, Permit(producer_id, epoch, WAIVED))
            return
        try:
            verification = replica.begin_verification(producer_id, epoch, NO_SEQUENCE, support is Support.ADDS)
        except KafkaError as refused:
            done(refused.code, None)
            return
        permit = Permit(producer_id, epoch, verification)
        if verification is OPEN:
            done(ErrorCode.NONE, permit)
            return
        # The log checks the verification once more, so the offsets may be appended a turn after the answer.
        notified = later(partial(_notified, (GROUP_OFFSETS, partition), permit, done))
        self._verification.verify(transaction, [(GROUP_OFFSETS, partition)], support, notified)

    def append(
        self, partition: int, entries: list[KeyValue], permit: Permit, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append one batch; `done` is called with each of its outcomes (see `coordinator.state.pending_writes`)."""
        replica = self._replicas.get(GROUP_OFFSETS, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            end_offset = self._write(replica, entries, permit)
        except KafkaError as refused:
            done(refused.code)
            return
        timeout_ms = self._settings.offsets_commit_timeout_ms
        await_append(replica, end_offset, ACKS_ALL, done, self._purgatory, timeout_ms)

    def append_again(self, partition: int, producer_id: int, entries: list[KeyValue]) -> None:
        """Append offsets of the producer's open transaction again, if there is one, with one batch for each.

        The commit marker follows at once and waits for the in-sync replicas. Raises KafkaError.
        """
        replica = self._replicas.get(GROUP_OFFSETS, partition)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no replica of {GROUP_OFFSETS}-{partition} here")
        producer = replica.log.producers.get(producer_id)
        if producer is not None and producer.transaction_start >= 0:
            for entry in entries:  # each of them was appended in one batch before
                self._write(replica, [entry], Permit(producer_id, producer.epoch, OPEN))

    def _write(self, replica: Replica, entries: list[KeyValue], permit: Permit) -> int:
        """Append one batch of a transaction; returns its end offset. Raises KafkaError."""
        now_ms = self._clock.now_ms()
        batch = build(
            [Record(offset, now_ms, key, value, []) for offset, (key, value) in enumerate(entries)],
            codec=CODECS[self._settings.offsets_topic_compression_codec],
            producer_id=permit.producer_id,
            producer_epoch=permit.producer_epoch,
            base_sequence=0,  # as Kafka writes them; no sequence numbers are assigned
            transactional=True,
        )
        return replica.write(batch, now_ms, permit.verification)


def _notified(partition: TopicPartition, permit: Permit, done: OnPermit, verdicts: Verdicts) -> None:
    verdict = verdicts[partition]
    done(verdict, None if verdict else permit)
