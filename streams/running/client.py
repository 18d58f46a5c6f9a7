"""Clients of an application: consumers, producers and an admin client of confluent-kafka (Kafka: KafkaClientSupplier).

Each stream thread has a consumer for its records, a consumer for restoration, and a producer, with the names that Kafka
Streams gives them (`<client.id>-StreamThread-1-consumer`). A consumer here never joins a group: the thread assigns its
partitions, and `membership.py` is the member. This module sets the configs of each client; prefixed configs of the user
go through to librdkafka, except for those that the runtime's guarantees rest on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, libversion
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.consumer import FetchConsumer
from odradek.streams.clients.producer import BatchProducer
from odradek.streams.clients.properties import consumer_settings, producer_settings
from odradek.streams.clients.received import ReceivedRecord, ReceivedRecordInPython
from odradek.streams.config import (
    LIBRDKAFKA,
    ODRADEK,
    TRANSACTION_TIMEOUT_MS,
    StreamsConfig,
    StreamsConfigError,
    forced,
)
from odradek.streams.errors import StreamsError

log = logging.getLogger(__name__)

_MAIN: Final[Mapping[str, Any]] = {
    "fetch.queue.backoff.ms": 5,  # a full queue drains within milliseconds; librdkafka's default backoff is a second
    "queued.max.messages.kbytes": 32_768,
    "fetch.wait.max.ms": 100,  # newly assigned partitions wait for the response to the previous fetch
}
_CONSUMERS: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # each source node has its own reset policy
}
_MEMBER: Final = (
    "client.rack",
    "group.instance.id",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
)
"""Properties of a member of a group, which librdkafka has by Kafka's names."""
_PRODUCER: Final[Mapping[str, Any]] = {
    "linger.ms": 100,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 65_536,
    "partitioner": "murmur2_random",  # Java's default: hash of the key, null keys to any partition
}
_DELIVERY: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
}

_REBOOTSTRAPS: Final = 0x020B0000
_RECOVERY: Final[Mapping[str, Any]] = {"metadata.recovery.strategy": "none"} if libversion()[1] >= _REBOOTSTRAPS else {}
"""From 2.11 on librdkafka rebootstraps from bootstrap.servers when all brokers are away (KIP-899), but continues to
wait for the old coordinator: the next send_offsets_to_transaction never returns (seen with 2.16).
"""

_RECORDS: Final = frozenset({ReceivedRecord, ReceivedRecordInPython})
"""The classes of a FetchConsumer's records: a call returns those of one partition, without errors among them."""
OnDelivery = Callable[[KafkaError, Message], None]


