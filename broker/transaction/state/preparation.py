"""Preparation of the next state of a transactional id, for the record that stores it (Kafka: TransactionMetadata).

Each function has the job of a method prepare... of Kafka's TransactionMetadata: it takes the present state and returns
the state to append. Epochs are exhausted at `LAST_EPOCH`; then the id needs another producer id.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.runtime.state.effects import Now
from odradek.broker.transaction.state.records import (
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    Status,
    TransactionMetadata,
)
from odradek.broker.transaction.state.transitions import TABLE, TransactionEvent
from odradek.protocol.topic_partition import TopicPartition


class Owner(NamedTuple):
    """The owner of a transactional id, or the sender of a request: a producer id and its epoch."""

    producer_id: int
    epoch: int


def is_current(metadata: TransactionMetadata, epoch: int) -> bool:
    """Whether this is the owner's epoch.

    The epoch after the last one, for fencing, has no owner, and neither has the one before the first.
    """
    return epoch == metadata.epoch and 0 <= epoch <= LAST_EPOCH


def may_continue(metadata: TransactionMetadata, expected: Owner) -> bool:
    """Whether the producer of an InitProducerId owns the id, or is its previous owner (KIP-360)."""
    return (
        metadata.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
    )


def is_repeated_end(metadata: TransactionMetadata, owner: Owner, *, is_fencing: bool) -> bool:
    """Whether the EndTxn of a producer of version 2 repeats the last one, whose response it did not receive."""
    if has_turned(metadata, owner):
        return True
    return metadata.epoch <= LAST_EPOCH and owner.epoch == metadata.epoch - 1 and not is_fencing


def has_turned(metadata: TransactionMetadata, owner: Owner) -> bool:
    """Whether the last EndTxn of this owner gave it another producer id, with epoch 0."""
    return (owner.producer_id, owner.epoch, metadata.epoch) == (metadata.previous_producer_id, LAST_EPOCH, 0)


def prepare_owner(
    metadata: TransactionMetadata, timeout_ms: int, expected: Owner | None, fresh_id: int, now: Now
) -> TransactionMetadata | None:
    """The state with the next owner; None if the producer has been fenced."""
    empty = metadata._replace(
        status=Status.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NOT_STARTED,
        updated_ms=now.wall_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if metadata.is_exhausted and (expected is None or expected.epoch == metadata.epoch):
        return empty._replace(
            producer_id=fresh_id,
            previous_producer_id=metadata.producer_id,
            epoch=0,
            last_epoch=NO_PRODUCER_EPOCH if expected is None else metadata.epoch,
        )
    bumped = metadata.epoch + 1
    if expected is None:
        return empty._replace(epoch=bumped, last_epoch=NO_PRODUCER_EPOCH)
    if metadata.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return empty._replace(epoch=bumped, last_epoch=metadata.epoch)
    if expected.epoch == metadata.last_epoch:
        return empty  # a repeated request: return the same epoch again
    return None


def prepare_fence(metadata: TransactionMetadata, fresh_id: int, now: Now) -> TransactionMetadata:
    """The abort that fences the owner; the fenced owner may continue from there (KAFKA-19367)."""
    exhausted = metadata.is_exhausted
    turns_to = fresh_id if exhausted and metadata.version >= EPOCH_PER_TRANSACTION else NO_PRODUCER_ID
    fenced = metadata
    if metadata.epoch <= LAST_EPOCH:
        last_epoch = NO_PRODUCER_EPOCH if exhausted and turns_to == NO_PRODUCER_ID else metadata.epoch
        fenced = metadata._replace(epoch=metadata.epoch + 1, last_epoch=last_epoch)
    return fenced._replace(status=Status.PREPARE_ABORT, updated_ms=now.wall_ms, next_producer_id=turns_to)


def prepare_add(
    metadata: TransactionMetadata, wanted: frozenset[TopicPartition], version: int, now: Now
) -> TransactionMetadata:
    """The transaction with more partitions; the first ones begin it."""
    begins = metadata.status is not Status.ONGOING
    return metadata._replace(
        status=Status.ONGOING,
        partitions=wanted if begins else metadata.partitions | wanted,
        started_ms=now.wall_ms if begins else metadata.started_ms,
        updated_ms=now.wall_ms,
        version=version,
    )


def prepare_end(
    metadata: TransactionMetadata, decision: Status, version: int, fresh_id: int, now: Now
) -> TransactionMetadata:
    """The decision; a producer of version 2 gets a new epoch with it."""
    bumps = version >= EPOCH_PER_TRANSACTION
    began = metadata.status is Status.ONGOING
    return metadata._replace(
        status=decision,
        epoch=metadata.epoch + 1 if bumps else metadata.epoch,
        last_epoch=metadata.epoch if bumps else metadata.last_epoch,
        next_producer_id=fresh_id if bumps and metadata.is_exhausted else NO_PRODUCER_ID,
        partitions=metadata.partitions if began else frozenset(),
        started_ms=metadata.started_ms if began else now.wall_ms,
        updated_ms=now.wall_ms,
        version=version,
    )


def prepare_complete(metadata: TransactionMetadata, now: Now) -> TransactionMetadata:
    """The state that follows a decision once every partition has its marker."""
    completed = TABLE[metadata.status, TransactionEvent.MARKERS_WRITTEN].to
    assert completed is not None, f"{metadata.status.label} has no decision to complete"
    after = metadata._replace(
        status=completed, partitions=frozenset(), updated_ms=now.wall_ms, next_producer_id=NO_PRODUCER_ID
    )
    if metadata.next_producer_id != NO_PRODUCER_ID:
        # The epochs are exhausted: the client changes from its last epoch to another producer id with epoch 0.
        after = after._replace(
            producer_id=metadata.next_producer_id, previous_producer_id=metadata.producer_id, epoch=0
        )
    return after
