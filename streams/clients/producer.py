"""Producer of an application's records: the part of confluent-kafka's Producer that the runtime calls (Kafka:
KafkaProducer).

It is idempotent, and waits for the acknowledgment of all in-sync replicas. `produce` writes a record into a batch and
does nothing else; batches are sent, and responses received, within the other calls. Failed records are reported from
`poll` and `flush`, each by the callback that it was produced with.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError

from odradek.protocol.errors import ErrorCode
from odradek.streams.clients.accumulator import Accumulator
from odradek.streams.clients.errors import described, failure, timed_out
from odradek.streams.clients.metadata import ClientMetadata, cluster_of
from odradek.streams.clients.network import ClientNetwork, NetworkSettings
from odradek.streams.clients.outgoing import Outgoing
from odradek.streams.clients.sender import BatchSender, SenderSettings
from odradek.streams.clients.transactions import ProducerIdentity, Transactions
from odradek.streams.clients.undelivered import records_of

DEFAULT_TIMEOUT_S: Final = 60.0
_STEP_S: Final = 0.05
_METADATA_S: Final = 1.0
"""How long `produce` waits for the partitions of a topic before it reports a full queue."""
OnDelivery = Callable[[KafkaError, Any], None]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Properties of a producer; times in seconds."""

    network: NetworkSettings
    sender: SenderSettings
    metadata_age_s: float
    missing_topic_s: float
    """How long a topic may not exist before its records are rejected."""
    linger_s: float
    batch_bytes: int
    record_bytes: int
    most_bytes: int
    most_records: int
    transactional_id: str | None
    transaction_timeout_ms: int


