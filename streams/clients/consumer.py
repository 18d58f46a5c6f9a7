"""Consumer of an application's records: the part of confluent-kafka's Consumer that the runtime calls (Kafka:
KafkaConsumer with assigned partitions).

It never joins a group. All work happens within its calls, in the thread of the caller: `consume` and `poll` send due
requests, receive responses and return records. Records are those of `received`; an error or the end of a partition
comes as a `Notice`. A call returns the records of one partition, or notices, never both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.errors import error_of_code, failure, timed_out
from odradek.streams.clients.fetch_state import BEGINNING, END, FetchState
from odradek.streams.clients.fetcher import Fetched, Fetcher, FetchLimits, is_malformed
from odradek.streams.clients.metadata import EVERY_STEP_S, ClientMetadata, cluster_of
from odradek.streams.clients.network import ClientNetwork, NetworkSettings
from odradek.streams.clients.offsets import OffsetRequests

DEFAULT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Properties of a consumer."""

    network: NetworkSettings
    fetch: FetchLimits
    metadata_age_s: float
    partition_eof: bool
    reset: int | None
    """The logical offset where a position is out of range; None: an error."""


class Notice:
    """An error, or the end of a partition, with the methods of confluent-kafka's Message."""

    __slots__ = ("_error", "_offset", "_place")

    def __init__(self, place: TopicPartition, error: KafkaError, offset: int) -> None:
        self._place, self._error, self._offset = place, error, offset

    def topic(self) -> str:
        """The topic."""
        return self._place[0]

    def partition(self) -> int:
        """The partition."""
        return self._place[1]

    def offset(self) -> int:
        """The offset at which it happened."""
        return self._offset

    def error(self) -> KafkaError:
        """The error; _PARTITION_EOF for the end of the partition."""
        return self._error


