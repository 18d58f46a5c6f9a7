"""Topics and applications of one test on a real broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.broker_process import BrokerProcess
from odradek.streams.config import StreamsConfig
from odradek.streams.context import TaskContext
from odradek.streams.processor import Processor
from odradek.streams.records import Record, TaskId
from odradek.streams.running.collector import RecordCollector
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import STRING
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.topology import Topology
from tests.jvm.kafka import Kafka
from tests.streams import counting
from tests.streams.counting import QUICK, all_of, await_counts, word_counts

DEADLINE_S = 150.0
SESSION_MS = 30_000
"""No process dies here: a thread that a slow machine delays for a second has to stay in its group."""
Broker = BrokerProcess | Kafka


_numbers = itertools.count()


class Stage:
    """Topics and an application of a test's own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        number = next(_numbers)
        self.bootstrap = broker.bootstrap
        self.folder = folder
        self.application_id = f"app{number}"
        self.words, self.counts = f"words{number}", f"counts{number}"

    def make_topics(self, partitions: int = 2) -> None:
        counting.make_topics(self.bootstrap, {self.words: partitions, self.counts: partitions})

    def config(self, instance: str = "a", **more: Any) -> dict[str, Any]:
        return {
            **QUICK,
            "session.timeout.ms": SESSION_MS,
            "application.id": self.application_id,
            "bootstrap.servers": self.bootstrap,
            "state.dir": str(self.folder / instance),
            "internal.leave.group.on.close": True,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    @contextmanager
    def running(self, topology: Topology | None = None, instance: str = "a", **more: Any) -> Iterator[KafkaStreams]:
        streams = KafkaStreams(topology or word_counts(self.words, self.counts), self.config(instance, **more))
        with streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            yield streams

    def write(self, words: list[str]) -> None:
        counting.write_words(self.bootstrap, words, self.words)

    def await_counts(self, expected: dict[str, int]) -> dict[str, list[int]]:
        return await_counts(self.bootstrap, all_of(expected), self.counts)


def context_of(collector: RecordCollector, config: StreamsConfig) -> TaskContext:
    """The context of a task that writes by this collector."""
    return TaskContext(TaskId(0, 0), collector, lambda: 0, config, ThreadCache(0))


def passing(*processors: Callable[[], Processor], stage: Stage) -> Topology:
    """Words through processors, one after the other, to counts, unchanged."""
    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING)
    before = "words"
    for number, supplier in enumerate(processors):
        topology.add_processor(f"p{number}", supplier, before)
        before = f"p{number}"
    return topology.add_sink("out", stage.counts, before, key=STRING, value=STRING)


class Forward(Processor):
    """Forwards every record."""

    def process(self, record: Record) -> None:
        self.context.forward(record)