SOCKETS: Final = {
    "connections.max.idle.ms": "connections.max.idle.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Kafka's names of properties of connections, and librdkafka's, whose 0 is Kafka's -1."""


class Clients:
    """Creates the clients of one application."""

    def __init__(self, config: StreamsConfig, client_id: str) -> None:
        """`client_id` is the prefix of all client names."""
        self.client_id = client_id
        self._config = config
        self._isolation = "read_committed" if config.exactly_once else "read_uncommitted"

    def main_consumer(self, thread: str, partition_eof: bool) -> Any:
        """For the records of a thread's tasks. Raises StreamsConfigError."""
        fixed = {**_CONSUMERS, "enable.partition.eof": partition_eof}
        return self._consumer(f"{thread}-consumer", "main.consumer.", _MAIN, fixed)

    def restore_consumer(self, thread: str, fixed: Mapping[str, Any]) -> Any:
        """For changelogs; `fixed` are the configs that restoration requires. Raises StreamsConfigError."""
        return self._consumer(f"{thread}-restore-consumer", "restore.consumer.", _MAIN, {**_CONSUMERS, **fixed})

    def global_consumer(self, fixed: Mapping[str, Any]) -> Any:
        """For the topics of global tables. Raises StreamsConfigError."""
        name = f"{self.client_id}-global-consumer"
        return self._consumer(name, "global.consumer.", _MAIN, {**_CONSUMERS, **fixed})

    def group_consumer(self, name: str, group: str, fixed: Mapping[str, Any]) -> Any:
        """For a connector: a consumer that joins `group` by itself, with the application's timeouts, and reads
        committed records. `fixed` are the configs that the connector requires. Raises StreamsConfigError.
        """
        config = self._config
        reset = config["auto.offset.reset"]
        defaults = {
            **_MAIN,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error" if reset == "none" else reset,
            **{each: config[each] for each in _MEMBER if config[each] is not None},
        }
        demanded = {"enable.auto.commit": False, "enable.auto.offset.store": False, "group.id": group, **fixed}
        given = forced("consumer.", {**defaults, **config.prefixed("consumer.")}, demanded)
        return _make(Consumer, {**self._common(name), **given}, "consumer.")

    def producer(self, thread: str, transactional_id: str | None, on_delivery: OnDelivery) -> Any:
        """For all records that a thread's tasks write; `on_delivery` is called for failed records only. Raises
        StreamsConfigError.
        """
        fixed = dict(_DELIVERY)
        defaults = dict(_PRODUCER)
        if transactional_id is not None:
            fixed["transactional.id"] = transactional_id
            defaults["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
        given = forced("producer.", {**defaults, **self._config.prefixed("producer.")}, fixed)
        made = {**self._common(f"{thread}-producer"), **given, "on_delivery": on_delivery}
        if self._config["client.implementation"] == ODRADEK:
            return _make(lambda given: BatchProducer(producer_settings(given), on_delivery), made, "producer.", ODRADEK)
        return _make(Producer, made, "producer.")

    def admin(self) -> AdminClient:
        """For topic administration. Raises StreamsConfigError."""
        made = {**self._common(f"{self.client_id}-admin"), **self._config.prefixed("admin.client.")}
        return _make(AdminClient, made, "admin.client.")  # type: ignore[no-any-return]

    def _consumer(self, name: str, prefix: str, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        demanded = dict(fixed)
        defaults = {**defaults, "isolation.level": self._isolation}
        if self._config.exactly_once:
            demanded["isolation.level"] = self._isolation
        demanded["group.id"] = self._config["application.id"]
        rack = self._config["client.rack"]
        given = forced(prefix, {**defaults, **self._config.prefixed("consumer.", prefix)}, demanded)
        made = {**self._common(name), **({"client.rack": rack} if rack else {}), **given}
        if self._config["client.implementation"] == ODRADEK:
            return _make(lambda given: FetchConsumer(consumer_settings(given)), made, prefix, ODRADEK)
        return _make(Consumer, made, prefix)

    def _common(self, name: str) -> dict[str, Any]:
        config = self._config
        return {
            "bootstrap.servers": config["bootstrap.servers"],
            "client.id": name,
            "metadata.max.age.ms": max(config["metadata.max.age.ms"], 10_000),
            "topic.metadata.refresh.interval.ms": config["metadata.max.age.ms"],
            "logger": log,
            **_RECOVERY,
            "reconnect.backoff.max.ms": 1_000,  # as Kafka has it
            **{theirs: max(0, config[ours]) for ours, theirs in SOCKETS.items() if config[ours] is not None},
            "error_cb": _log_error,
            **config.for_all_clients,
        }


def _make(kind: Any, properties: Mapping[str, Any], prefix: str, implementation: str = LIBRDKAFKA) -> Any:
    try:
        return kind(dict(properties))
    except (KafkaException, ValueError, TypeError) as error:
        problem = error.args[0]
        detail = problem.str() if isinstance(problem, KafkaError) else str(problem)
        raise StreamsConfigError(
            f"{implementation} rejects a property (it receives those with prefix {prefix}*): {detail}"
        ) from error


def _log_error(error: KafkaError) -> None:
    """Log an error of librdkafka's error callback: mostly unavailable brokers, to which it reconnects."""
    log.log(logging.ERROR if error.fatal() else logging.DEBUG, "%s", error.str())


def error_of(exception: KafkaException | SystemError) -> KafkaError:
    """The error of a failed client call. Raises any other SystemError again.

    The call that serves the client's callbacks raises a fatal error. Python rejects the callbacks that this call makes
    afterwards and raises a SystemError, caused by the exception that was set.
    """
    cause: BaseException | None = exception
    while isinstance(cause, SystemError):
        cause = cause.__cause__
    if not isinstance(cause, KafkaException):
        raise exception
    error: KafkaError = cause.args[0]
    return error


def partitions_of(client: Producer | Consumer | AdminClient, topic: str, timeout_s: float) -> int:
    """How many partitions a topic has. Raises StreamsError."""
    try:
        found = client.list_topics(topic, timeout=timeout_s).topics.get(topic)
    except KafkaException as error:
        raise StreamsError(f"cannot request metadata of the topic {topic}: {error.args[0].str()}") from error
    if found is None or found.error is not None:
        detail = found.error.str() if found is not None and found.error is not None else "it does not exist"
        raise StreamsError(f"cannot find the topic {topic}: {detail}")
    return len(found.partitions)


def high_watermarks(
    admin: AdminClient, places: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """The high watermarks of partitions, open transactions included, as far as brokers return them in so many
    seconds.
    """
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    deadline = time.monotonic() + timeout_s
    found = {}
    stale = False
    for place, future in admin.list_offsets(
        {Position(*place): latest for place in places}, request_timeout=timeout_s
    ).items():
        try:
            offset = future.result(max(0.0, deadline - time.monotonic())).offset
            if offset >= 0:
                found[place.topic, place.partition] = offset
            else:  # while leaders change it can be -1 with no error; as an end offset that would empty a store
                stale = True
        except (KafkaException, TimeoutError) as error:
            log.warning("cannot list end offset topic=%s partition=%d error=%s", place.topic, place.partition, error)
            stale = True
    if stale:
        # An admin client keeps its cached leaders and epochs even after a broker rejects them; a metadata request for
        # the whole cluster refreshes them for the next call.
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=timeout_s)
    return found


def take_batch(consumer: Any, most: int, timeout_s: float) -> list[Any]:
    """The available records, or else the first to arrive; none after the timeout."""
    if isinstance(consumer, FetchConsumer):
        return consumer.consume(most, timeout_s)
    messages: list[Message] = consumer.consume(most, 0)
    if not messages and timeout_s > 0:  # `consume` with a timeout would wait until the batch is full
        first = consumer.poll(timeout_s)
        if first is not None:
            messages = [first, *consumer.consume(most - 1, 0)]
    return messages


def has_errors(messages: list[Any]) -> bool:
    """Whether any of the messages of one call is not a record."""
    kind = type(messages[0])
    if kind in _RECORDS:
        return False
    # A KafkaError must not be compared with None: it fails at that.
    return any(map(kind.error, messages))


def by_partition(messages: list[Any]) -> dict[TopicPartition, list[Any]]:
    """Group messages by partition; they arrive in runs of one partition."""
    kind = type(messages[0])  # that of the client; no lookup a record
    if kind in _RECORDS:
        return {(messages[0].topic(), messages[0].partition()): messages}
    topics = list(map(kind.topic, messages))
    partitions = list(map(kind.partition, messages))
    place: TopicPartition = (topics[0], partitions[0])
    if topics.count(place[0]) == partitions.count(place[1]) == len(messages):
        return {place: messages}
    found: dict[TopicPartition, list[Any]] = {}
    start = 0
    for place, run in groupby(zip(topics, partitions, strict=True)):
        end = start + sum(1 for _ in run)
        found.setdefault(place, []).extend(messages[start:end])
        start = end
    return found
