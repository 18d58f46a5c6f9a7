"""The operations of transactional clients, for the checker: operations as they end, and the offsets that they
committed.

An `Attempt` is an operation under way. It becomes an `Operation` with its outcome in the `Chronicle` of all clients.
Key k is partition k mod 2 of topic k div 2; the checker calls the key a partition. Values count up for each key.

The last topic is a table: it is compacted, its records have names (their keys, in Kafka's words), and one in five is a
tombstone. Each record has its value's number in a header, for a tombstone has no value.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.support.transactions.checker import Anomaly, Operation, Outcome, Poll, Send
from tests.support.transactions.offsets import Commit, Fetched, offset_anomalies

TABLE: Final = "balances"
TOPICS: Final = ("orders", "bills", TABLE)
KEYS: Final = 2 * len(TOPICS)
NAMES: Final = 7
DELETED: Final = 5
"""One in this many values of a table is a tombstone. Names and tombstones go round side by side, as 5 and 7 have no
common divisor.
"""
VALUE_HEADER: Final = "value"


class Chronicle:
    """The operations of all clients with their outcomes, and the offsets committed; any thread may add to it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ticks = 0
        self._values: Counter[int] = Counter()
        self._operations: list[Operation] = []
        self._commits: list[Commit] = []
        self._fetches: list[Fetched] = []

    def tick(self) -> int:
        """The next moment of the clock that all operations share."""
        with self._changed:
            self._ticks += 1
            return self._ticks

    def next_value(self, key: int) -> int:
        with self._changed:
            self._values[key] += 1
            return self._values[key]

    def add(self, operation: Operation, commits: Mapping[int, int]) -> None:
        """An operation has ended; `commits` are the offsets by key that were part of it, if it was a transaction.

        A transaction whose commit was never requested will not commit, even if the rest of its outcome is unknown.
        """
        began = operation.commit_began
        outcome = Outcome.FAIL if began is None else operation.outcome
        with self._changed:
            self._operations.append(operation)
            for key, offset in commits.items():
                begin = operation.began if began is None else began
                commit = Commit(operation.client, key, offset, outcome, begin, operation.ended, transaction=True)
                self._commits.append(commit)
            self._changed.notify_all()

    def add_commit(self, group: str, commits: Mapping[int, int], outcome: Outcome, began: int) -> None:
        """A commit of these offsets by key, outside of transactions, has ended."""
        ended = self.tick()
        with self._changed:
            self._commits += [Commit(group, key, offset, outcome, began, ended) for key, offset in commits.items()]

    def add_fetched(self, group: str, offsets: Mapping[int, int], began: int) -> None:
        """A fetch returned these offsets of a group by key."""
        ended = self.tick()
        with self._changed:
            self._fetches += [Fetched(group, key, offset, began, ended) for key, offset in offsets.items()]

    @property
    def operations(self) -> list[Operation]:
        with self._changed:
            return list(self._operations)

    def await_transactions(self, clients: Sequence[str], count: int, timeout_s: float) -> None:
        """Wait until each of these clients has committed `count` transactions that began after now.

        Raises TimeoutError.
        """
        with self._changed:
            begin, now = len(self._operations), self._ticks

            def missing() -> list[str]:
                done = Counter(
                    each.client
                    for each in self._operations[begin:]
                    if each.transaction and each.outcome is Outcome.OK and each.began > now
                )
                return [client for client in clients if done[client] < count]

            if not self._changed.wait_for(lambda: not missing(), timeout_s):
                raise TimeoutError(f"not {count} transactions of {missing()} were committed within {timeout_s:g} s")

    def offset_anomalies(self) -> list[Anomaly]:
        """The contradictions in the groups' offsets."""
        with self._changed:
            return offset_anomalies(self._commits, self._fetches)

    def shown_offsets(self) -> str:
        """How many commits had which outcome, and how many offsets were fetched."""
        with self._changed:
            kinds = Counter(("" if each.transaction else "plain ") + each.outcome.value for each in self._commits)
            return f"commits {dict(kinds)}, {len(self._fetches)} fetched"


def place_of(key: int) -> tuple[str, int]:
    """Topic and partition."""
    return TOPICS[key // 2], key % 2


def key_of(topic: str | None, partition: int | None) -> int:
    assert topic is not None
    assert partition is not None
    return TOPICS.index(topic) * 2 + partition


def sent(key: int, value: int, offset: int | None = None) -> Send:
    """The value for the checker: in a table with its name, and whether it deletes it."""
    if place_of(key)[0] != TABLE:
        return Send(key, value, offset)
    return Send(key, value, offset, name=value % NAMES, deletes=value % DELETED == 0)


def record_of(message: Message) -> tuple[int, int, int]:
    """Key, offset and value of a record. Raises AssertionError if it differs from the one sent."""
    key, offset = key_of(message.topic(), message.partition()), message.offset()
    assert offset is not None
    headers = message.headers()
    assert headers is not None, f"the record of {key} at {offset} has no header with the number of its value"
    send = sent(key, int(dict(headers)[VALUE_HEADER] or b""))
    expected = _bytes_of(send)
    assert (message.key(), message.value()) == expected, f"{message.key()!r}, {message.value()!r}, not {expected}"
    return key, offset, send.value


def _bytes_of(send: Send) -> tuple[bytes | None, bytes | None]:
    """Key and value of the record."""
    name = None if send.name is None else str(send.name).encode()
    return name, None if send.deletes else str(send.value).encode()


class Attempt:
    """An operation under way."""

    def __init__(self, chronicle: Chronicle, client: str, *, transaction: bool) -> None:
        self._chronicle = chronicle
        self._client = client
        self._transaction = transaction
        self._began = chronicle.tick()
        self._steps: list[tuple[int, int] | Poll] = []
        self._offsets: dict[tuple[int, int], int] = {}
        self._acknowledged = 0
        self.commit_began: int | None = None
        self.first: dict[int, int] = {}
        """For each key the first offset that it received, and the one after its last."""
        self.after: dict[int, int] = {}
        self.commits: dict[int, int] = {}

    def send(self, producer: Producer, key: int) -> None:
        value = self._chronicle.next_value(key)
        self._steps.append((key, value))
        topic, partition = place_of(key)
        name, content = _bytes_of(sent(key, value))
        producer.produce(
            topic,
            content,
            name,
            partition=partition,
            headers=[(VALUE_HEADER, str(value).encode())],
            on_delivery=partial(self._delivered, key, value),
        )

    def poll(self, messages: Sequence[Message], assignment: int) -> None:
        records = [record_of(message) for message in messages]
        for key, offset, _ in records:
            self.first.setdefault(key, offset)
            self.after[key] = offset + 1
        self._steps.append(Poll(tuple(records), assignment))

    def end(self, outcome: Outcome) -> None:
        """The operation is over; add it to the chronicle."""
        steps = tuple(
            step if isinstance(step, Poll) else sent(*step, offset=self._offsets.get(step)) for step in self._steps
        )
        ended = self._chronicle.tick()
        operation = Operation(
            self._client, outcome, steps, self._began, ended, self._transaction, commit_began=self.commit_began
        )
        self._chronicle.add(operation, self.commits)

    @property
    def delivered(self) -> bool:
        """Whether every value was acknowledged."""
        return self._acknowledged == sum(not isinstance(step, Poll) for step in self._steps)

    def _delivered(self, key: int, value: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return
        self._acknowledged += 1
        offset = message.offset()
        if offset is not None and offset >= 0:  # otherwise it is there, and the broker no longer has its offset
            self._offsets[key, value] = offset
