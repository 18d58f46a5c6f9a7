"""A broker in memory for the workers of connectors: groups, tasks with transactions, partitions with offsets.

`Crashing` ends a run at the N-th call to what a worker uses, before or after the call. What a broker keeps outlives the
crash; the workers, the groups and the open transactions do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.conversions import deserializer, serializer
from odradek.streams.connectors.errors import FencedError
from odradek.streams.connectors.interface import Sink, SinkRecord, Source, SourceOffset
from odradek.streams.connectors.retries import Retries
from odradek.streams.connectors.sink_worker import PartitionListener, SinkSettings, SinkWorker
from odradek.streams.connectors.source_offsets import read_offset
from odradek.streams.connectors.source_worker import (
    OutputRecord,
    SourceSettings,
    SourceWorker,
    TaskListener,
    TaskOutput,
)
from odradek.streams.errors import DeadLetter

GROUP: Final = "connect-test"


class Crash(BaseException):
    """The process ends here. No `except Exception` of a worker catches it."""


class Countdown:
    """Raises Crash at the N-th tick; never, once it has, or where N is None."""

    def __init__(self, ticks: int | None = None) -> None:
        self.left = ticks

    def tick(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Crash


class Crashing:
    """Another object, whose calls each are two ticks: one before, and one after."""

    def __init__(self, target: Any, countdown: Countdown) -> None:
        self._target = target
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._countdown.tick()
            result = found(*arguments, **options)
            self._countdown.tick()
            return result

        return call


class MemoryBroker:
    """What outlives a crash."""

    def __init__(self, tasks: int = 2) -> None:
        self.tasks = tasks
        self.epochs: dict[int, int] = defaultdict(int)
        """The epoch of each task's producer."""
        self.written: list[OutputRecord] = []
        """The committed records of sources."""
        self.offsets: dict[int, dict[bytes, bytes]] = defaultdict(dict)
        """The committed offsets of sources, by task and key."""
        self.logs: dict[TopicPartition, list[SinkRecord]] = {}
        """The records for sinks; offsets may have gaps."""
        self.committed: dict[TopicPartition, int] = {}
        self.dead_letters: list[DeadLetter] = []


class MemoryTaskOutput:
    """The protocol `TaskOutput`, exactly once."""

    def __init__(self, broker: MemoryBroker, task: int) -> None:
        broker.epochs[task] += 1
        self._broker = broker
        self._task = task
        self._epoch = broker.epochs[task]
        self._open: list[OutputRecord] = []
        found = {key: read_offset(value) for key, value in broker.offsets[task].items()}
        self.offsets: Mapping[bytes, SourceOffset] = {key: each for key, each in found.items() if each is not None}

    def write(self, records: Iterable[OutputRecord]) -> None:
        self._check()
        self._open += records

    def commit(self, offsets: Mapping[bytes, bytes]) -> None:
        self._check()
        self._broker.written += self._open
        self._broker.offsets[self._task].update(offsets)
        self._open = []

    def close(self) -> None:
        self._open = []

    def _check(self) -> None:
        if self._broker.epochs[self._task] != self._epoch:
            raise FencedError(f"task {self._task} has another producer")


class MemoryTaskGroup:
    """The protocol `TaskGroup` for a group of one member, which gets all tasks with its first poll."""

    def __init__(self, broker: MemoryBroker, listener: TaskListener, countdown: Countdown) -> None:
        self._broker = broker
        self._listener = listener
        self._countdown = countdown
        self._polls = 0
        self.rebalance_every = 0
        """After so many polls the group takes all tasks away and gives them again; 0: never."""
        self.is_closed = False

    @property
    def tasks(self) -> int:
        return self._broker.tasks

    def poll(self, timeout_s: float) -> None:
        self._polls += 1
        again = self.rebalance_every and self._polls % self.rebalance_every == 0
        if self._polls > 1 and again:
            self._listener.tasks_revoked(False)
        if self._polls == 1 or again:
            self._listener.tasks_assigned(range(self._broker.tasks))

    def open_tasks(self, tasks: Collection[int]) -> Mapping[int, TaskOutput]:
        made: dict[int, Any] = {task: Crashing(MemoryTaskOutput(self._broker, task), self._countdown) for task in tasks}
        return made

    def close(self) -> None:
        self.is_closed = True