class FetchConsumer:
    """Reads assigned partitions. Only one thread at a time calls its methods."""

    def __init__(self, settings: ConsumerSettings) -> None:
        """No connection is opened before partitions are assigned or a call needs one."""
        self._settings = settings
        self._network = ClientNetwork(settings.network)
        self._metadata = ClientMetadata(
            self._network,
            max_age_s=settings.metadata_age_s,
            backoff_s=settings.network.backoff_s,
            create_topics=False,
        )
        self._offsets = OffsetRequests(self._network, self._metadata, settings.fetch.isolation)
        self._fetcher = Fetcher(self._network, self._metadata, self._offsets, settings.fetch)
        self._notices: list[Notice] = []
        self._closed = False

    # ---- partitions

    def assign(self, positions: Iterable[Position]) -> None:
        """Read these partitions in place of those before."""
        for place in list(self._fetcher.states):
            self._fetcher.drop(place)
        self.incremental_assign(positions)

    def incremental_assign(self, positions: Iterable[Position]) -> None:
        """Read these partitions in addition, from their offsets or logical offsets."""
        states = self._fetcher.states
        for each in positions:
            place = (each.topic, each.partition)
            if place in states:
                self._fetcher.drop(place)
            states[place] = FetchState(place, each.offset if each.offset in (BEGINNING, END) else max(0, each.offset))
        self._want_topics()

    def incremental_unassign(self, positions: Iterable[Position]) -> None:
        """Stop reading these partitions; their fetched records are discarded."""
        for each in positions:
            place = (each.topic, each.partition)
            if place in self._fetcher.states:
                self._fetcher.drop(place)
        self._notices = [each for each in self._notices if (each.topic(), each.partition()) in self._fetcher.states]
        self._want_topics()

    def pause(self, positions: Iterable[Position]) -> None:
        """Return no records of these partitions, and fetch none, until they are resumed. Fetched ones are kept."""
        self._set_paused(positions, True)

    def resume(self, positions: Iterable[Position]) -> None:
        """Return records of these partitions again."""
        self._set_paused(positions, False)

    def position(self, positions: Iterable[Position]) -> list[Position]:
        """The offset behind the last returned record of each partition, or the logical one that was assigned."""
        found = []
        for each in positions:
            state = self._fetcher.states.get((each.topic, each.partition))
            offset = each.offset if state is None else state.consumed
            found.append(Position(each.topic, each.partition, offset))
        return found

    # ---- records

    def consume(self, most: int, timeout: float = 0) -> list[Any]:
        """Records of one partition, or notices; none after the timeout. Returns as soon as there are any."""
        deadline = None
        while True:
            self._fetcher.maintain()
            self._metadata.maintain()
            self._network.poll(0)
            found = self._take(most)
            if found:
                self._fetcher.maintain()
                return found
            now = time.monotonic()
            deadline = now + timeout if deadline is None else deadline
            if now >= deadline:
                return []
            self._fetcher.maintain()
            self._network.poll(min(EVERY_STEP_S, deadline - now))

    def poll(self, timeout: float) -> Any:
        """One record or notice; None after the timeout."""
        found = self.consume(1, timeout)
        return found[0] if found else None

    # ---- requests

    def list_topics(self, topic: str | None = None, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Topics with their partitions and errors. Raises KafkaException."""
        response = self._metadata.fetch(None if topic is None else (topic,), timeout)
        if response is None:
            self._raise_login_failure()
            raise failure(KafkaError._TRANSPORT, "no broker returned metadata in time", retriable=True)
        return cluster_of(response)

    def offsets_for_times(self, positions: Sequence[Position], timeout: float = DEFAULT_TIMEOUT_S) -> list[Position]:
        """The offset of each partition for its time or logical offset; one without an answer is returned as it is.
        Raises KafkaException where no leader answers.
        """
        wanted = {(each.topic, each.partition): each.offset for each in positions}
        found = self._offsets.fetch(wanted, timeout)
        if wanted and not found:
            self._raise_login_failure()
            raise timed_out("listing offsets")
        results = []
        for each in positions:
            code, offset = found.get((each.topic, each.partition), (0, each.offset))
            result = Position(each.topic, each.partition, offset)
            if code:
                result.error = error_of_code(code)
            results.append(result)
        return results

    def get_watermark_offsets(
        self, position: Position, timeout: float = DEFAULT_TIMEOUT_S, cached: bool = False
    ) -> tuple[int, int] | None:
        """The first offset and the end offset; cached: as of the last fetch. None after the timeout."""
        place = (position.topic, position.partition)
        state = self._fetcher.states.get(place)
        if cached:
            return (-1001, -1001) if state is None or state.high < 0 else (state.low, self._end(state))
        deadline = time.monotonic() + timeout
        ends = []
        for logical in (BEGINNING, END):
            found = self._offsets.fetch({place: logical}, max(0.0, deadline - time.monotonic()))
            if place not in found:
                self._raise_login_failure()
                return None
            code, offset = found[place]
            if code:
                raise failure(code, error_of_code(code).str())
            ends.append(offset)
        return ends[0], ends[1]

    def close(self) -> None:
        """Close the connections."""
        if not self._closed:
            self._closed = True
            self._network.close()

    # ---- internals

    def _want_topics(self) -> None:
        topics = {topic for topic, _ in self._fetcher.states}
        self._metadata.keep_only(topics)
        self._metadata.want(topics)

    def _set_paused(self, positions: Iterable[Position], paused: bool) -> None:
        for each in positions:
            state = self._fetcher.states.get((each.topic, each.partition))
            if state is not None:
                state.paused = paused

    def _end(self, state: FetchState) -> int:
        return state.end(self._settings.fetch.isolation > 0)

    def _take(self, most: int) -> list[Any]:
        fetcher = self._fetcher
        self._note_failures()
        if self._notices:
            found, self._notices = self._notices[:most], self._notices[most:]
            return found
        for fetched in list(fetcher.fetched):
            if fetched.state.paused:
                continue
            records = self._records(fetched, most)
            if records or self._notices:
                return records or self._take(most)
        return []

    def _records(self, fetched: Fetched, most: int) -> list[Any]:
        state, fetcher = fetched.state, self._fetcher
        try:
            records: list[Any] = fetched.records.take(most)
        except Exception as error:
            if not is_malformed(error):
                raise
            fetcher.discard(state)
            self._notices.append(Notice(state.place, KafkaError(KafkaError._BAD_MSG, str(error)), state.consumed))
            return []
        state.consumed = fetched.records.position
        if len(records) < most:
            fetcher.remove(fetched)
            state.consumed = max(state.consumed, fetched.records.next_offset)
            if fetched.is_end and self._settings.partition_eof:
                end = KafkaError(KafkaError._PARTITION_EOF, "end of the partition")
                self._notices.append(Notice(state.place, end, state.consumed))
        return records

    def _note_failures(self) -> None:
        failures = self._fetcher.failures
        while failures:
            each = failures.popleft()
            if each.error.code() == KafkaError._AUTO_OFFSET_RESET and self._settings.reset is not None:
                each.state.position, each.state.failed = self._settings.reset, False
                continue
            self._notices.append(Notice(each.state.place, each.error, each.offset))
        if self._network.login_failure is not None and self._fetcher.states:
            place = next(iter(self._fetcher.states))
            self._notices.append(Notice(place, KafkaError(KafkaError._AUTHENTICATION, self._network.login_failure), -1))
            self._network.login_failure = None

    def _raise_login_failure(self) -> None:
        if self._network.login_failure is not None:
            raise failure(KafkaError._AUTHENTICATION, self._network.login_failure)
