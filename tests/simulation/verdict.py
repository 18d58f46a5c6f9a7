"""The final checks of transactions: the logs are compared with the responses that clients received (P1, T1-T3, G1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from odradek.protocol.batch import read_header, records
from odradek.protocol.topic_partition import TopicPartition

COMMIT: Final = 1
COLONS: Final = 3
"""The parts of a value that was written in a transaction: client, number of the transaction, partition, a random part.
"""


class Fate(Enum):
    """The outcome of a transaction as far as its client has it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """The requests of a client in one transaction."""

    name: str
    fate: Fate = Fate.ABORTED
    """No request to commit was sent: the transaction can only be aborted."""
    values: dict[TopicPartition, dict[bytes, int | None]] = field(default_factory=dict)
    """With the offset of the acknowledgement."""
    offset: int | None = None
    """Offsets of the group, acknowledged in this transaction."""
    ending_s: float = inf
    """When the client sent the request to end it."""

    @property
    def has_begun(self) -> bool:
        """Whether a request of it was acknowledged."""
        return self.offset is not None or any(
            offset is not None for values in self.values.values() for offset in values.values()
        )


@dataclass
class TransactionHistory:
    """All transactions, and the records that consumers of committed records received."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    read: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    groups: dict[str, list[Transaction]] = field(default_factory=dict)
    """The transactions that committed offsets of a group, in order."""
    deletions: dict[str, list[float]] = field(default_factory=dict)
    """When deletions of a group were answered, infinity where there was no response."""
    zombies: int = 0
    coordinator: Callable[[], tuple[int, int]] = lambda: (-1, -1)
    """Returns the leader of the partition of __transaction_state, and its leader epoch."""
    has_old_metadata: Callable[[str, TopicPartition], bool] = lambda name, partition: False
    """Whether a broker does not have the metadata that another one leads a partition, or coordinates transactions."""

    def judge_group(self, group: str, offset: int) -> None:
        """The offset that a group has when no transaction of it is open. Raises AssertionError."""
        possible, since_s = [-1], -inf
        for transaction in self.groups[group]:
            if transaction.fate is Fate.COMMITTED and transaction.offset is not None:
                possible, since_s = [transaction.offset], transaction.ending_s
            elif transaction.fate is not Fate.ABORTED:  # or the commit of the offset was not answered
                possible.append(int(transaction.name.rpartition(":")[2]))
        if any(deleted_s > since_s for deleted_s in self.deletions.get(group, ())):
            possible.append(-1)
        assert offset in possible, f"G1: group {group} has the offset {offset}, it can only be one of {possible}"


def batches(data: bytes | bytearray) -> Iterable[int]:
    """Where the whole batches in `data` begin."""
    place = 0
    while place + 12 <= len(data):
        size = int.from_bytes(data[place + 8 : place + 12], "big") + 12
        if place + size > len(data):
            return
        yield place
        place += size


class Verdict:
    """Compares the logs in the end with the responses that clients received."""

    def __init__(self, history: TransactionHistory) -> None:
        self._history = history
        self._fates: dict[str, dict[bool, TopicPartition]] = {}
        self._committed: dict[TopicPartition, dict[bytes, int]] = {}

    def read(self, partition: TopicPartition, data: bytes) -> None:
        """One partition's whole log. Raises AssertionError."""
        batches_seen: set[tuple[int, int, int]] = set()
        epochs: dict[int, int] = {}
        running: dict[int, list[tuple[bytes, int]]] = {}
        committed = self._committed.setdefault(partition, {})
        for place in batches(data):
            header = read_header(data, place)
            if header.producer_id < 0:
                continue
            before = epochs.get(header.producer_id, -1)
            assert header.producer_epoch >= before, (
                f"T3: {partition} has epoch {header.producer_epoch} of producer {header.producer_id} after {before}"
            )
            epochs[header.producer_id] = header.producer_epoch
            if header.is_control:
                (marker,) = records(memoryview(data), place)
                self._decide(partition, running.pop(header.producer_id, []), marker.key or b"", committed)
                continue
            batch = (header.producer_id, header.producer_epoch, header.base_sequence)
            assert batch not in batches_seen, f"P1: {partition} has {batch} twice, again at {header.base_offset}"
            batches_seen.add(batch)
            if header.is_transactional:
                values = running.setdefault(header.producer_id, [])
                values += [(record.value or b"", record.offset) for record in records(memoryview(data), place)]
        assert not running, f"L1: {partition} has transactions of {list(running)} that no marker has ended"

    def _decide(
        self, partition: TopicPartition, values: list[tuple[bytes, int]], key: bytes, committed: dict[bytes, int]
    ) -> None:
        commits = int.from_bytes(key[2:4], "big") == COMMIT
        names = {value.rpartition(b":")[0].rpartition(b":")[0].decode() for value, _ in values}
        assert len(names) <= 1, f"T1: one marker of {partition} ends {sorted(names)}"
        for name in names:
            self._fates.setdefault(name, {})[commits] = partition
        if commits:
            committed.update(values)

    def judge(self) -> None:
        """Once every partition has been read. Raises AssertionError."""
        for name, transaction in self._history.transactions.items():
            fates = self._fates.get(name, {})
            assert len(fates) <= 1, f"T1: {name} is committed in {fates.get(True)} and aborted in {fates.get(False)}"
            if transaction.fate is Fate.ABORTED:
                assert True not in fates, f"T1: {name} was never to be committed, in {fates.get(True)} it is"
            for partition, values in transaction.values.items():
                there = self._committed.get(partition, {})
                for value, offset in values.items():
                    if transaction.fate is Fate.COMMITTED and offset is not None:
                        assert there.get(value) == offset, (
                            f"T1: {name} is committed, its value at {offset} of {partition} is at {there.get(value)}"
                        )
        for partition, seen in self._history.read.items():
            known = {offset: value for value, offset in self._committed.get(partition, {}).items()}
            for offset, value in seen.items():
                if value.count(b":") == COLONS:
                    assert known.get(offset) == value, f"T2: {value!r} at {offset} of {partition} was read uncommitted"
