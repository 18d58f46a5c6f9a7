"""What clients of transactions did, for the checker: operations as they end, and the offsets that they committed.

An `Attempt` is an operation under way. It becomes an `Operation` with its outcome in the `Chronicle` of all clients.
Key k is partition k mod 2 of topic k div 2; the checker calls the key a partition. Values count up for each key.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from tests.cluster.transactions_checker import Anomaly, Operation, Outcome, Poll, Send


class Chronicle:
    """What all clients did: operations with their outcomes, and what they committed; any thread may add to it."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = topics
        self._changed = threading.Condition()
        self._ticks = 0
        self._values: Counter[int] = Counter()
        self._operations: list[Operation] = []
        self._commits: dict[tuple[str, int], list[tuple[Outcome, int]]] = defaultdict(list)

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
        """An operation has ended; `commits` are the offsets by key that were part of it."""
        with self._changed:
            self._operations.append(operation)
            if operation.outcome is not Outcome.FAIL and operation.commit_began is not None:
                for key, offset in commits.items():
                    self._commits[operation.client, key].append((operation.outcome, offset))
            self._changed.notify_all()

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

    def lost_commits(self, client: str, committed: Mapping[int, int]) -> Iterator[Anomaly]:
        """What a group's offsets contradict; a commit whose outcome is not known may stand, until one is known to."""
        for key, offset in committed.items():
            history = self._commits[client, key]
            known = max((at for at, (outcome, _) in enumerate(history) if outcome is Outcome.OK), default=-1)
            allowed = {each for _, each in history[max(known, 0) :]} | (set() if known >= 0 else {-1})
            if offset not in allowed:
                yield Anomaly("lost-commit", f"{client} has {offset} for {key}, and not one of {sorted(allowed)}")

    def place(self, key: int) -> tuple[str, int]:
        return self.topics[key // 2], key % 2

    def key(self, topic: str, partition: int) -> int:
        return self.topics.index(topic) * 2 + partition


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
        """The first offset that it was given of each key; and after: the one after its last."""
        self.after: dict[int, int] = {}
        self.commits: dict[int, int] = {}

    def send(self, producer: Producer, key: int) -> None:
        value = self._chronicle.next_value(key)
        self._steps.append((key, value))
        topic, partition = self._chronicle.place(key)
        told = partial(self._delivered, key, value)
        producer.produce(topic, str(value).encode(), partition=partition, on_delivery=told)

    def poll(self, messages: Sequence[Message], assignment: int) -> None:
        records = []
        for message in messages:
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            key = self._chronicle.key(topic, partition)
            records.append((key, offset, int(value)))
            self.first.setdefault(key, offset)
            self.after[key] = offset + 1
        self._steps.append(Poll(tuple(records), assignment))

    def end(self, outcome: Outcome) -> None:
        """It is over, and known to the checker."""
        steps = tuple(
            step if isinstance(step, Poll) else Send(*step, offset=self._offsets.get(step)) for step in self._steps
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
        if offset is not None and offset >= 0:  # else it is there, and the broker no longer knows where
            self._offsets[key, value] = offset
