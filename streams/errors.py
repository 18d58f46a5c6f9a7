"""What can go wrong in a stream application, and who decides what to do about it.

Kafka Streams asks a handler about three kinds of failure (KIP-161, KIP-210, KIP-1033): a record that cannot be
deserialized, a record that a processor chokes on, and a record that cannot be written. A handler answers CONTINUE (the
record is dropped, and counted) or FAIL (the stream thread ends). What ends a thread is given to the uncaught-exception
handler (KIP-671), which replaces the thread, or ends the client or the whole application.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from odradek.streams.records import Headers, RecordMetadata, TaskId

log = logging.getLogger(__name__)


class StreamsError(Exception):
    """Something that ends a stream thread, with a message that says where."""


class TopologyError(StreamsError):
    """A topology that cannot be: a name twice, a node without a parent, a store that is not there."""


class SerializationError(StreamsError):
    """A key or a value that a serde cannot turn into bytes, or bytes that it cannot read."""


class InvalidStateStoreError(StreamsError):
    """A store that is not here, not open, or moving to another instance."""


class UnknownStateStoreError(InvalidStateStoreError):
    """No store of this name."""


class LockError(StreamsError):
    """The directory of a task is in use by another thread or process."""


class TaskCorruptedError(StreamsError):
    """The state of tasks does not follow from their changelogs any more; it has to be built anew."""

    def __init__(self, tasks: set[TaskId], why: str) -> None:
        super().__init__(f"tasks {', '.join(map(str, sorted(tasks)))} have to restore their state anew: {why}")
        self.tasks = tasks


class TaskMigratedError(StreamsError):
    """Another thread owns the tasks of this one now: it has been away for too long, or was fenced."""


class MissingSourceTopicError(StreamsError):
    """A topic that the application reads is not there."""


class ProcessingError(StreamsError):
    """A node could not go on with a record. The message names node, topic, partition and offset."""


class Response(enum.Enum):
    """What a handler wants."""

    CONTINUE = enum.auto()
    FAIL = enum.auto()


class UncaughtResponse(enum.Enum):
    """What becomes of a client one of whose threads has ended (StreamThreadExceptionResponse)."""

    REPLACE_THREAD = enum.auto()
    SHUTDOWN_CLIENT = enum.auto()
    SHUTDOWN_APPLICATION = enum.auto()


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where a record failed. `key` and `value` are bytes of the source record for a deserialization handler."""

    task_id: TaskId
    node: str
    source: RecordMetadata
    timestamp: int
    headers: Headers

    def __str__(self) -> str:
        where = f"node={self.node}, topic={self.source.topic}, partition={self.source.partition}"
        return f"{where}, offset={self.source.offset}, task={self.task_id}"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record that could not be serialized or written; bytes, or objects where serialization failed."""

    topic: str
    key: Any
    value: Any
    partition: int | None
    timestamp: int
    headers: Headers


DeserializationHandler = Callable[[ErrorContext, bytes | None, bytes | None, Exception], Response]
"""Asked about a record's key and value as they came."""
ProcessingHandler = Callable[[ErrorContext, Any, Any, Exception], Response]
"""Asked about the key and the value that a node was given."""
ProductionHandler = Callable[[ErrorContext, Undelivered, Exception], Response]
"""Asked about a record that cannot be serialized, or that the broker refuses for good."""


def log_and_fail(context: ErrorContext, record: Any, *rest: Any) -> Response:
    """The default of all three: say what happened, and fail."""
    log.error("%s: %s", context, rest[-1])
    return Response.FAIL


def log_and_continue(context: ErrorContext, record: Any, *rest: Any) -> Response:
    """Say what happened, drop the record, go on (LogAndContinueExceptionHandler)."""
    log.warning("a record is dropped: %s: %s", context, rest[-1])
    return Response.CONTINUE


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of an application."""

    deserialization: DeserializationHandler = log_and_fail
    processing: ProcessingHandler = log_and_fail
    production: ProductionHandler = log_and_fail


DEFAULT_HANDLERS: Final = Handlers()
