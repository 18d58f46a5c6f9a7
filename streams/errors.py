"""Errors of a stream application, and the handlers that decide about them.

Kafka Streams calls a handler for three kinds of failure (KIP-161, KIP-210, KIP-1033): a record that cannot be
deserialized, a record that a processor cannot process, and a record that cannot be written. A handler takes the
context, the record and the error, and returns CONTINUE (the record is dropped, and counted) or FAIL (the stream thread
ends), each with dead letters if it wants: records that the task writes in its transaction (KIP-1034). An error that
ends a thread goes to the uncaught-exception handler (KIP-671), which replaces the thread, or ends the client or the
whole application.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.streams.records import Headers, Record, RecordMetadata, TaskId

log = logging.getLogger(__name__)


class StreamsError(Exception):
    """An error that ends a stream thread; the message contains where it occurred."""

    task_id: TaskId | None = None
    """The task whose work raised it; None outside of a task."""


@contextlib.contextmanager
def of_task(task_id: TaskId) -> Iterator[None]:
    """Set the task of a StreamsError that is raised within (StreamsException.setTaskId)."""
    try:
        yield
    except StreamsError as error:
        if error.task_id is None:
            error.task_id = task_id
        raise


class TopologyError(StreamsError):
    """An invalid topology: a duplicate name, a node without a parent, a missing store."""


class ArgumentError(TopologyError, TypeError):
    """A wrong argument in the description of a topology: not a serde, not a function, or one of other parameters."""


class SerializationError(StreamsError):
    """A key or a value that a serde cannot serialize, or bytes that it cannot deserialize."""


class StoreSerializationError(SerializationError):
    """A key or a value that a serde of a store cannot serialize, or cannot read from the store.

    As in Kafka Streams it is an error of the node that uses the store: processing.exception.handler decides about it.
    """


class InvalidStateStoreError(StreamsError):
    """A store that is not on this instance, not open, or moving to another instance."""


class UnknownStateStoreError(InvalidStateStoreError):
    """No store of this name."""


class StoreFormatError(StreamsError):
    """The directory or the changelog of a store has the state of another kind of store, or of other serdes."""


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
    """A source topic of the application does not exist, or not any more (MissingSourceTopicException)."""


class ShutdownRequestedError(StreamsError):
    """An instance has requested the shutdown of the whole application."""


class ProcessingError(StreamsError):
    """A node could not process a record. The message contains node, topic, partition and offset."""


def ends_thread(error: Exception) -> bool:
    """Whether an exception of a node ends the thread; processing.exception.handler decides about the others."""
    return isinstance(error, StreamsError) and not isinstance(error, StoreSerializationError)


class Response(enum.Enum):
    """The result of a handler."""

    CONTINUE = enum.auto()
    FAIL = enum.auto()

    def with_dead_letters(self, *records: DeadLetter) -> Decision:
        """This result, and records that the task writes, in its transaction, before it takes effect."""
        return Decision(self, records)


class UncaughtResponse(enum.Enum):
    """What happens to a client after one of its threads has ended (StreamThreadExceptionResponse)."""

    REPLACE_THREAD = enum.auto()
    SHUTDOWN_CLIENT = enum.auto()
    SHUTDOWN_APPLICATION = enum.auto()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for a dead letter queue; `timestamp` in ms."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a handler with dead letters (Kafka 4.2: Response.resume and Response.fail with records)."""

    response: Response
    dead_letters: tuple[DeadLetter, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where a record failed: the node, and the source record that the task was processing. A punctuator has no source
    record: its topic is empty, its partition and offset are -1.
    """

    task_id: TaskId
    node: str
    source: RecordMetadata
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None = None
    """The key of the source record as it was read; None where the failure is of a record that was sent before."""
    source_raw_value: bytes | None = None
    dead_letter_topic: str | None = None
    """errors.dead.letter.queue.topic.name"""

    def __str__(self) -> str:
        where = f"node={self.node}, topic={self.source.topic}, partition={self.source.partition}"
        return f"{where}, offset={self.source.offset}, task={self.task_id}"

    def dead_letter(
        self, error: Exception, key: bytes | None, value: bytes | None, topic: str | None = None
    ) -> DeadLetter:
        """A record for `topic`, by default that of the configuration, with the headers of the source record and those
        of Kafka 4.2 about the error (ExceptionHandlerUtils.buildDeadLetterQueueRecord).

        Raises StreamsError where there is no topic.
        """
        chosen = topic or self.dead_letter_topic
        if chosen is None:
            raise StreamsError("errors.dead.letter.queue.topic.name is not set; dead_letter() needs a topic")
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        about = {
            "exception": name,
            "message": str(error) or None,
            "stacktrace": "".join(traceback.format_exception(error)),
            "topic": self.source.topic or None,
            "partition": str(self.source.partition),
            "offset": str(self.source.offset),
        }
        headers: list[tuple[str, bytes | None]] = [*(self.headers or [])]
        headers += [
            (f"__streams.errors.{each}", None if text is None else text.encode()) for each, text in about.items()
        ]
        return DeadLetter(chosen, key, value, self.timestamp, headers)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record that could not be serialized or written; bytes, or objects where serialization failed."""

    topic: str
    key: Any
    value: Any
    partition: int | None
    timestamp: int
    headers: Headers
    serialized: bool = True
    """Whether key and value are bytes."""


Handler = Callable[[ErrorContext, Any, Exception], "Response | Decision"]
"""Decides about a record: of (context, record, error). The record is a Record of bytes for a deserialization handler, a
Record of objects for a processing handler (None for a punctuator), and an Undelivered for a production handler.
"""
HANDLER_FORMS: Final = (("context", "record", "error"), ("context", "key", "value", "error"))
"""The parameters of a handler. The second form, of earlier releases, is for handlers of deserialization and processing.
"""


def log_and_fail(context: ErrorContext, record: Any, error: Exception) -> Response | Decision:
    """The default of all three: log the error, write a dead letter if errors.dead.letter.queue.topic.name is set, and
    fail.
    """
    log.error("failing because of a record error=%s context=%s", error, context)
    return _with_dead_letter(Response.FAIL, context, record, error)


def log_and_continue(context: ErrorContext, record: Any, error: Exception) -> Response | Decision:
    """Log the error, write a dead letter if errors.dead.letter.queue.topic.name is set, drop the record, and continue
    (LogAndContinueExceptionHandler).
    """
    log.warning("dropping a record error=%s context=%s", error, context)
    return _with_dead_letter(Response.CONTINUE, context, record, error)


def _with_dead_letter(response: Response, context: ErrorContext, record: Any, error: Exception) -> Response | Decision:
    """A dead letter has the bytes of the source record, or of the record that the broker did not accept."""
    if context.dead_letter_topic is None:
        return response
    key, value = context.source_raw_key, context.source_raw_value
    if isinstance(record, Undelivered) and record.serialized:
        key, value = record.key, record.value
    return response.with_dead_letters(context.dead_letter(error, key, value))


def three_arguments(handler: Callable[..., Any], arguments: int) -> Handler:
    """A handler of (context, record, error) from one of so many arguments; of four are (context, key, value, error)."""
    if arguments != len(HANDLER_FORMS[1]):
        return handler

    def called(context: ErrorContext, record: Record | None, error: Exception) -> Response | Decision:
        key, value = (None, None) if record is None else (record.key, record.value)
        result: Response | Decision = handler(context, key, value, error)
        return result

    return called


def decide(handler: Handler, context: ErrorContext, record: Any, error: Exception) -> Decision:
    """The decision of a handler. Raises StreamsError where the handler raises, or returns anything else."""
    try:
        result: Any = handler(context, record, error)
    except Exception as problem:
        raise StreamsError(
            f"Fatal user code error in an exception handler, called for {error!r} of {context}: {problem!r}"
        ) from problem
    if isinstance(result, Response):
        return Decision(result)
    if isinstance(result, Decision):
        return result
    raise StreamsError(
        f"An exception handler returned {result!r} for {error!r} of {context}; expected Response.CONTINUE or "
        "Response.FAIL"
    )


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of an application, and the topic of its dead letters."""

    deserialization: Handler = log_and_fail
    processing: Handler = log_and_fail
    production: Handler = log_and_fail
    dead_letter_topic: str | None = None


DEFAULT_HANDLERS: Final = Handlers()
