"""Word counts of two instances under load, and faults that hit them at moments that a seed decides.

    with Storm(bootstrap, folder, chance, guarantee=EXACTLY_ONCE_V2) as storm:
        storm.strike(KILL_ONE)
        storm.conclude()

A feeder writes words all the time, a follower reads the committed counts. After a fault the storm waits until the
application has counted words again that were written after it, so no fault is without effect and availability is
asserted, too. At the end output and changelog are compared with a batch count. No instance may end, except those that
are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Position

from odradek.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from tests.jvm.process import BackgroundProcess
from tests.streams import counting
from tests.streams.counting import COUNTS, QUICK, STORE, WORDS
from tests.support.nemesis import KILL, PAUSE, ROUNDS, Fault

PARTITIONS: Final = 3
SESSION_S: Final = 2.0
AWAY_S: Final = 1.5 * SESSION_S
"""How long an instance or broker has to be away for the others to notice."""
DEADLINE_S: Final = 180.0
BURST: Final = 20 if ROUNDS else 10
PAUSE_S: Final = 0.05
APPLICATION: Final = "storm"
CHANGELOG: Final = f"{APPLICATION}-{STORE}-changelog"
KILL_ONE: Final = Fault(KILL, "an instance")
KILL_ONE_FOR_LONG: Final = Fault(KILL, "an instance for long")
KILL_BOTH: Final = Fault(KILL, "both")
PAUSE_ONE: Final = Fault(PAUSE, "an instance")
STOP_ONE: Final = Fault("stop", "an instance")
KILL_BROKER: Final = Fault(KILL, "a broker")
VOCABULARY: Final = [f"word{number}" for number in range(30)]
SETTINGS: Final[dict[str, Any]] = {
    **QUICK,
    "application.id": APPLICATION,
    "session.timeout.ms": int(SESSION_S * 1000),
    "heartbeat.interval.ms": 300,
    "producer.transaction.timeout.ms": 4_000,
    "request.timeout.ms": 10_000,
}
BROKER: Final = {
    **counting.BROKER,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "default.replication.factor": "1",
}


class Instance:
    """An application in a process of its own, any number of times over its state directory."""

    def __init__(self, folder: Path, bootstrap: str, **more: Any) -> None:
        """Starts no process yet; `more` overrides SETTINGS."""
        self.folder = folder
        self._settings = {**SETTINGS, "bootstrap.servers": bootstrap, "state.dir": str(folder), **more}
        self._process: BackgroundProcess | None = None
        self._notified: list[str] = []

    @property
    def process(self) -> BackgroundProcess:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Begin; it runs some time later."""
        command = [sys.executable, "-m", "tests.streams.apps.words", json.dumps(self._settings)]
        self._process = BackgroundProcess(command)

    def await_running(self) -> None:
        self.process.stdout.wait_for("RUNNING", DEADLINE_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._remember()
        self.process.kill()

    def stop(self) -> None:
        """A clean end: it commits and leaves the group."""
        self.await_running()
        status = self.process.stop(DEADLINE_S)
        assert status == 0, f"exit status {status}:\n{self.log}"
        self._remember()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def check(self) -> None:
        """Raises AssertionError when it has ended, or failed, by itself."""
        states = self.process.stdout.lines()
        assert self.process.running, f"an instance has ended by itself:\n{self.log}"
        assert not {"ERROR", "PENDING_ERROR"} & set(states), f"an instance has failed, {states}:\n{self.log}"

    @property
    def log(self) -> str:
        """The end of the output of all its processes."""
        return "\n".join([*self._notified, *self.process.stderr.lines()][-400:])

    def _remember(self) -> None:
        self._notified += [*self.process.stderr.lines(), "---- the end of this process"]

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.resume()
            self._process.kill()


class Feeder:
    """Writes words until it is stopped, all acknowledged by all replicas."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.words: list[str] = []
        self._drawn = random.Random(chance.random())
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "on_delivery": self._notified}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _notified(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            for word in self._drawn.choices(VOCABULARY, k=BURST):
                self._producer.produce(WORDS, word.encode())
                self.words.append(word)
            self._producer.poll(0)

    def stop(self) -> Counter[str]:
        """The expected counts, once the feeder has stopped."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0
        assert not self._failed, self._failed
        return Counter(self.words)


class Follower:
    """The counts of each word that have been committed, in their order, as they come."""

    def __init__(self, bootstrap: str, exactly_once: bool) -> None:
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.total = 0
        self._exactly_once = exactly_once
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([Position(COUNTS, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])

    def read(self) -> None:
        """Read the available records. Raises AssertionError for a count that is not the next one, exactly once."""
        for message in self._consumer.consume(5_000, 0.05):
            if message.error() is not None:
                continue  # brokers are killed; the client retries
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            word, count = key.decode(), int.from_bytes(value, "big")
            before = self.counts[word]
            if self._exactly_once:
                where = f"{message.topic()}-{message.partition()}@{message.offset()}"
                assert count == len(before) + 1, f"{word} is {count} after {before[-3:]} at {where}"
            before.append(count)
            self.total += 1

    def close(self) -> None:
        self._consumer.close()


class Storm:
    """Two instances, a feeder, a follower; `kill_broker` is the fault of a broker, if there is such a fault."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        chance: random.Random,
        guarantee: str = EXACTLY_ONCE_V2,
        kill_broker: Callable[[], None] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self._exactly_once = guarantee == EXACTLY_ONCE_V2
        self._kill_broker = kill_broker
        more = {"processing.guarantee": guarantee}
        self.instances = [Instance(folder / name, bootstrap, **more) for name in ("one", "two")]
        self.feeder = Feeder(bootstrap, chance)
        self.follower = Follower(bootstrap, self._exactly_once)

    def __enter__(self) -> Storm:
        for instance in self.instances:
            instance.start()
        self.await_progress("the start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                for instance in self.instances:
                    print(f"==== {instance.folder.name}\n{instance.log}", file=sys.stderr)
        finally:
            for instance in self.instances:
                instance.close()
            self.feeder.stop()
            self.follower.close()

    @property
    def faults(self) -> Sequence[Fault]:
        """The available faults."""
        found = [KILL_ONE, KILL_ONE_FOR_LONG, KILL_BOTH, STOP_ONE]
        if self._exactly_once:
            found.append(PAUSE_ONE)  # with at least once, unsent records are sent when it wakes up
        return [*found, KILL_BROKER] if self._kill_broker else found

    def strike(self, fault: Fault) -> None:
        """One fault, and the recovery from it."""
        one = self._chance.choice(self.instances)
        began = time.monotonic()
        self._some_records()
        self._cause(fault, one)
        if self._chance.random() < 0.7:  # otherwise the next fault overlaps with the recovery from this one
            self.await_progress(str(fault))
        print(f"{fault} ({one.folder.name}): {time.monotonic() - began:.1f} s", flush=True)

    def _cause(self, fault: Fault, one: Instance) -> None:
        if fault == KILL_ONE:
            one.kill()
            one.start()
        elif fault == KILL_ONE_FOR_LONG:
            one.kill()
            self._while_away()
            one.start()
        elif fault == KILL_BOTH:
            for instance in self.instances:
                instance.kill()
            for instance in self.instances:
                instance.start()
        elif fault == PAUSE_ONE:
            one.pause()
            self._while_away()
            one.resume()
        elif fault == STOP_ONE:
            one.stop()
            self._some_records()
            one.start()
        elif fault == KILL_BROKER:
            assert self._kill_broker is not None, "no broker was given"
            self._kill_broker()
        else:
            raise ValueError(fault)

    def _some_records(self) -> None:
        """Until a moment that is drawn, by the count of records; not for long where no records come."""
        wanted = self.follower.total + self._chance.randrange(1, 300)
        deadline = time.monotonic() + 1.0
        while self.follower.total < wanted and time.monotonic() < deadline:
            self.follower.read()

    def _while_away(self) -> None:
        """Long enough for the group to continue without the instance or broker that is away."""
        deadline = time.monotonic() + AWAY_S
        while time.monotonic() < deadline:
            self.follower.read()

    def await_progress(self, what: str) -> None:
        """Until all partitions progress: every word that was written after now has been counted again."""
        before = {word: len(self.follower.counts[word]) for word in VOCABULARY}
        written = Counter(list(self.feeder.words))
        more = {word: max(written[word], before[word] + 1) for word in VOCABULARY}
        self._await(lambda: all(len(self.follower.counts[word]) >= count for word, count in more.items()), what)

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            self.follower.read()
            for instance in self.instances:
                instance.check()
            assert time.monotonic() < deadline, f"{DEADLINE_S:g} s after {what} not all words are counted again"

    def conclude(self) -> None:
        """The verdict: output and changelog equal the batch count of the words; with at least once, none is missing."""
        expected = self.feeder.stop()
        follower = self.follower
        if not self._exactly_once:
            self._await(lambda: all(max(follower.counts[word]) >= count for word, count in expected.items()), "the end")
            counted = follower.counts
            assert all(len(counted[word]) >= count for word, count in expected.items()), (expected, counted)
        else:
            self._await(lambda: follower.total >= sum(expected.values()), "the end")
        for instance in self.instances:
            instance.stop()
        follower.read()
        last = {word: counts[-1] for word, counts in follower.counts.items()}
        changelog = {
            key.decode(): int.from_bytes(value, "big")
            for key, value in counting.read_all(self._bootstrap, CHANGELOG, self._exactly_once)
            if key is not None and value is not None
        }
        assert changelog == last
        if self._exactly_once:
            assert dict(follower.counts) == {word: list(range(1, count + 1)) for word, count in expected.items()}
        else:
            assert all(last[word] >= count for word, count in expected.items()), (expected, last)


__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE_V2", "Feeder", "Follower", "Instance", "Storm"]
