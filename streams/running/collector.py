"""Record collector: sends the records of a thread's tasks and reports their failures (Kafka: RecordCollectorImpl).

librdkafka reports failures only. A failure belongs to a record that was sent long before: what a task writes for one
source record carries one small object, a callback with the message of that record. The collector calls the
production exception handler; on FAIL the thread gets the error at its next poll, at the latest when it flushes before a
commit.

With exactly-once processing the producer is transactional (KIP-447, one for each thread). A transaction begins with the
first record after a commit and ends with the offsets of the consumed records. A thread that was fenced or left its
group gets TaskMigratedError and closes its tasks.

A record with timestamp 0 is written with timestamp 1: librdkafka takes 0 for "now".
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.accumulator import checked_text
from odradek.streams.clients.producer import BatchProducer
from odradek.streams.context import Send, SourceMessage, TaskContext
from odradek.streams.errors import (
    DeadLetter,
    ErrorContext,
    Handlers,
    Response,
    StreamsError,
    TaskMigratedError,
    Undelivered,
    decide,
)
from odradek.streams.records import NO_TIMESTAMP, Headers, RecordMetadata, TaskId
from odradek.streams.running.client import error_of, partitions_of
from odradek.streams.running.deputy import Deputy, NotReturnedError
from odradek.streams.running.source_topics import SourceTopicCheck

log = logging.getLogger(__name__)

Origin = Callable[[KafkaError | None, Message], None]
"""The callback of a failed record: `_failed` with the source record, or `_lost_letter`."""


class _NoSource:
    """The source record of what a punctuator writes."""

    def topic(self) -> str | None:
        return None

    def partition(self) -> int:
        return -1

    def timestamp(self) -> tuple[int, int]:
        return 0, NO_TIMESTAMP

    def offset(self) -> int:
        return -1

    def key(self) -> None:
        return None

    value = headers = key


NO_SOURCE: Final = _NoSource()
MakeProducer = Callable[[Callable[[KafkaError, Message], None]], Producer]
_ROOM_S: Final = 0.05
CLOSE_S: Final = 10.0
"""How long a closing producer waits for its queued records."""
_FIRST_TRY_S: Final = 5.0
_AGAIN_S: Final = 1.0
"""The timeout for refreshing a known partition count; without an answer the old count stays."""
_OVERDUE_S: Final = 3.0
"""How long after its own timeout a call is still awaited."""
_MIGRATED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.INVALID_TXN_STATE,
    }
)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class RecordCollector:
    """The output of a thread's tasks. Only that thread calls its methods."""

    def __init__(
        self,
        make_producer: MakeProducer,
        handlers: Handlers,
        timeout_s: float,
        *,
        transactional: bool = False,
        metadata_s: float = 300.0,
        writers: Mapping[str, tuple[int, str]] | None = None,
        source_topics: SourceTopicCheck | None = None,
    ) -> None:
        """Creates the producer; a transactional one has called init_transactions after this. Raises StreamsError.

        `timeout_s` bounds the retries of transient errors (task.timeout.ms), `metadata_s` the age of a cached partition
        count (metadata.max.age.ms). `writers` maps a topic to the sub-topology and the node that write it, for the
        context of a failure. `source_topics` finds deleted topics while their offsets are committed in a transaction.
        """
        self._source_topics = source_topics
        self._make_producer = make_producer
        self._handlers = handlers
        self._timeout_s = timeout_s
        self._metadata_s = metadata_s
        self._transactional = transactional
        self._writers = dict(writers or {})
        self._failure: StreamsError | None = None
        self._fatal = False
        self._stuck = False
        """A producer call has not returned."""
        self._counts: dict[str, tuple[int, float]] = {}
        """The partition counts of topics, and when each expires."""
        self._in_transaction = False
        self.dropped = 0
        """Records that were dropped because a handler returned CONTINUE."""
        self._open()

    # ---- records

    def sender(self, context: TaskContext) -> Send:
        """What writes the records of one task with the current producer; see `context.Collector`."""
        produce: Callable[..., None] = self._producer.produce
        transactional, failed = self._transactional, functools.partial(self._failed, context.task_id)
        without_source: Origin = MethodType(failed, NO_SOURCE)
        if self._has_own_producer:
            return self._own_sender(context, failed, without_source)
        source: SourceMessage | None = None
        origin = without_source

        def send(
            topic: str, key: bytes | None, value: bytes | None, partition: int | None, timestamp: int, headers: Headers
        ) -> None:
            nonlocal source, origin
            if transactional and not self._in_transaction:
                self._begin()
            if context.source_message is not source:
                source = context.source_message
                origin = without_source if source is None else MethodType(failed, source)
            try:
                stamp = timestamp if timestamp > 0 else _stamp(timestamp)
                produce(topic, value, key, -1 if partition is None else partition, origin, None, stamp, headers)
            except (BufferError, KafkaException, TypeError, ValueError) as error:
                self._refused(Undelivered(topic, key, value, partition, timestamp, headers), origin, error)

        return send

    def _own_sender(self, context: TaskContext, failed: Callable[..., None], without_source: Origin) -> Send:
        """The same for a producer that makes a callback of the source record where a record fails."""
        produce: Callable[..., None] = self._producer.produce
        transactional = self._transactional

        def send(topic: str, key: Any, value: Any, partition: int | None, timestamp: int, headers: Headers) -> None:
            if transactional and not self._in_transaction:
                self._begin()
            source = context.source_message
            origin = without_source if source is None else failed
            try:
                stamp = timestamp if timestamp > 0 else _stamp(timestamp)
                produce(topic, value, key, -1 if partition is None else partition, origin, source, stamp, headers)
            except (BufferError, KafkaException, TypeError, ValueError) as error:
                record = Undelivered(topic, _in_bytes(key), _in_bytes(value), partition, timestamp, headers)
                self._refused(record, without_source if source is None else MethodType(failed, source), error)

        return send

    @property
    def write_text(self) -> Callable[[Any], Any]:
        """The serializer of texts for `sender`, whose keys and values may be texts where the producer is Odradek's."""
        return checked_text if self._has_own_producer else str.encode

    @property
    def _has_own_producer(self) -> bool:
        producer: Any = self._producer
        return isinstance(producer, BatchProducer)

    def add_writer(self, topic: str, node: str) -> None:
        """A sink writes to a topic that it chose for a record."""
        self._writers.setdefault(topic, (-1, node))

    def send_dead_letter(self, letter: DeadLetter) -> None:
        """Write a record that a handler returned. A failure of it is not for a handler: the thread gets the error."""
        if self._transactional and not self._in_transaction:
            self._begin()
        record = Undelivered(letter.topic, letter.key, letter.value, None, letter.timestamp, letter.headers)
        produce: Callable[..., None] = self._producer.produce
        stamp = _stamp(letter.timestamp)
        try:
            produce(letter.topic, letter.value, letter.key, -1, self._lost_letter, None, stamp, letter.headers)
        except (BufferError, KafkaException, TypeError, ValueError) as error:
            self._refused(record, self._lost_letter, error)

    def partitions_of(self, topic: str) -> int:
        """The partition count of a topic, at most metadata.max.age.ms old. Raises StreamsError."""
        known, now = self._counts.get(topic), time.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        try:
            count = partitions_of(self._producer, topic, self._timeout_s if known is None else _AGAIN_S)
        except StreamsError as error:
            if known is None:
                raise
            log.info("cannot refresh partition count error=%s", error)
            count = known[0]
        self._counts[topic] = count, now + self._metadata_s
        return count

    def poll(self) -> None:
        """Serve delivery callbacks. Raises the first failure that no handler continued on: StreamsError or
        TaskMigratedError.
        """
        self._serve_callbacks(self._producer.poll, 0)
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Wait until all records are acknowledged. Raises as `poll` does, or after task.timeout.ms."""
        left = self._serve_callbacks(self._producer.flush, self._timeout_s)
        if self._failure is not None:
            raise self._failure
        if left:
            raise StreamsError(f"{left} records were not acknowledged within {self._timeout_s:g} s (task.timeout.ms)")

    def settle(self) -> bool:
        """Wait briefly for acknowledgments, and raise nothing. Returns whether all records were acknowledged.

        `renew` or `close` then discards the unacknowledged records together with this producer.
        """
        if self._failure is None and not self._serve_callbacks(self._producer.flush, min(CLOSE_S, self._timeout_s)):
            return self._failure is None
        self._fatal = True
        return False

    # ---- transactions

    @property
    def in_transaction(self) -> bool:
        """Whether records were written since the last commit."""
        return self._in_transaction

    def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]], group_metadata: bytes) -> None:
        """Commit the written records with offsets and their metadata. Raises TaskMigratedError, StreamsError."""
        self._begin()
        positions = [Position(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
        if positions:
            topics = {place[0] for place in offsets}
            send = self._producer.send_offsets_to_transaction
            self._try("committing offsets", send, positions, group_metadata, in_vain=lambda: self._are_deleted(topics))
        self._try("committing a transaction", self._producer.commit_transaction)
        self._in_transaction = False
        if self._failure is not None:
            raise self._failure

    def abort(self) -> None:
        """Abort the open transaction. Raises nothing: if the abort fails, the coordinator or the next producer aborts
        it.
        """
        if not self._in_transaction:
            return
        self._in_transaction = False
        try:
            if not self._fatal:
                self._try("aborting a transaction", self._producer.abort_transaction)
        except (StreamsError, TaskMigratedError) as error:
            self._fatal = True
            log.warning("cannot abort transaction error=%s", error)

    def renew(self) -> None:
        """Continue after a failure; an unusable producer is replaced by a new one."""
        self.abort()
        if self._fatal:
            self._close_producer()
            self._open()
        self._failure = None

    def close(self) -> None:
        """Abort the open transaction, or send the queued records, and close the producer."""
        self.abort()
        if not self._transactional and not self._fatal and self._failure is None:
            self._serve_callbacks(self._producer.flush, min(CLOSE_S, self._timeout_s))
        self._close_producer()

    # ---- internals

    def _open(self) -> None:
        self._producer: Producer = self._make_producer(self._delivered)
        self._deputy = Deputy(f"{threading.current_thread().name}-transactions")
        self._fatal = self._stuck = False
        self._failure = None
        if self._transactional:
            self._try("registering the transactional id", self._producer.init_transactions)

    def _refused(self, record: Undelivered, origin: Origin, error: Exception) -> None:
        """The producer rejects a record: its queue is full, or the error is permanent."""
        deadline = time.monotonic() + self._timeout_s
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise StreamsError(
                    f"the producer has had no room for a record of {record.topic} for {self._timeout_s:g} s "
                    "(task.timeout.ms): the brokers do not take them"
                )
            self._serve_callbacks(self._producer.poll, _ROOM_S)
            if self._failure is not None:
                raise self._failure
            partition = -1 if record.partition is None else record.partition
            produce: Callable[..., None] = self._producer.produce
            try:
                stamp = _stamp(record.timestamp)
                produce(record.topic, record.value, record.key, partition, origin, None, stamp, record.headers)
                return
            except (BufferError, KafkaException, TypeError, ValueError) as again:
                error = again
        if isinstance(error, KafkaException):
            self._judge(record, origin, error.args[0])
        else:  # headers that librdkafka cannot write
            self._ask(record, origin, error, repr(error))
        if self._failure is not None:
            raise self._failure

    def _serve_callbacks(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Call the producer so that it serves callbacks (poll, flush). Returns the result of the call, or 1 on failure.

        A fatal error leaves this call as an exception, and its pending delivery reports are then not delivered.
        """
        try:
            return call(timeout_s)
        except (KafkaException, SystemError) as exception:
            error = error_of(exception)
            self._fatal = self._fatal or _is_fatal(error)
            if self._failure is None:
                self._failure = self._lost("while it wrote", error)
            return 1

    def _lost(self, when: str, error: KafkaError) -> StreamsError:
        message = f"the producer was fenced or lost its producer id {when}: {error.str()}"
        return TaskMigratedError(message) if self._transactional else StreamsError(message)

    def _delivered(self, error: KafkaError, message: Message) -> None:
        """The producer's own callback, for a record without an origin."""
        self._failed(TaskId(-1, -1), NO_SOURCE, error, message)

    def _failed(self, task_id: TaskId, source: SourceMessage, error: KafkaError | None, message: Message) -> None:
        """Called within poll and flush, for what failed: the source record, the error, and the record."""
        _notice_fatal_error()
        if error is not None and error.code() not in _PURGED:  # else it was aborted with its transaction
            self._judge(_undelivered(message), MethodType(functools.partial(self._failed, task_id), source), error)

    def _lost_letter(self, error: KafkaError | None, message: Message) -> None:
        """Called within poll and flush for a dead letter that failed."""
        _notice_fatal_error()
        if error is not None and error.code() not in _PURGED:
            self._judge(_undelivered(message), self._lost_letter, error)

    def _judge(self, record: Undelivered, origin: Origin, error: KafkaError) -> None:
        """A record is not written: decide whether the application continues without it."""
        if self._failure is not None:
            return
        where = f"topic={record.topic}, partition={record.partition}"
        if _is_fatal(error) or error.code() in _MIGRATED:
            self._fatal = self._fatal or _is_fatal(error)
            self._failure = self._lost(f"while it wrote to {where}", error)
            return
        if error.code() == KafkaError._MSG_TIMED_OUT:
            # The brokers did not answer for as long as librdkafka retries: the record is not the cause, so no handler
            # is called. The state is ahead of the changelog; it returns to the last commit, and the thread processes
            # the records again.
            self._failure = TaskMigratedError(
                f"records were not acknowledged in time, those for {where} among them: the brokers are away or slow. "
                "producer.message.timeout.ms sets how long to try (exactly once, producer.transaction.timeout.ms)"
            )
            return
        if self._transactional and error.code() == KafkaError._STATE:
            # The transaction has failed asynchronously, and with it every record to come: the record is not the cause.
            # A new producer with the same transactional id continues.
            self._fatal = True
            self._failure = TaskMigratedError(
                f"the transaction had failed when a record came for {where}: {error.str()}"
            )
            return
        self._ask(record, origin, KafkaException(error), f"{error.str()} ({error.name()})")

    def _ask(self, record: Undelivered, origin: Origin, error: Exception, text: str) -> None:
        """The record is the cause of its failure: the handler decides."""
        where = f"topic={record.topic}, partition={record.partition}"
        if origin == self._lost_letter:
            self._failure = StreamsError(f"Error encountered sending a dead letter to {where}: {text}")
            return
        context = self._context(record, origin)
        try:
            decision = decide(self._handlers.production, context, record, error)
            for letter in decision.dead_letters:
                self.send_dead_letter(letter)
        except StreamsError as problem:
            self._failure = self._failure or problem
            return
        if decision.response is Response.CONTINUE:
            self.dropped += 1
            return
        self._failure = StreamsError(
            f"Error encountered sending record to {where}: {text}. {context}. The production exception handler "
            "returned FAIL; default.production.exception.handler sets another"
        )

    def _context(self, record: Undelivered, origin: Any) -> ErrorContext:
        (task_id,), source = origin.__func__.args, origin.__self__
        _, node = self._writers.get(record.topic, (-1, f"the writer of {record.topic}"))
        return ErrorContext(
            task_id,
            node,
            RecordMetadata(source.topic() or "", source.partition(), source.offset()),
            source.timestamp()[1],
            source.headers(),
            source.key(),
            source.value(),
            self._handlers.dead_letter_topic,
        )

    def _are_deleted(self, topics: Iterable[str]) -> bool:
        """Whether one of the topics was deleted: librdkafka would retry the commit of its offset until the timeout."""
        now, check = time.monotonic(), self._source_topics
        return check is not None and check.due(now) and bool(check.poll(now, topics))

    def _begin(self) -> None:
        if not self._in_transaction:
            self._try("beginning a transaction", self._producer.begin_transaction, timed=False)
            self._in_transaction = True

    def _try(
        self,
        what: str,
        call: Callable[..., Any],
        *arguments: Any,
        timed: bool = True,
        in_vain: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call until it succeeds, or until task.timeout.ms is over. Raises TaskMigratedError, StreamsError."""
        deadline = time.monotonic() + self._timeout_s
        once_s = min(_FIRST_TRY_S, self._timeout_s)
        while True:
            try:
                if timed:
                    self._deputy.call(once_s + _OVERDUE_S, call, *arguments, once_s, in_vain=in_vain)
                else:
                    call(*arguments)
                return
            except NotReturnedError:
                self._fatal = self._stuck = True
                raise TaskMigratedError(f"{what}: the client has not returned; a new one replaces it") from None
            except (KafkaException, SystemError) as exception:
                error = error_of(exception)
                self._fatal = self._fatal or _is_fatal(error)
                if self._failure is not None and not isinstance(self._failure, TaskMigratedError):
                    raise self._failure from exception  # a record failed before; the transaction with it
                if _is_fatal(error) or error.code() in _MIGRATED or error.txn_requires_abort():
                    raise TaskMigratedError(f"{what}: {error.str()} ({error.name()})") from exception
                if not error.retriable() or time.monotonic() > deadline:
                    raise StreamsError(f"{what}: {error.str()} ({error.name()})") from exception
                log.info("retrying producer call operation=%s error=%s", what, error.str())

    def _close_producer(self) -> None:
        """Close the producer without waiting for its queued records."""
        producer = self._producer
        # confluent-kafka warns about an error that the log contains already: a fenced producer cannot end its
        # transaction.
        warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)

        def end() -> None:
            with contextlib.suppress(KafkaException, SystemError):  # a fenced producer raises in each of these calls
                producer.purge()
                producer.flush(0)
            producer.close()

        try:
            if not self._stuck:  # else the next producer with the transactional id fences it
                self._deputy.call(_FIRST_TRY_S, end)  # without a purge it would retry the failed abort forever
        except NotReturnedError:
            log.warning("abandoning a producer that did not close timeout_s=%g", _FIRST_TRY_S)
        except (KafkaException, SystemError) as exception:
            log.info("error while closing a producer error=%s", error_of(exception).str())
        finally:
            self._deputy.close()


def _in_bytes(part: Any) -> Any:
    return part.encode() if isinstance(part, str) else part


def _undelivered(message: Message) -> Undelivered:
    stamp = message.timestamp()[1]
    headers: Any = message.headers()
    return Undelivered(str(message.topic()), message.key(), message.value(), message.partition(), stamp, headers)


def _is_fatal(error: KafkaError) -> bool:
    """Whether the producer is unusable. After a fatal error it reports `_FATAL` for the records it gets."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def _stamp(timestamp: int) -> int:
    """A timestamp for librdkafka: 0 (the current time) for a record without one; the epoch itself becomes 1 ms."""
    return max(timestamp, 1) if timestamp >= 0 else 0


def _notice_fatal_error() -> None:
    """End a callback that the client calls although it has raised a fatal error before.

    Python finds that error when a class is called, and raises the SystemError that `error_of` expects. A callback that
    went on would leave an error that no `except` clause catches.
    """
    TaskId(-1, -1)
