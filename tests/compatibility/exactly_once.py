"""A copier that is killed, over a broker that is killed: helpers of the tests of exactly once.

The copiers (Copier.java, copier.py) print a line for each step of a transaction. A test draws after how many lines it
kills which of the two; the process killed then is in the middle of its next step.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.compatibility import copier
from tests.compatibility.brokers import Broker
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, java_command

STEP_TIMEOUT_S: Final = 150.0
READ_TIMEOUT_S: Final = 150.0
"""However slow the machine: the event comes within this bound, or a test has failed."""
SILENCE_S: Final = 40.0
MOST_LIVES: Final = 25
LIBRARIES: Final = ("confluent", "confluent-consumer", "aiokafka", "kafka-python")

Victim = Literal["copier", "broker"]


def copier_command(
    kind: str, bootstrap: str, group: str, source: str, target: str, *, max_block_ms: int = 30_000
) -> list[str]:
    """The command of a copier: a library's name, or a release of Java's client and after a slash the group's
    protocol. Only Java's clients have `max_block_ms`.
    """
    where = [bootstrap, group, source, target]
    if kind in LIBRARIES:
        return [sys.executable, str(Path(copier.__file__)), kind, *where]
    release, _, protocol = kind.partition("/")
    program = str(Path(__file__).with_name("Copier.java"))
    options = [*QUICK_START, *QUIET, f"-Dmax.block.ms={max_block_ms}"]
    return java_command(release, program, [*where, protocol or "classic"], options)


class Copying:
    """A copier and its successors, as a supervisor keeps them running.

    One that prints nothing for `silence_s` is ended: librdkafka 2.16 waits for ever for a group's coordinator that died
    (with Apache Kafka, too), and kafka-python 3.0 does not repeat an AddPartitionsToTxn that was lost with its
    connection. Clients without such a fault get no such help.
    """

    def __init__(self, command: Sequence[str], silence_s: float = SILENCE_S) -> None:
        self._command = command
        self._silence_s = silence_s
        self._process = BackgroundProcess(command)
        self._received = -1, time.monotonic()
        """How many lines it had printed when one was last seen, and when."""
        self.endings: list[str] = []
        """The last line of each copier that ended by itself."""

    def await_steps(self, count: int) -> None:
        """Wait until it has printed `count` lines more; one that ends is followed by the next."""
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while True:
            goal = len(self._process.stdout.lines()) + count
            try:
                deadline_s = min(self._silence_s, deadline - time.monotonic())
                self._process.stdout.wait_until(lambda lines, goal=goal: len(lines) >= goal, deadline_s)
            except EOFError:
                self._replace()
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                self._end_the_silent(goal - count)
            else:
                return

    def keep_up(self) -> None:
        """Start the next one if this one has ended, or has printed nothing for too long."""
        if not self._process.running:
            self._replace()
            return
        printed = len(self._process.stdout.lines())
        if printed != self._received[0]:
            self._received = printed, time.monotonic()
        elif time.monotonic() - self._received[1] > self._silence_s:
            self._end_the_silent(printed)

    def _end_the_silent(self, received: int) -> None:
        """It has printed nothing since its `received` lines."""
        if len(self._process.stdout.lines()) == received:
            self._process.kill()
            self._replace()
        self._received = -1, time.monotonic()

    def kill(self) -> None:
        """End one copier, and start the next."""
        self._process.kill()
        self._process = BackgroundProcess(self._command)

    def close(self) -> None:
        self._process.kill()

    def _replace(self) -> None:
        printed = [*self._process.stdout.wait_for_end(10)[-1:], *self._process.stderr.lines()[-3:]]
        self._process.kill()  # it has closed its output, and may not have ended yet
        self.endings.append(" | ".join(printed))
        assert len(self.endings) < MOST_LIVES, "\n".join(self.endings)
        self._process = BackgroundProcess(self._command)


def torment(broker: Broker, copying: Copying, victims: Sequence[Victim], chance: random.Random, longest: int) -> None:
    """Kill each of `victims`, after some of the copier's steps, at most `longest`."""
    for victim in victims:
        copying.await_steps(chance.randint(1, longest))
        if victim == "copier":
            copying.kill()
        else:
            broker.kill()
            broker.start()


def write_lines(broker: Broker, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """Send `count` numbered lines in turn to the partitions; returns the lines of each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    written: list[list[bytes]] = [[] for _ in range(partitions)]
    for number in range(count):
        line = f"line {number}".encode()
        written[number % partitions].append(line)
        producer.produce(topic, line, partition=number % partitions, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []
    return written


def read_committed(
    broker: Broker, topic: str, partitions: int, count: int, copying: Copying | None = None
) -> list[list[bytes]]:
    """The lines that a read_committed reader finds in each partition: all up to the end offset once `count` are there.

    `copying` goes on meanwhile and is ended before that end is looked up.
    """
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "enable.partition.eof": True, **settings})
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while sum(map(len, found)) < count or len(at_end) < partitions:
            if copying is not None and sum(map(len, found)) < count:
                copying.keep_up()
            for message in consumer.consume(500, timeout=0.2):
                partition, error, value = message.partition(), message.error(), message.value()
                assert partition is not None
                if error is None:
                    assert isinstance(value, bytes)
                    found[partition].append(value)
                    at_end.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
            missing = f"{sum(map(len, found))} of {count} lines came, {sorted(at_end)} at the end"
            assert time.monotonic() < deadline, f"{missing}; {copying.endings if copying else ''}"
    finally:
        consumer.close()
    return found
