"""Clients of a source: its group, its topic of offsets and its transactional producers, with confluent-kafka.

The members of the group subscribe to the topic of offsets: the partitions that the group assigns are the tasks. The
group's consumer does not read them; a second one reads a partition to its end when its task is opened.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from odradek.streams.connectors.config import ConnectorConfig
from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.group_consumer import GroupConsumer
from odradek.streams.connectors.interface import SourceOffset
from odradek.streams.connectors.source_offsets import read_offset
from odradek.streams.connectors.source_worker import OutputRecord, TaskListener
from odradek.streams.running.client import Clients, error_of
from odradek.streams.running.internal_topics import InternalTopics
from odradek.streams.running.topic_groups import WantedTopic

log = logging.getLogger(__name__)

OFFSETS_CONFIG: Final = {"cleanup.policy": "compact"}
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError._FATAL,  # of the records that a producer gets after it was fenced
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_TXN_STATE,
    }
)
"""Errors of a producer after which its task is opened anew: another one has its id, or its transaction timed out."""
_AWAY: Final = frozenset({KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._STATE})
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_ROOM_S: Final = 0.05
_OPENED_AT_ONCE: Final = 16
_CALL_S: Final = 5.0
"""How long one call of a client may take before it is tried again."""


class KafkaTaskGroup:
    """The group of a source (the protocol `TaskGroup`)."""

    def __init__(self, config: ConnectorConfig, clients: Clients, listener: TaskListener) -> None:
        """Creates the topic of offsets where it is missing, and joins the group. Raises StreamsError."""
        self._config = config
        self._clients = clients
        self._listener = listener
        self.tasks = make_offsets_topic(config, clients)
        self._group = GroupConsumer(
            clients.group_consumer(f"{clients.client_id}-group", config.group, {}),
            [config.offsets_topic],
            assigned=self._assigned,
            revoked=listener.tasks_revoked,
        )

    def poll(self, timeout_s: float) -> None:
        """Serve the group. Raises what the listener raises, and ConnectError."""
        message = self._group.consumer.poll(timeout_s)
        self._group.check([] if message is None else [message], topics_exist=False)  # a new topic may not show yet

    def open_tasks(self, tasks: Collection[int]) -> dict[int, KafkaTaskOutput]:
        """Take over tasks, several at a time: a new producer waits half a second for its coordinator. Raises
        FencedError, RetriableError, ConnectError.
        """
        with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix=f"{self._clients.client_id}-open") as pool:
            opening = [pool.submit(KafkaTaskOutput, self._config, self._clients, task) for task in tasks]
        failures = [each.exception() for each in opening]
        failure = next((each for each in failures if each is not None), None)
        if failure is None:
            return {task: each.result() for task, each in zip(tasks, opening, strict=True)}
        for each in opening:
            if each.exception() is None:
                each.result().close()
        raise failure

    def close(self) -> None:
        """Leave the group."""
        self._group.close()

    def _assigned(self, partitions: list[Position]) -> None:
        consumer = self._group.consumer
        consumer.assign(partitions)
        if partitions:
            consumer.pause(partitions)  # another consumer reads their records, when the task is opened
        self._listener.tasks_assigned([each.partition for each in partitions])


class KafkaTaskOutput:
    """The producer of a task (the protocol `TaskOutput`): transactional, unless the guarantee is at least once."""

    def __init__(self, config: ConnectorConfig, clients: Clients, task: int) -> None:
        """Fences the previous producer of the task, then reads the offsets. Raises FencedError, RetriableError,
        ConnectError.
        """
        self._topic = config.offsets_topic
        self._task = task
        self._transactional = config.streams.exactly_once
        self._timeout_s = config["task.timeout.ms"] / 1000
        self._in_transaction = False
        self._failure: ConnectError | None = None
        transactional_id = config.transactional_id(task) if self._transactional else None
        name = f"{clients.client_id}-task-{task}"
        self._producer: Producer = clients.producer(name, transactional_id, self._on_failure)
        try:
            if self._transactional:
                self._try("init_transactions", lambda: self._producer.init_transactions(_CALL_S))
            self.offsets: Mapping[bytes, SourceOffset] = read_offsets(config, clients, task)
        except BaseException:
            self.close()
            raise

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Write records into the transaction. Raises FencedError, RetriableError, ConnectError."""
        if self._transactional and not self._in_transaction:
            self._try("begin_transaction", self._producer.begin_transaction)
            self._in_transaction = True
        for record in records:
            self._produce(record)
        self._serve(lambda _: self._producer.poll(0))

    def commit(self, offsets: Mapping[bytes, bytes]) -> None:
        """Write the offsets and end the transaction; without one, after all records are acknowledged. Raises
        FencedError, ConnectError.
        """
        if not self._transactional:
            self._flush()
        self.write(OutputRecord(self._topic, key, value, None, None, self._task) for key, value in offsets.items())
        self._flush()  # the commit waits for the records, too, but in vain for one that has failed
        if self._transactional:
            self._try("commit_transaction", lambda: self._producer.commit_transaction(_CALL_S))
            self._in_transaction = False

    def close(self) -> None:
        """Abort what was not committed, and close the producer."""
        # confluent-kafka warns about an error that the log contains already: a fenced producer cannot end its
        # transaction.
        warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
        with contextlib.suppress(KafkaException, SystemError):  # a fenced producer raises in each of these calls
            if self._in_transaction:
                self._producer.purge()
                self._producer.abort_transaction(_CALL_S)
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.flush(0)
            self._producer.close()

    # ---- internals

    def _produce(self, record: OutputRecord) -> None:
        partition = -1 if record.partition is None else record.partition
        stamp = 0 if record.timestamp is None else max(record.timestamp, 1)  # 0 is "now"
        produce: Callable[..., None] = self._producer.produce
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                produce(record.topic, record.value, record.key, partition, None, None, stamp, record.headers)
                return
            except BufferError:  # the queue is full
                if time.monotonic() > deadline:
                    raise ConnectError(f"no record was acknowledged for {self._timeout_s:g} s") from None
                self._serve(self._producer.poll)
            except (KafkaException, SystemError) as exception:
                raise self._lost("produce", error_of(exception)) from exception

    def _flush(self) -> None:
        """Wait for the acknowledgement of all records, or for the first failure. Raises FencedError, RetriableError,
        ConnectError.
        """
        deadline = time.monotonic() + self._timeout_s
        while self._serve(self._producer.flush):
            if time.monotonic() > deadline:
                raise RetriableError(
                    f"task {self._task}: no acknowledgement in {self._timeout_s:g} s (task.timeout.ms)"
                )

    def _serve(self, call: Callable[[float], int]) -> int:
        """Serve the callbacks of the producer for a moment. Raises what a failed record causes."""
        try:
            result = call(_ROOM_S)
        except (KafkaException, SystemError) as exception:
            raise self._lost("serving callbacks", error_of(exception)) from exception
        self._raise_failure()
        return result

    def _on_failure(self, error: KafkaError, message: Message) -> None:
        """A record failed. What ends its transaction is reported by the transaction's own calls, too."""
        if error.code() not in _PURGED and self._failure is None:
            self._failure = self._lost(f"a write to {message.topic()}", error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _try(self, what: str, call: Callable[[], object]) -> None:
        """Call until it succeeds, or until task.timeout.ms is over. Raises FencedError, RetriableError,
        ConnectError.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                call()
                return
            except (KafkaException, SystemError) as exception:
                error = error_of(exception)
                self._raise_failure()
                if not error.retriable() or error.txn_requires_abort() or time.monotonic() > deadline:
                    raise self._lost(what, error) from exception
                log.info("retrying producer call operation=%s task=%d error=%s", what, self._task, error.str())

    def _lost(self, what: str, error: KafkaError) -> ConnectError:
        text = f"task {self._task}: {what} failed: {error.str()} ({error.name()})"
        if error.code() in _FENCED:
            return FencedError(text)
        passes = error.code() in _AWAY or error.txn_requires_abort() or error.retriable()
        return RetriableError(text) if passes else ConnectError(text)


def make_offsets_topic(config: ConnectorConfig, clients: Clients) -> int:
    """Create the topic of offsets where it is missing. Returns the number of its partitions. Raises StreamsError."""
    topics = InternalTopics(clients.admin(), config["replication.factor"], config["default.api.timeout.ms"] / 1000)
    existing = topics.partitions().get(config.offsets_topic)
    if existing is not None:
        return existing
    topics.make_ready({config.offsets_topic: WantedTopic(config["tasks.max"], OFFSETS_CONFIG)})
    return int(config["tasks.max"])


def read_offsets(config: ConnectorConfig, clients: Clients, task: int) -> dict[bytes, SourceOffset]:
    """The committed offsets of a task by key. Raises ConnectError."""
    consumer = clients.restore_consumer(
        f"{clients.client_id}-task-{task}", {"enable.partition.eof": True, "isolation.level": "read_committed"}
    )
    timeout_s = config["default.api.timeout.ms"] / 1000
    deadline = time.monotonic() + timeout_s
    found: dict[bytes, SourceOffset] = {}
    try:
        consumer.assign([Position(config.offsets_topic, task, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            message = consumer.poll(deadline - time.monotonic())
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if error is not None:
                log.warning("error while reading offsets task=%d error=%s", task, error.str())
            elif message is not None:
                _apply(found, message)
        raise ConnectError(
            f"the offsets of task {task} could not be read from {config.offsets_topic} in {timeout_s:g} s"
        )
    finally:
        consumer.close()


def _apply(found: dict[bytes, SourceOffset], message: Message) -> None:
    key, value = message.key(), message.value()
    if not isinstance(key, bytes):
        raise ConnectError(f"a record of {message.topic()} has no key: offset {message.offset()}")
    offset = read_offset(value if isinstance(value, bytes) else None)
    if offset is None:
        found.pop(key, None)
    else:
        found[key] = offset
