"""Rebalances in the middle of restorations, and standbys that take over: no record is read twice, none is missing."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.streams.murmur2 import murmur2
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.runtime import KafkaStreams, State
from tests.streams import counting
from tests.streams.counting import QUICK, STORE, TIMEOUT_S, word_counts
from tests.support.eventually import eventually

ROWS = 60_000
VOCABULARY = [f"word{number}" for number in range(100)]
_numbers = itertools.count()


class Stage:
    """Topics and an application of a test's own."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        number = next(_numbers)
        self.bootstrap = bootstrap
        self.folder = folder
        self.application_id = f"standby{number}"
        self.words, self.counts = f"standby-words{number}", f"standby-counts{number}"
        counting.make_topics(bootstrap, {self.words: 2, self.counts: 2})

    def streams(self, instance: str, listener: RestoreListener | None = None, **more: Any) -> KafkaStreams:
        config = {
            **QUICK,
            "session.timeout.ms": 30_000,
            "application.id": self.application_id,
            "bootstrap.servers": self.bootstrap,
            "state.dir": str(self.folder / instance),
            "internal.leave.group.on.close": True,
            "restore.consumer.fetch.message.max.bytes": 50_000,  # so that partitions come in turn
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return KafkaStreams(word_counts(self.words, self.counts), config, restore_listener=listener)

    def await_counts(self, enough: Callable[[dict[str, list[int]]], bool]) -> dict[str, list[int]]:
        return counting.await_counts(self.bootstrap, enough, self.counts)


@pytest.fixture
def stage(streams_broker: BrokerProcess, tmp_path: Path) -> Stage:
    return Stage(streams_broker.bootstrap, tmp_path)


def write_changelog(stage: Stage) -> None:
    """The state of an application that has counted for long: each word as often as its number."""
    topic = f"{stage.application_id}-{STORE}-changelog"
    counting.make_topics(stage.bootstrap, {topic: 2, f"{stage.application_id}-{STORE}-repartition": 2})
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 5})
    words = [*(f"filler{number}" for number in range(ROWS)), *VOCABULARY]
    for number, word in enumerate(words):
        count = number - ROWS if number >= ROWS else 1
        partition = (murmur2(word.encode()) & 0x7FFFFFFF) % 2
        producer.produce(topic, count.to_bytes(8, "big"), word.encode(), partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


class Slow(RestoreListener):
    """Delays restoration until `go` is set, by so long a batch, and records where it began and stopped."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.go = threading.Event()
        self.starts: dict[int, list[int]] = {0: [], 1: []}
        self.suspended: dict[int, list[int]] = {0: [], 1: []}
        self.ended: list[int] = []
        self._next = {0: 0, 1: 0}

    @property
    def begun(self) -> bool:
        return all(self._next.values())

    def on_restore_start(self, changelog: tuple[str, int], store: str, start: int, end: int) -> None:
        self.starts[changelog[1]].append(start)

    def on_batch_restored(self, changelog: tuple[str, int], store: str, batch_end: int, count: int) -> None:
        self._next[changelog[1]] = batch_end + 1
        self.go.wait(self._pause_s)

    def on_restore_suspended(self, changelog: tuple[str, int], store: str, total: int) -> None:
        self.suspended[changelog[1]].append(self._next[changelog[1]])

    def on_restore_end(self, changelog: tuple[str, int], store: str, total: int) -> None:
        self.ended.append(changelog[1])


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_tasks_that_move_while_they_are_restored_resume_at_their_position(stage: Stage, guarantee: str) -> None:
    write_changelog(stage)
    slow, other = Slow(1.5), Slow(0.1)  # the first one must not complete before the second one is there
    with stage.streams("one", slow, processing_guarantee=guarantee) as one:
        eventually(lambda: slow.begun, describe="both tasks are restored, side by side")
        with stage.streams("two", other, processing_guarantee=guarantee):
            eventually(lambda: bool(other.starts[0] or other.starts[1]), describe="the second instance restores")
            assert one.state is State.REBALANCING
        slow.go.set()
        eventually(lambda: sorted(slow.ended) == [0, 1])
        one.wait_until(State.RUNNING, TIMEOUT_S)
        for partition, places in slow.starts.items():
            assert places == [0, *slow.suspended[partition]], "the restoration started over"
        assert any(slow.suspended.values()), "no task has moved"
        counting.write_words(stage.bootstrap, VOCABULARY, stage.words)
        found = stage.await_counts(lambda found: len(found) == len(VOCABULARY))
        assert found == {word: [number + 1] for number, word in enumerate(VOCABULARY)}


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_standby_takes_over_and_reads_no_record_twice(stage: Stage, guarantee: str) -> None:
    words = [VOCABULARY[number % 100] for number in range(5_000)]
    more: dict[str, Any] = {"num_standby_replicas": 1, "processing_guarantee": guarantee}
    with stage.streams("one", **more) as one:
        one.wait_until(State.RUNNING, TIMEOUT_S)
        with stage.streams("two", **more) as two:
            two.wait_until(State.RUNNING, TIMEOUT_S)
            one.wait_until(State.RUNNING, TIMEOUT_S)
            counting.write_words(stage.bootstrap, words, stage.words)
            stage.await_counts(counting.all_of(Counter(words)))
            loops = [thread.run_loop for each in (one, two) for thread in each.stream_threads]
            restorers = [loop.tasks.restorer for loop in loops if loop is not None]
            assert len(restorers) == len(loops)
            eventually(
                lambda: sum(each.restored for each in restorers) == len(words), describe="the standbys have all records"
            )
            one.close(TIMEOUT_S, leave_group=True)
            counting.write_words(stage.bootstrap, words, stage.words)
            stage.await_counts(counting.all_of(Counter([*words, *words])))
            assert sum(each.restored for each in restorers) == len(words)
    counting.assert_exactly_once(stage.bootstrap, [*words, *words], stage.application_id, stage.counts)
