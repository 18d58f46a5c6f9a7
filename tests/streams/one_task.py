"""One task with many records in flight, which the driver has not: it completes each record before the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.commit_metadata import decode_metadata
from odradek.streams.config import StreamsConfig
from odradek.streams.context import Send, TaskContext
from odradek.streams.errors import DeadLetter
from odradek.streams.processor import Processor
from odradek.streams.records import Headers, Record, RecordMetadata, TaskId
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.task import Task
from odradek.streams.topology import Topology, make_store

TOPIC: Final = "in"


class Written(NamedTuple):
    """A record that the task wrote."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Memory:
    """A collector that keeps records."""

    def __init__(self) -> None:
        self.written: list[Written] = []

    def sender(self, context: TaskContext) -> Send:
        def send(topic: str, key: Any, value: Any, partition: Any, timestamp: int, headers: Headers) -> None:
            self.written.append(Written(topic, key, value, timestamp, headers))

        return send

    def add_writer(self, topic: str, node: str) -> None: ...

    def send_dead_letter(self, letter: DeadLetter) -> None:
        self.written.append(Written(letter.topic, letter.key, letter.value, letter.timestamp, letter.headers))

    def partitions_of(self, topic: str) -> int:
        return 1

    def of(self, topic: str) -> list[bytes | None]:
        return [each.value for each in self.written if each.topic == topic]


class SourceRecord(NamedTuple):
    """A record of the source topic, with the methods of a client's message."""

    at: int
    pair: tuple[bytes | None, bytes | None]
    time: int
    given: Headers

    def key(self) -> bytes | None:
        return self.pair[0]

    def value(self) -> bytes | None:
        return self.pair[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def offset(self) -> int:
        return self.at

    def headers(self) -> Headers:
        return self.given


class Seen(NamedTuple):
    """What a processor sees of a record."""

    record: Record
    origin: RecordMetadata | None
    stream_time: int


def witness(seen: list[Seen]) -> Callable[[], Processor]:
    """A processor that keeps what it sees, and forwards records."""

    class Witness(Processor):
        def process(self, record: Record) -> None:
            context = self.context
            seen.append(Seen(record, context.record_metadata, context.current_stream_time_ms))
            context.forward(record)

    return Witness


class Clock:
    """A wall clock that stands still."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self) -> bool:
        """By 1 ms."""
        self.now_ms += 1
        return True


@contextmanager
def one_task(
    topology: Topology,
    *,
    partition: int = 0,
    clock: Clock | None = None,
    commits: Mapping[TopicPartition, tuple[int, str]] | None = None,
    **more: Any,
) -> Iterator[tuple[Task, Memory]]:
    """The task of the first sub-topology, its stores open, at the commits of its predecessor; `more` are properties,
    underscores for dots.
    """
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "none", **given})
    memory, cache = Memory(), ThreadCache(config["statestore.cache.max.bytes"])
    context = TaskContext(TaskId(0, partition), memory, clock or Clock(), config, cache, handlers=config.handlers)
    part = topology.subtopologies("app")[0]
    stores = {name: make_store(topology.stores[name], config) for name in part.stores}
    for name, store in stores.items():
        store.init(context)
        context.changelog(name, part.changelogs[name])
    task = Task(topology, part, context, stores, {})
    for place, (offset, text) in (commits or {}).items():
        partition_time, numbers = decode_metadata(text)
        task.seek(place, partition_time, offset)
        context.add_metadata(numbers)
    task.init()
    try:
        yield task, memory
    finally:
        task.close()


def records(values: Sequence[tuple[str, int]], headers: bool = False) -> list[SourceRecord]:
    """A record for each value and timestamp; its key is "k"."""
    return [
        SourceRecord(at, (b"k", value.encode()), time, [("at", str(at).encode())] if headers else None)
        for at, (value, time) in enumerate(values)
    ]
