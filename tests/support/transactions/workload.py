"""Clients that send, poll and run transactions while faults hit brokers, with a history for the checker.

Each client is a thread with an idempotent producer for single sends, a transactional one, and a read_committed consumer
in a group of its own that starts at the earliest offset. It draws its next operation: a send, a poll, perhaps with a
commit of its offsets, a fetch of its group's committed offsets, or a transaction of up to four sends and polls, with
the offsets of its polls sent with it; one in ten aborts at a step that is drawn. Now and then it assigns or subscribes
anew, and now and then it crashes: its clients are dropped in the middle of any operation, and new ones take over the
transactional id. After an operation that failed, or whose outcome is not known, it reads again from the first offset
that the operation received.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import (
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.support.transactions.checker import Anomaly, Operation, Outcome, Poll, anomalies, versions_of
from tests.support.transactions.chronicle import KEYS, TOPICS, Attempt, Chronicle, key_of, place_of, record_of

MOST_STEPS: Final = 4
ABORT_CHANCE: Final = 0.1
CRASH_CHANCE: Final = 0.02
REASSIGN_CHANCE: Final = 0.04
SUBSCRIBE_CHANCE: Final = 0.5
COMMIT_CHANCE: Final = 0.5
MOST_POLLED: Final = 20
DEADLINE_S: Final = 60.0
CALL_S: Final = 5.0
"""How long a call of a transaction may take before its outcome counts as unknown."""
ABORT_S: Final = 2.0
LOOK_S: Final = 1.0
"""The timeout of a request that gets no response while a coordinator is away."""

CONNECTION: Final[Mapping[str, Any]] = {
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    # librdkafka 2.16 waits for a group's coordinator that died, past every timeout, if nothing else connects to it.
    "enable.sparse.connections": False,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
PRODUCER: Final[Mapping[str, Any]] = {
    **CONNECTION,
    "enable.idempotence": True,
    "linger.ms": 0,
    "request.timeout.ms": 3000,
    "message.timeout.ms": 8000,
    "retry.backoff.ms": 50,
}
CONSUMER: Final[Mapping[str, Any]] = {
    **CONNECTION,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 50,
}
TRANSACTION_TIMEOUT_MS: Final = 8000


class CrashedError(Exception):
    """The client is to be dropped in its present state."""


class Client:
    """One client's life: the operations that it draws, one after the other, until it is stopped."""

    def __init__(self, name: str, address: str, chronicle: Chronicle, chance: random.Random) -> None:
        self.name = name
        self.errors: Counter[str] = Counter()
        """The errors that it received, for the log."""
        self._address = {"bootstrap.servers": address}
        self._chronicle = chronicle
        self._chance = chance
        self._assignment = 0

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._connect()
                while not stopping.is_set():
                    self._take_turn()
            except CrashedError:
                self.errors["crash"] += 1
                # librdkafka 2.16 ends the process (txn_req_cnt > 0) where a producer is destroyed while its
                # AddPartitionsToTxn has outlived its transaction. One that crashed stays a zombie to the end.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
            self._drop()
        # The producer that takes over its transactional id ends its open transaction.
        self._connect()
        self._drop()

    # ---- start and end

    def _connect(self) -> None:
        self._plain = Producer({**self._address, **PRODUCER, "error_cb": self._note})
        self._producer = self._transactional()
        self._consumer = Consumer({**self._address, **CONSUMER, "group.id": self.name, "error_cb": self._note})
        self._begin_anew()

    def _transactional(self) -> Producer:
        """A producer that has its producer id. Raises KafkaException when no broker gives one for long."""
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        deadline = time.monotonic() + DEADLINE_S
        while True:
            producer = Producer({**self._address, **PRODUCER, **settings, "error_cb": self._note})
            try:
                producer.init_transactions(2 * CALL_S)
            except KafkaException as failure:
                self._note(failure.args[0])
                if time.monotonic() > deadline:
                    raise
            else:
                return producer

    def _drop(self) -> None:
        """Release the clients, in any state."""
        del self._plain, self._producer, self._consumer

    def _begin_anew(self) -> None:
        """Assign or subscribe."""
        self._assignment += 1
        if self._chance.random() < SUBSCRIBE_CHANCE:
            self._consumer.unassign()
            self._consumer.subscribe(list(TOPICS), on_assign=self._assigned)
            return
        self._consumer.unsubscribe()
        # Not OFFSET_BEGINNING: librdkafka 2.16 that requested the beginning while the broker was down takes the
        # response for the assignment that followed.
        start = self._chance.choice((0, OFFSET_STORED))
        places = [TopicPartition(*place_of(key), start) for key in range(KEYS)]
        self._consumer.assign(places)

    def _assigned(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        self._assignment += 1

    # ---- operations

    def _take_turn(self) -> None:
        drawn = self._chance.random()
        if drawn < CRASH_CHANCE:
            raise CrashedError
        if drawn < CRASH_CHANCE + REASSIGN_CHANCE:
            self._begin_anew()
        elif drawn < 0.2:
            self._send_one()
        elif drawn < 0.35:
            attempt = Attempt(self._chronicle, self.name, transaction=False)
            self._poll(attempt)
            attempt.end(Outcome.OK)
            if attempt.after and self._chance.random() < COMMIT_CHANCE:
                self._commit(attempt.after)
        elif drawn < 0.4:
            self._look_at_offsets()
        else:
            self._do_transaction()

    def _send_one(self) -> None:
        attempt = Attempt(self._chronicle, self.name, transaction=False)
        attempt.send(self._plain, self._chance.randrange(KEYS))
        self._plain.flush()  # ends with message.timeout.ms
        attempt.end(Outcome.OK if attempt.delivered else Outcome.INFO)

    def _commit(self, offsets: Mapping[int, int]) -> None:
        """An error counts as unknown: it may be that of a second attempt."""
        began = self._chronicle.tick()
        outcome = Outcome.INFO
        try:
            answers = self._consumer.commit(offsets=_places(offsets), asynchronous=False)
        except KafkaException as failure:
            self._note(failure.args[0])
        else:
            failures = [each.error for each in answers or () if each.error is not None]
            for error in failures:
                self._note(error)
            outcome = Outcome.INFO if failures else Outcome.OK
        self._chronicle.add_commit(self.name, offsets, outcome, began)

    def _look_at_offsets(self) -> None:
        began = self._chronicle.tick()
        try:
            found = committed(self._consumer, LOOK_S)
        except KafkaException as failure:
            self._note(failure.args[0])
        else:
            self._chronicle.add_fetched(self.name, found, began)

    def _do_transaction(self) -> None:
        attempt = Attempt(self._chronicle, self.name, transaction=True)
        self._producer.begin_transaction()
        steps = self._chance.randint(1, MOST_STEPS)
        abort_at = self._chance.randint(0, steps + 1) if self._chance.random() < ABORT_CHANCE else None
        crash_at = self._chance.randint(0, steps + 1) if self._chance.random() < CRASH_CHANCE else None
        try:
            for number in range(steps + 2):
                if number == crash_at:
                    attempt.end(Outcome.INFO)
                    raise CrashedError
                if number == abort_at:
                    self._abort(attempt)
                    return
                self._do_step(attempt, steps - number)
        except KafkaException as failure:
            self._recover(attempt, failure.args[0])
        else:
            attempt.end(Outcome.OK)

    def _do_step(self, attempt: Attempt, left: int) -> None:
        """A send or a poll while some are left; then the offsets; then the commit."""
        if left > 0 and self._chance.random() < 0.6:
            attempt.send(self._producer, self._chance.randrange(KEYS))
        elif left > 0:
            self._poll(attempt)
        elif left == 0 and attempt.after:
            attempt.commits = dict(attempt.after)
            self._send_offsets(attempt)
        elif left < 0:
            attempt.commit_began = self._chronicle.tick()
            self._producer.commit_transaction(2 * CALL_S)

    def _send_offsets(self, attempt: Attempt) -> None:
        """librdkafka 2.16 may wait for good for a coordinator that left (its issues 5456 and 5511).

        A client that does not return from there is left as a zombie, and a new one takes its place.
        """
        producer, group = self._producer, self._consumer.consumer_group_metadata()
        notified: Future[None] = Future()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(_places(attempt.commits), group, CALL_S)
            except KafkaException as failure:
                notified.set_exception(failure)
            else:
                notified.set_result(None)

        threading.Thread(target=send, name=f"{self.name} sends offsets", daemon=True).start()
        try:
            notified.result(2 * CALL_S)
        except TimeoutError:
            self.errors["stuck"] += 1
            attempt.end(Outcome.INFO)
            raise CrashedError from None

    def _recover(self, attempt: Attempt, error: KafkaError) -> None:
        self._note(error)
        if not error.txn_requires_abort():
            attempt.end(Outcome.INFO)
            raise CrashedError
        self._abort(attempt)

    def _abort(self, attempt: Attempt) -> None:
        """Once a commit was tried its outcome is unknown.

        librdkafka 2.16 ends the process (txn_req_cnt > 0) when AddPartitionsToTxn fails after its transaction was
        aborted; while one may be under way the transaction is left to the successor.
        """
        self._producer.flush(ABORT_S)
        if not attempt.delivered:
            attempt.end(Outcome.INFO)
            raise CrashedError
        try:
            self._producer.abort_transaction(CALL_S)
        except KafkaException as failure:
            self._note(failure.args[0])
            attempt.end(Outcome.INFO)
            raise CrashedError from failure
        attempt.end(Outcome.FAIL if attempt.commit_began is None else Outcome.INFO)
        self._read_again(attempt.first)

    def _read_again(self, first: Mapping[int, int]) -> None:
        self._assignment += 1
        for key, offset in first.items():
            try:
                self._consumer.seek(TopicPartition(*place_of(key), offset))
            except KafkaException as failure:  # it was revoked; the next assignment begins at the committed offset
                self._note(failure.args[0])

    def _poll(self, attempt: Attempt) -> None:
        messages = []
        before = self._assignment
        consumed = self._consumer.consume(MOST_POLLED, timeout=0.05)
        for message in consumed:
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                self._note(error)
        if self._assignment == before:
            attempt.poll(messages, self._assignment)
            return
        for message in messages:  # each may be from before or after: their order is unknown
            self._assignment += 1
            attempt.poll([message], self._assignment)
        self._assignment += 1

    def _note(self, error: KafkaError) -> None:
        self.errors[error.name()] += 1


def committed(consumer: Consumer, timeout_s: float) -> dict[int, int]:
    """The offsets of the consumer's group by key, -1 for none. Raises KafkaException."""
    found = consumer.committed([TopicPartition(*place_of(key)) for key in range(KEYS)], timeout=timeout_s)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    # librdkafka's constant for none is -1001.
    return {key_of(each.topic, each.partition): max(each.offset, -1) for each in found}


def _places(offsets: Mapping[int, int]) -> list[TopicPartition]:
    return [TopicPartition(*place_of(key), offset) for key, offset in offsets.items()]


class TransactionsWorkload:
    """Several clients of all topics, from the start of the `with` to the end of `finish`."""

    def __init__(self, bootstrap_servers: str, clients: int, seed: str) -> None:
        self._address = bootstrap_servers
        self._stopping = threading.Event()
        self._failures: list[str] = []
        self.chronicle: Chronicle = Chronicle()
        self.clients: list[Client] = [
            Client(name, bootstrap_servers, self.chronicle, random.Random(f"{seed} {name}"))
            for name in (f"client-{number}" for number in range(clients))
        ]
        self._threads = [threading.Thread(target=self._run, args=(each,), name=each.name) for each in self.clients]

    def __enter__(self) -> TransactionsWorkload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def await_progress(self, count: int) -> None:
        """Wait until every client has begun and committed `count` more transactions. Raises TimeoutError."""
        try:
            self.chronicle.await_transactions([each.name for each in self.clients], count, DEADLINE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self._failures}; {[dict(each.errors) for each in self.clients]}") from None
        assert not self._failures, self._failures

    def finish(self) -> list[Anomaly]:
        """Once all faults have ended: end the clients, read everything from the start, and return the verdict."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        assert not self._failures, self._failures
        self._read_everything()
        for client in self.clients:
            self._read_offsets(client.name)
        return anomalies(self.chronicle.operations) + self.chronicle.offset_anomalies()

    def summary(self) -> str:
        """How many operations had which outcome, and the errors that the clients received."""
        kinds = Counter((each.transaction, each.outcome.value) for each in self.chronicle.operations)
        shown = ", ".join(
            f"{count} {'transactions' if transaction else 'single'} {outcome}"
            for (transaction, outcome), count in sorted(kinds.items())
        )
        return f"{shown}; {self.chronicle.shown_offsets()}; {self._shown_table()}; {self._shown_errors()}"

    # ---- helpers

    def _run(self, client: Client) -> None:
        try:
            client.run(self._stopping)
        except Exception as failure:
            self._failures.append(f"{client.name}: {failure!r}")
            raise

    def _read_everything(self) -> None:
        """Past every existing offset; no transaction is open any more."""
        settings = {"bootstrap.servers": self._address, **CONSUMER, "enable.partition.eof": True, "group.id": "last"}
        consumer = Consumer(settings)
        whole = Consumer({**settings, "isolation.level": "read_uncommitted"})
        began, deadline = self.chronicle.tick(), time.monotonic() + DEADLINE_S
        records: list[tuple[int, int, int]] = []
        try:
            places = [TopicPartition(*place_of(key), 0) for key in range(KEYS)]
            ends = [whole.get_watermark_offsets(place, timeout=DEADLINE_S)[1] for place in places]
            consumer.assign(places)
            at = [0] * KEYS
            while any(map(int.__lt__, at, ends)):
                assert time.monotonic() < deadline, f"not all is readable: {at} of {ends}"
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        records.append(record_of(message))
                        at[records[-1][0]] = records[-1][1] + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        offset = message.offset()
                        assert offset is not None
                        at[key_of(message.topic(), message.partition())] = offset
        finally:
            consumer.close()
            whole.close()
        poll = Poll(tuple(records))
        self.chronicle.add(Operation("last", Outcome.OK, (poll,), began, self.chronicle.tick()), {})

    def _read_offsets(self, group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._address, **CONSUMER, "group.id": group})
        began = self.chronicle.tick()
        try:
            self.chronicle.add_fetched(group, committed(consumer, DEADLINE_S), began)
        finally:
            consumer.close()

    def _shown_table(self) -> str:
        """How far the table has been compacted."""
        operations = self.chronicle.operations
        versions = versions_of(operations)
        read = {(partition, value) for partition, _, value in operations[-1].reads}
        known = [place for place in versions.named if versions.is_committed(place)]
        return f"{sum(place not in read for place in known)} of {len(known)} in the table compacted away"

    def _shown_errors(self) -> str:
        return str(dict(sum((each.errors for each in self.clients), Counter())))
