"""Context for unit tests of a processor without a driver (Kafka: org.apache.kafka.streams.processor.api).

    context = MockProcessorContext()
    processor = Doubling()
    processor.init(context)
    processor.process(Record("key", 2, 0))
    assert [each.record.value for each in context.forwarded()] == [4]

The context calls no punctuator, forwards to no node and commits nothing: it captures what the processor requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic

from odradek.streams.config import StreamsConfig
from odradek.streams.context import Send, TaskContext
from odradek.streams.errors import DeadLetter, UnknownStateStoreError
from odradek.streams.java_names import JavaNames
from odradek.streams.nodes import interval_in_ms
from odradek.streams.processor import PunctuationType, Punctuator
from odradek.streams.records import Record, RecordMetadata, TaskId
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.stores.interface import StateStore
from odradek.streams.type_variables import KOut, VOut


@dataclass(frozen=True, slots=True)
class CapturedForward(Generic[KOut, VOut]):
    """A record that the processor forwarded (MockProcessorContext.CapturedForward)."""

    record: Record[KOut, VOut]
    child_name: str | None = None
    """The child that it was sent to; None for all."""


@dataclass(slots=True)
class CapturedPunctuator:
    """A punctuation that the processor scheduled (MockProcessorContext.CapturedPunctuator)."""

    interval: timedelta
    type: PunctuationType
    punctuator: Punctuator
    """Call it with a time in ms, as a task would."""
    cancelled: bool = False

    def cancel(self) -> None:
        """Mark it as canceled."""
        self.cancelled = True


class MockProcessorContext(JavaNames, Generic[KOut, VOut]):
    """A ProcessorContext that captures the requests of a processor (MockProcessorContext)."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        task_id: TaskId | None = None,
        state_dir: Path | None = None,
    ) -> None:
        """`config` holds the application's properties, `state_dir` is the directory of persistent stores. Raises
        StreamsConfigError.
        """
        self.config = StreamsConfig({"application.id": "mock", "bootstrap.servers": "mock:1", **(config or {})})
        self.application_id: str = self.config["application.id"]
        self.task_id = task_id or TaskId(0, 0)
        self.state_dir = state_dir
        self.record_metadata: RecordMetadata | None = None
        """The origin of the current record; see `set_record_metadata`."""
        self.current_stream_time_ms = 0
        """A test sets it."""
        self.current_system_time_ms = 0
        """A test sets it."""
        self.committed = False
        """Whether the processor has requested a commit since `reset_commit`."""
        self.scheduled_punctuators: list[CapturedPunctuator] = []
        self._forwarded: list[CapturedForward[KOut, VOut]] = []
        self._stores: dict[str, StateStore] = {}
        self._task: TaskContext | None = None
        self._metrics = StreamsMetrics(self.config, lambda: self.current_system_time_ms)

    # ---- called by the processor

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Capture a record."""
        self._forwarded.append(CapturedForward(record, child))

    def schedule(self, interval: int | timedelta, kind: PunctuationType, callback: Punctuator) -> CapturedPunctuator:
        """Capture a punctuation. Raises ValueError for an interval below one ms."""
        captured = CapturedPunctuator(timedelta(milliseconds=interval_in_ms(interval)), kind, callback)
        self.scheduled_punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Capture the request."""
        self.committed = True

    def state_store(self, name: str) -> Any:
        """The store that the test has added. Raises UnknownStateStoreError."""
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownStateStoreError(f"no store {name} was added; there are {sorted(self._stores)}") from None

    def metrics(self) -> StreamsMetrics:
        """The sensors of the processor."""
        return self._metrics

    # ---- called by the test

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Set the origin of the current record."""
        self.record_metadata = RecordMetadata(topic, partition, offset)

    def add_state_store(self, store: StateStore) -> None:
        """Add a store that the processor may use. Its `init` was called with `state_store_context`."""
        self._stores[store.name] = store

    @property
    def state_store_context(self) -> TaskContext:
        """The context for a store's `init`. The changes of a store are not logged."""
        if self._task is None:
            clock, cache = (lambda: self.current_system_time_ms), ThreadCache(0)
            self._task = TaskContext(
                self.task_id, _NoOutput(), clock, self.config, cache, store_dir=self.state_dir, metrics=self._metrics
            )
        return self._task

    def forwarded(self, child: str | None = None) -> list[CapturedForward[KOut, VOut]]:
        """The captured records; for a child those that reach it: sent to it, or to all."""
        return [each for each in self._forwarded if child is None or each.child_name in (None, child)]

    def reset_forwards(self) -> None:
        """Forget the captured records."""
        self._forwarded.clear()

    def reset_commit(self) -> None:
        """Forget the request of a commit."""
        self.committed = False


class _NoOutput:
    """A task without topics."""

    def sender(self, context: TaskContext) -> Send:
        return lambda *record: None

    def add_writer(self, topic: str, node: str) -> None:
        """Nothing is written."""

    def send_dead_letter(self, letter: DeadLetter) -> None:
        """Nothing is written."""

    def partitions_of(self, topic: str) -> int:
        return 1