class BatchProducer:
    """Writes records. Only one thread at a time calls its methods."""

    def __init__(self, settings: ProducerSettings, on_delivery: OnDelivery) -> None:
        """`on_delivery` receives failed records that were produced without a callback."""
        self._settings = settings
        self._on_delivery = on_delivery
        self._network = ClientNetwork(settings.network)
        self._metadata = ClientMetadata(
            self._network,
            max_age_s=settings.metadata_age_s,
            backoff_s=settings.network.backoff_s,
            create_topics=True,
        )
        self._accumulator = Accumulator(
            settings.batch_bytes,
            settings.record_bytes,
            settings.most_bytes,
            settings.most_records,
            random.randrange(1 << 16),
            self._partitions_of,
            _refuse,
        )
        self._metadata.on_topic = self._accumulator.set_partitions
        self.produce: Callable[..., None] = self._accumulator.produce
        """As confluent-kafka's, with eight positional arguments; see accumulator.py."""
        self._missing: dict[str, float] = {}
        """Topics that do not exist, and since when."""
        self._undelivered: deque[tuple[Outgoing, KafkaError]] = deque()
        self._identity: ProducerIdentity | Transactions
        if settings.transactional_id is None:
            self._identity = ProducerIdentity(self._network, self._restart)
        else:
            timeout_ms = settings.transaction_timeout_ms
            self._identity = Transactions(self._network, settings.transactional_id, timeout_ms, self._restart)
        self._sender = BatchSender(self._network, self._metadata, self._identity, settings.sender, self._fail)
        self._closed = False
        self._network.open_any()  # so that the first record does not wait for it

    # ---- records

    def poll(self, timeout: float = 0) -> int:
        """Send what is due, and report failed records. Waits for responses up to the timeout. Returns the number of
        reported records. Raises KafkaException after a fatal error.
        """
        self._drive(self._settings.linger_s)
        self._network.poll(timeout)
        self._drive(self._settings.linger_s)
        return self._report()

    def flush(self, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """Wait until all records are acknowledged or reported. Returns how many are not, after the timeout. Raises
        KafkaException after a fatal error.
        """
        deadline = time.monotonic() + timeout
        left = self._drain(deadline)
        self._report()
        return left

    def purge(self) -> None:
        """Discard all records that are not in flight, without a report."""
        self._accumulator.due(float("inf"))
        self._sender.purge()
        self._undelivered.clear()

    def list_topics(self, topic: str | None = None, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Topics with their partitions and errors. Raises KafkaException."""
        response = self._metadata.fetch(None if topic is None else (topic,), timeout)
        if response is None:
            raise failure(KafkaError._TRANSPORT, "no broker returned metadata in time", retriable=True)
        return cluster_of(response)

    def close(self) -> None:
        """Discard all records, and close the connections."""
        if not self._closed:
            self._closed = True
            self.purge()
            self._network.close()

    # ---- transactions

    def init_transactions(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Register the transactional id. Raises KafkaException."""
        self._transactions.register(time.monotonic() + timeout, self._step)

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._transactions.begin()

    def send_offsets_to_transaction(
        self, positions: Iterable[Any], group_metadata: bytes, timeout: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Add offsets to the transaction. Raises KafkaException."""
        self._transactions.send_offsets(positions, group_metadata, time.monotonic() + timeout, self._step)

    def commit_transaction(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Commit, after all records are acknowledged. Raises KafkaException."""
        deadline = time.monotonic() + timeout
        self._transactions.check_open()
        if self._drain(deadline):
            self._transactions.check_open()
            raise timed_out("committing a transaction")
        self._transactions.commit(deadline, self._step)

    def abort_transaction(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Discard the records that are not in flight, and abort. Raises KafkaException."""
        deadline = time.monotonic() + timeout
        self._accumulator.due(float("inf"))
        sent = self._sender.purge()
        while self._sender.in_flight and time.monotonic() < deadline:
            self._network.poll(_STEP_S)
            sent = self._sender.purge() or sent  # a batch in flight failed, and waits for another attempt
        if self._sender.in_flight:
            raise timed_out("aborting a transaction")
        self._undelivered.clear()
        self._transactions.abort(deadline, self._step, sent=sent)

    # ---- internals

    @property
    def _transactions(self) -> Transactions:
        if isinstance(self._identity, Transactions):
            return self._identity
        raise failure(KafkaError._NOT_CONFIGURED, "the producer has no transactional.id")

    def _restart(self) -> None:
        self._sender.restart()

    def _step(self) -> None:
        """Work that goes on while a call waits."""
        self._metadata.maintain()

    def _drive(self, linger_s: float) -> None:
        for batch in self._accumulator.due(time.monotonic() - linger_s):
            self._metadata.want((batch.topic,))
            self._sender.add(batch)
        if self._identity.fatal is not None or self._identity.abortable is not None:
            self._sender.purge()  # the transaction is lost, and the next call of the runtime raises why
        self._identity.drive(self._sender.in_flight)
        self._sender.drive()
        self._metadata.maintain()

    def _drain(self, deadline: float) -> int:
        """Send all records. Returns how many batches are left after the deadline or an error of the transaction."""
        while True:
            self._drive(-1.0)
            left = self._sender.unacknowledged
            now = time.monotonic()
            if not left or now >= deadline or self._identity.fatal is not None:
                return left
            self._network.poll(min(_STEP_S, deadline - now))

    def _fail(self, outgoing: Outgoing, error: KafkaError) -> None:
        self._undelivered.append((outgoing, error))

    def _report(self) -> int:
        count = 0
        while self._undelivered:
            outgoing, error = self._undelivered.popleft()
            for record, origin in zip(records_of(outgoing.batch), outgoing.batch.origins(), strict=True):
                (origin or self._on_delivery)(error, record)
                count += 1
        fatal = self._identity.fatal
        if fatal is not None:
            raise failure(fatal.code(), fatal.str(), fatal=True)
        return count

    def _partitions_of(self, topic: str) -> int:
        """The partitions of a topic that nothing was written to yet. Raises KafkaException, BufferError."""
        self._metadata.want((topic,))
        deadline = time.monotonic() + _METADATA_S
        while (count := self._metadata.partition_count(topic)) is None:
            now = time.monotonic()
            code = self._metadata.error_of(topic)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                since = self._missing.setdefault(topic, now)
                if now - since >= self._settings.missing_topic_s:
                    del self._missing[topic]
                    raise failure(KafkaError._UNKNOWN_TOPIC, f"the topic {topic} does not exist")
            elif code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise failure(code, described(code, topic))
            if now >= deadline:
                raise BufferError(f"no broker has returned the partitions of {topic}")
            self._drive(self._settings.linger_s)
            self._network.poll(_STEP_S)
        self._missing.pop(topic, None)
        self._sender.connect(topic, count)
        return count


def _refuse(code: int, reason: str, number: int) -> NoReturn:
    raise failure(code, f"{reason}: {number}")
