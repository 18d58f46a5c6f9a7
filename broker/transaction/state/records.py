"""Records of `__transaction_state` in Kafka's format (Kafka: TransactionLog).

The key is the transactional id; the value is its whole state, so only the last record of an id is valid, and a null
value is a tombstone. Values have version 0, which every release reads, unless the producer uses transactions version 2
(KIP-890): the additional fields for that are tagged fields of version 1.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NOT_STARTED: Final = -1
LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a client gets; one more is reserved for fencing it."""
EPOCH_PER_TRANSACTION: Final = 2
"""The version of transactions from which on each transaction has its own epoch (KIP-890)."""

VERSION: Final = struct.Struct(">h")
KEY_VERSION: Final = 0


class Status(IntEnum):
    """The states of a transactional id; the numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools use."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class TransactionMetadata(NamedTuple):
    """The state of a transactional id. Times are milliseconds since 1970."""

    status: Status
    producer_id: int
    epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED
    updated_ms: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, to detect a repeated InitProducerId (KIP-360). Not in the record."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    version: int = 0
    """The version of transactions that the producer uses."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.epoch >= LAST_EPOCH


def record(transactional_id: str, metadata: TransactionMetadata) -> KeyValue:
    """The record of a state."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(index)
    value_version = 1 if metadata.version >= EPOCH_PER_TRANSACTION else 0
    value = m.TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.status,
        transaction_partitions=None
        if metadata.status is Status.EMPTY
        else [m.TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
        client_transaction_version=metadata.version,
    )
    if value_version == 0:
        value.previous_producer_id = value.next_producer_id = NO_PRODUCER_ID
        value.client_transaction_version = 0
    return key(transactional_id), VERSION.pack(value_version) + value.encode(value_version)


def tombstone(transactional_id: str) -> KeyValue:
    """The tombstone of a transactional id."""
    return key(transactional_id), None


def key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    return VERSION.pack(KEY_VERSION) + m.TransactionLogKey(transactional_id=transactional_id).encode(KEY_VERSION)


def read_key(data: bytes) -> str | None:
    """The transactional id; None for a key of another kind. Raises ProtocolError."""
    if _version("TransactionLogKey", data) != KEY_VERSION:
        return None
    transactional_id: str = m.TransactionLogKey.decode(data, KEY_VERSION, VERSION.size).transactional_id
    return transactional_id


def read_value(data: bytes) -> TransactionMetadata:
    """A state of any version. Raises ProtocolError."""
    version = _version("TransactionLogValue", data)
    if not 0 <= version <= m.TransactionLogValue.MAX_VERSION:
        raise ProtocolError("TransactionLogValue.version", 0, f"version {version} is not known")
    value = m.TransactionLogValue.decode(data, version, VERSION.size)
    try:
        status = Status(value.transaction_status)
    except ValueError:
        raise ProtocolError("TransactionLogValue.status", 0, f"{value.transaction_status} is no state") from None
    partitions = frozenset(
        (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
    )
    return TransactionMetadata(
        status,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        NO_PRODUCER_EPOCH,
        value.previous_producer_id,
        value.next_producer_id,
        max(0, value.client_transaction_version),
    )


def _version(field: str, data: bytes) -> int:
    if len(data) < VERSION.size:
        raise ProtocolError(f"{field}.version", 0, f"{len(data)} bytes where a version of 2 is expected")
    version: int = VERSION.unpack_from(data)[0]
    return version
