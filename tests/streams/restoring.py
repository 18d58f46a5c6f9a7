"""A task with one store, its changelog in a real broker, and its restoration: helpers of the tests of restoration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.streams.context import TaskContext
from odradek.streams.processor import Processor
from odradek.streams.records import Record, TaskId
from odradek.streams.running.restoration import CONSUMER, Restorer
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.task_state import TaskState
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import StoreBuilder, key_value_store
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.topology import Topology

APPLICATION: Final = "restoring"
STORE: Final = "things"
TIMEOUT_S: Final = 30.0
Rows = Iterable[tuple[str | None, str | None]]


class NoCollector:
    """No records are written while stores are restored."""

    def sender(self, context: Any) -> Any:
        return self.send

    def add_writer(self, topic: str, node: str) -> None:
        """Not used."""

    def send_dead_letter(self, letter: Any) -> None:
        raise AssertionError(letter)

    def send(self, topic: str, *record: Any) -> None:
        raise AssertionError(f"{record} was written to {topic}")

    def partitions_of(self, topic: str) -> int:
        raise AssertionError(topic)


class Nothing(Processor):
    def process(self, record: Record) -> None:
        return


def topology(builder: StoreBuilder, source: str = "in") -> Topology:
    return Topology().add_source("source", source).add_processor("p", Nothing, "source").add_state_store(builder, "p")


def make_state(
    directory: StateDirectory,
    changelog: str,
    partition: int = 0,
    *,
    exactly_once: bool = False,
    persistent: bool = True,
    from_source: bool = False,
) -> TaskState:
    """The state of task 0_partition, not open yet."""
    made = topology(key_value_store(STORE, STRING, STRING, persistent), changelog if from_source else "in")
    if from_source:
        made.connect_source_store_and_topic(STORE, changelog)
    task_id = TaskId(0, partition)
    config = {"application.id": APPLICATION}
    context = TaskContext(task_id, NoCollector(), lambda: 0, config, ThreadCache(0))
    subtopology = made.subtopologies(APPLICATION)[0]
    return TaskState(made, subtopology, context, {STORE: (changelog, partition)}, directory, exactly_once)


def make_topic(bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, replicas)]).values():
        future.result(TIMEOUT_S)


def write(bootstrap: str, topic: str, rows: Rows, partition: int = 0) -> None:
    """Write rows, all acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for key, value in rows:
        producer.produce(topic, value and value.encode(), key and key.encode(), partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def restorer(bootstrap: str, committed_only: bool = False, **more: Any) -> Iterator[Restorer]:
    level = "read_committed" if committed_only else "read_uncommitted"
    settings = {**CONSUMER, "bootstrap.servers": bootstrap, "group.id": APPLICATION, "isolation.level": level}
    quick = {"fetch.wait.max.ms": 50, "reconnect.backoff.max.ms": 200, "fetch.queue.backoff.ms": 5}
    made = Restorer(Consumer({**settings, **quick}), 10.0, **more)
    try:
        yield made
    finally:
        made.close()


def step_until(restorer: Restorer, holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> list[TaskState]:
    """Returns the active tasks whose restoration was completed meanwhile."""
    done: list[TaskState] = []
    deadline = time.monotonic() + timeout_s
    while True:
        done += restorer.step(0.02)
        if holds():
            return done
        assert time.monotonic() < deadline, f"{restorer.remaining} records are left, {restorer.restored} are restored"


def restore(restorer: Restorer) -> list[TaskState]:
    """Restore all tasks that wait."""
    return step_until(restorer, lambda: not restorer.active)


def contents(state: TaskState) -> dict[str, str]:
    return dict(state.stores[STORE].all())


@contextmanager
def directory(path: Path) -> Iterator[StateDirectory]:
    made = StateDirectory(path, APPLICATION)
    try:
        yield made
    finally:
        made.close()
