"""Errors of a stream application, and the handlers that decide about them.

Kafka Streams calls a handler for three kinds of failure (KIP-161, KIP-210, KIP-1033): a record that cannot be
deserialized, a record that a processor cannot process, and a record that cannot be written. A handler returns CONTINUE
(the record is dropped, and counted) or FAIL (the stream thread ends). An error that ends a thread goes to the
uncaught-exception handler (KIP-671), which replaces the thread, or ends the client or the whole application.
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
    """An error that ends a stream thread; the message contains where it occurred."""


class TopologyError(StreamsError):
    """An invalid topology: a duplicate name, a node without a parent, a missing store."""


class ArgumentError(TopologyError, TypeError):
    """A wrong argument in the description of a topology: not a serde, not a function, or one of other parameters."""


class SerializationError(StreamsError):
    """A key or a value that a serde cannot serialize, or bytes that it cannot deserialize."""


class InvalidStateStoreError(StreamsError):
    """A store that is not on this instance, not open, or moving to another instance."""


class UnknownStateStoreError(InvalidStateStoreError):
    """No store of this name."""


class LockError(StreamsError):
    """The directory of a task is in use by another thread or process."""


class TaskCorruptedError(StreamsError):
    """The state of tasks does not agree with their changelogs any more; it has to be restored anew."""

    def __init__(self, tasks: set[TaskId], why: str) -> None:
        super().__init__(f"tasks {', '.join(map(str, sorted(tasks)))} have to restore their state: {why}")
        self.tasks = tasks


class TaskMigratedError(StreamsError):
    """Another thread owns the tasks of this one now: this thread missed a timeout, or was fenced."""


class MissingSourceTopicError(StreamsError):
    """A source topic of the application does not exist."""


class ShutdownRequestedError(StreamsError):
    """An instance has requested the shutdown of the whole application."""


class ProcessingError(StreamsError):
    """A node could not process a record. The message contains node, topic, partition and offset."""


class Response(enum.Enum):
    """The result of a handler."""

    CONTINUE = enum.auto()
    FAIL = enum.auto()


class UncaughtResponse(enum.Enum):
    """What happens to a client after one of its threads has ended (StreamThreadExceptionResponse)."""

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
"""Decides about a record; gets its serialized key and value."""
ProcessingHandler = Callable[[ErrorContext, Any, Any, Exception], Response]
"""Decides about a record; gets the key and the value that the node received."""
ProductionHandler = Callable[[ErrorContext, Undelivered, Exception], Response]
"""Decides about a record that cannot be serialized, or that the broker rejects with a permanent error."""


def log_and_fail(context: ErrorContext, record: Any, *rest: Any) -> Response:
    """The default of all three: log the error, and fail."""
    log.error("failing because of a record error=%s context=%s", rest[-1], context)
    return Response.FAIL


def log_and_continue(context: ErrorContext, record: Any, *rest: Any) -> Response:
    """Log the error, drop the record, and continue (LogAndContinueExceptionHandler)."""
    log.warning("dropping a record error=%s context=%s", rest[-1], context)
    return Response.CONTINUE


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of an application."""

    deserialization: DeserializationHandler = log_and_fail
    processing: ProcessingHandler = log_and_fail
    production: ProductionHandler = log_and_fail


DEFAULT_HANDLERS: Final = Handlers()