class MemorySinkInput:
    """The protocol `SinkInput` for a group of one member, which gets all partitions with its first poll."""

    def __init__(self, broker: MemoryBroker, listener: PartitionListener) -> None:
        self._broker = broker
        self._listener = listener
        self._positions: dict[TopicPartition, int] = {}
        self._polls = 0
        self.rebalance_every = 0
        self.is_closed = False

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SinkRecord]:
        self._polls += 1
        again = self.rebalance_every and self._polls % self.rebalance_every == 0
        if self._polls > 1 and again:
            self._listener.partitions_revoked(False)
        if self._polls == 1 or again:
            starts = self._listener.partitions_assigned(list(self._broker.logs))
            committed = self._broker.committed
            self._positions = {place: starts.get(place, committed.get(place, 0)) for place in self._broker.logs}
        found: list[SinkRecord] = []
        for place, position in self._positions.items():
            ready = [each for each in self._broker.logs[place] if each.offset >= position]
            taken = ready[: max_records - len(found)]
            if taken:
                self._positions[place] = taken[-1].offset + 1
            found += taken
        return found

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._broker.committed.update(offsets)

    def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        self._broker.dead_letters += letters

    def close(self) -> None:
        self.is_closed = True


class Clock:
    """Seconds, one more with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def retries(timeout_ms: int = 3_600_000) -> Retries:
    """Retries that do not wait."""
    return Retries(timeout_ms, 1, 10, Clock(), lambda seconds: False)


def source_worker(
    broker: MemoryBroker,
    source: Source,
    *,
    countdown: Countdown | None = None,
    max_records: int = 3,
    commit_s: float = 4,
    rebalance_every: int = 0,
) -> SourceWorker:
    """A new process with the source; `countdown` also counts the calls of the source."""
    counted = countdown or Countdown()
    settings = SourceSettings("test", serializer(None, True), serializer(None, False), max_records, 0, commit_s, 5)

    def make_group(listener: TaskListener) -> Any:
        group = MemoryTaskGroup(broker, listener, counted)
        group.rebalance_every = rebalance_every
        return Crashing(group, counted)

    watched: Any = Crashing(source, counted)
    return SourceWorker(watched, settings, make_group, retries(), Clock())


def sink_settings(max_records: int = 3, commit_s: float = 4, **more: Any) -> SinkSettings:
    return SinkSettings(
        **{
            "connector": "test",
            "group": GROUP,
            "key": deserializer(None, True),
            "value": deserializer(None, False),
            "max_records": max_records,
            "poll_s": 0,
            "commit_s": commit_s,
            "tolerant": False,
            "dead_letter_topic": None,
            "dead_letter_headers": True,
            **more,
        }
    )


def sink_worker(
    broker: MemoryBroker,
    sink: Sink,
    settings: SinkSettings | None = None,
    *,
    countdown: Countdown | None = None,
    rebalance_every: int = 0,
) -> SinkWorker:
    """A new process with the sink; `countdown` also counts the calls of the sink."""
    counted = countdown or Countdown()

    def make_input(listener: PartitionListener) -> Any:
        made = MemorySinkInput(broker, listener)
        made.rebalance_every = rebalance_every
        return Crashing(made, counted)

    watched: Any = Crashing(sink, counted)
    return SinkWorker(watched, settings or sink_settings(), make_input, retries(), Clock())


def run_with_crashes(
    make: Callable[[Countdown], SourceWorker | SinkWorker],
    crashes: Collection[int],
    is_done: Callable[[], bool],
    release: Callable[[], None],
    most_steps: int = 2_000,
) -> None:
    """Run one process after the other: each of `crashes` is the number of calls after which one ends. The last process
    runs until `is_done`, and closes. `release` frees what a real process would free by its end.
    """
    for ticks in [*crashes, None]:
        countdown = Countdown(ticks)
        try:
            worker = make(countdown)
            for _ in range(most_steps):
                worker.step()
                if is_done():
                    break
            else:
                assert ticks is not None, "the last process has not finished"
            worker.commit()
            worker.close()
        except Crash:
            continue
        finally:
            release()


def log_of(place: TopicPartition, offsets: Iterable[int], value: Callable[[int], bytes]) -> list[SinkRecord]:
    """Records of a partition at these offsets; a record's key is its offset."""
    topic, partition = place
    return [
        SinkRecord(topic, partition, offset, str(offset).encode(), value(offset), 1_000 + offset, None)
        for offset in offsets
    ]
