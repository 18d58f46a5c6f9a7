"""Processor API: user-defined nodes for operations that the DSL has no operator for (Kafka: Processor, KIP-478).

The supplier, a callable without arguments, makes a new processor for each task. A processor gets its context once and
every record afterwards, all in one thread. `forward` sends a record to all children, or to a named one.
(org.apache.kafka.streams.processor.api.Processor, KIP-478; FixedKeyProcessor, KIP-820.)

    class Dedup(Processor):
        def init(self, context):
            self.context, self.seen = context, context.state_store("seen")

        def process(self, record):
            if self.seen.put_if_absent(record.key, record.timestamp) is None:
                self.context.forward(record)
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol

from odradek.streams.records import Record, RecordMetadata, TaskId
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.type_variables import K, KOut, V, VOut


class PunctuationType(enum.Enum):
    """The clock of a punctuator: the timestamps of records, or wall-clock time."""

    STREAM_TIME = enum.auto()
    WALL_CLOCK_TIME = enum.auto()


Punctuator = Callable[[int], None]
"""Called with the time in ms: the task's stream time, or wall-clock time."""


class Cancellable(Protocol):
    """A punctuation that can be canceled."""

    def cancel(self) -> None:
        """Never call it again."""


class ProcessorContext(Protocol[KOut, VOut]):
    """The position of a processor in the topology, and its operations on the rest of it."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The application's configuration."""

    @property
    def state_dir(self) -> Path | None:
        """The task's directory; None in a driver without a disk."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The origin of the current record; None within a punctuator."""

    @property
    def current_stream_time_ms(self) -> int:
        """The latest timestamp that the task has processed, -1 before the first."""

    @property
    def current_system_time_ms(self) -> int: ...

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Send a record to all children, or to one. Raises StreamsError for an unknown child."""

    def state_store(self, name: str) -> Any:
        """A store that is connected to this processor. Raises UnknownStateStoreError."""

    def schedule(self, interval: int | timedelta, kind: PunctuationType, callback: Punctuator) -> Cancellable:
        """Call back every `interval` (ms where it is a number). Raises ValueError below one ms."""

    def commit(self) -> None:
        """Request a commit soon."""

    def metrics(self) -> StreamsMetrics:
        """The sensors of the application, which all of its threads share."""


class Processor(ABC, Generic[K, V, KOut, VOut]):
    """A user-defined node: `Processor[str, int, str, float]` by the types of its input and output. Override what is
    needed.
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once before the first record."""
        self.context = context

    @abstractmethod
    def process(self, record: Record[K, V]) -> None:
        """Called for each record."""

    def close(self) -> None:
        """Called once when the task closes."""


class FixedKeyProcessor(Processor[K, V, K, VOut]):
    """A processor that may not change keys: it must forward records with the key that it received (KIP-820).

    `FixedKeyProcessor[str, int, float]`: the types of the key, of values of the input, and of those of the output.
    """


ProcessorSupplier = Callable[[], Processor[Any, Any, Any, Any]]
"""Makes a processor for each task. An attribute `stores` (a sequence of store builders) is added to the topology and
connected (KIP-401)."""
