"""Fetcher: requests the records of assigned partitions from their leaders (Kafka: Fetcher, AbstractFetch).

One Fetch request is in flight for each broker. The next one is sent as soon as a response is received, before its
records are processed, as long as the fetched records that wait take less than the limit; so the broker reads while the
application processes. A request names every partition of the broker that is not paused: while one has records, no
other one waits.

Before the first fetch of a position the leader returns the offset, where it is a logical one. After a change of the
leader the new one returns the end of the leader epoch of the last record; an end before the position is a truncation
(KIP-320).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.errors import KafkaError as ProtocolKafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.errors import described
from odradek.streams.clients.fetch_state import FetchState
from odradek.streams.clients.metadata import STALE, ClientMetadata, Leader
from odradek.streams.clients.network import DATA, REQUESTS, ClientNetwork
from odradek.streams.clients.offsets import Found, OffsetRequests, by_topic
from odradek.streams.clients.received import ReceivedRecords, inflate

log = logging.getLogger(__name__)

HIGHEST_FETCH: Final = 12
"""The last version that names topics."""
_REPLICA_S: Final = 300.0
"""How long a preferred replica is used (metadata.max.age.ms of Kafka's clients)."""
_NO_RECORDS: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Properties of fetches."""

    wait_ms: int
    min_bytes: int
    response_bytes: int
    partition_bytes: int
    queued_bytes: int
    """Fetched bytes that wait before no further request is sent."""
    isolation: int
    rack: str
    backoff_s: float


@dataclass(slots=True)
class Fetched:
    """The records of one partition in a response."""

    state: FetchState
    records: Any
    size: int
    is_end: bool
    """Whether there was no further record behind them."""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """An error of a partition, at an offset."""

    state: FetchState
    error: KafkaError
    offset: int


class Fetcher:
    """The fetches of one consumer."""

    def __init__(
        self, network: ClientNetwork, metadata: ClientMetadata, offsets: OffsetRequests, settings: FetchLimits
    ) -> None:
        self.states: dict[TopicPartition, FetchState] = {}
        """The assigned partitions."""
        self.fetched: deque[Fetched] = deque()
        self.failures: deque[FetchFailure] = deque()
        self._network = network
        self._metadata = metadata
        self._offsets = offsets
        self._settings = settings
        self._queued = 0
        self._in_flight: dict[int, dict[TopicPartition, tuple[FetchState, int]]] = {}
        """The partitions of the request to each broker, with the offset of each."""

    # ---- the queue of fetched records

    def drop(self, place: TopicPartition) -> None:
        """Forget an assigned partition, with its fetched records."""
        state = self.states.pop(place)
        for each in [each for each in self.fetched if each.state is state]:
            self.remove(each)
        self.failures = deque(each for each in self.failures if each.state is not state)

    def remove(self, fetched: Fetched) -> None:
        """Fetched records have all been returned, or are discarded."""
        self.fetched.remove(fetched)
        self._queued -= fetched.size

    def discard(self, state: FetchState) -> None:
        """Discard what was fetched of a partition, and fetch again behind the last returned record."""
        for each in [each for each in self.fetched if each.state is state]:
            self.remove(each)
        state.position, state.end_notified = state.consumed, -1
        state.retry_at_s = time.monotonic() + self._settings.backoff_s

    # ---- requests

    def maintain(self) -> None:
        """Send the requests that are due."""
        now = time.monotonic()
        logical: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        moved: dict[Leader, dict[TopicPartition, int]] = {}
        wanted: dict[int, dict[TopicPartition, FetchState]] = {}
        for place, state in self.states.items():
            if state.failed or state.offset_requested or now < state.retry_at_s:
                continue
            leader = self._metadata.leader(place)
            if leader is None:
                continue
            if state.is_logical:
                logical.setdefault(leader.node, {})[place] = leader.epoch, state.position
            elif state.validated != leader and not self._validate(state, leader):
                moved.setdefault(leader, {})[place] = state.epoch
            elif not state.paused:
                if state.replica >= 0 and (now >= state.replica_until_s or not self._network.knows(state.replica)):
                    state.replica = -1
                wanted.setdefault(leader.node if state.replica < 0 else state.replica, {})[place] = state
        for node, places in logical.items():
            self._request_offsets(node, places)
        for leader, epochs in moved.items():
            self._request_validation(leader, epochs)
        for node, states in wanted.items():
            if node not in self._in_flight and self._has_room() and self._network.ready((node, DATA)):
                self._fetch(node, states)

    def _has_room(self) -> bool:
        if self._queued < self._settings.queued_bytes:
            return True
        return all(each.state.paused for each in self.fetched)

    def _validate(self, state: FetchState, leader: Leader) -> bool:
        """Whether a position needs no validation: it has no epoch, or the leader has not changed since."""
        known = state.validated
        if state.epoch < 0 or leader.epoch < 0 or (known is not None and known.epoch == leader.epoch):
            state.validated = leader
            return True
        if not self._network.ready((leader.node, REQUESTS)):
            return False
        if not self._network.supports((leader.node, REQUESTS), m.OffsetForLeaderEpochRequest.API_KEY, 3):
            state.validated = leader
            return True
        return False

    def _request_offsets(self, node: int, wanted: Mapping[TopicPartition, tuple[int, int]]) -> None:
        if not self._network.ready((node, REQUESTS)):
            return
        states = self._begin(wanted)

        def receive(found: Found) -> None:
            for place, state in states.items():
                state.offset_requested = False
                code, offset = found.get(place, (ErrorCode.LEADER_NOT_AVAILABLE, -1))
                if code or offset < 0:
                    self._failed(state, code, wanted[place][1])
                else:
                    state.position = state.consumed = offset

        self._offsets.request(node, wanted, receive)

    def _request_validation(self, leader: Leader, wanted: Mapping[TopicPartition, int]) -> None:
        if not self._network.ready((leader.node, REQUESTS)):
            return
        states = self._begin(wanted)

        def receive(found: Found) -> None:
            for place, state in states.items():
                state.offset_requested = False
                code, end = found.get(place, (ErrorCode.LEADER_NOT_AVAILABLE, -1))
                if code:
                    self._failed(state, code, state.position)
                elif 0 <= end < state.position:
                    state.retry_at_s = time.monotonic() + self._settings.backoff_s
                    reason = (
                        f"the leader's log of epoch {wanted[place]} ends at {end}, the position is {state.position}"
                    )
                    self._stop(state, KafkaError(KafkaError._LOG_TRUNCATION, reason), end)
                else:
                    state.validated = leader

        self._offsets.request_end_of_epoch(leader, wanted, receive)

    def _begin(self, places: Mapping[TopicPartition, Any]) -> dict[TopicPartition, FetchState]:
        states = {place: self.states[place] for place in places}
        for state in states.values():
            state.offset_requested = True
        return states

    def _fetch(self, node: int, states: Mapping[TopicPartition, FetchState]) -> None:
        settings, kind = self._settings, m.FetchRequest
        topics = []
        for topic, places in by_topic(states).items():
            partitions = []
            for place in places:
                leader = self._metadata.leader(place)
                partitions.append(
                    kind.FetchPartition(
                        partition=place[1],
                        current_leader_epoch=-1 if leader is None else leader.epoch,
                        fetch_offset=states[place].position,
                        partition_max_bytes=settings.partition_bytes,
                    )
                )
            topics.append(kind.FetchTopic(topic=topic, partitions=partitions))
        request = kind(
            replica_id=-1,
            max_wait_ms=settings.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes,
            isolation_level=settings.isolation,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            rack_id=settings.rack,
        )
        self._in_flight[node] = {place: (state, state.position) for place, state in states.items()}
        self._network.send(
            (node, DATA), request, lambda response, error: self._receive(node, response, error), highest=HIGHEST_FETCH
        )

    # ---- responses

    def _receive(self, node: int, response: Any, error: Exception | None) -> None:
        asked = self._in_flight.pop(node)
        if error is not None:
            self._metadata.request()
            for state, _ in asked.values():
                state.replica = -1
            return
        if response.error_code:
            log.warning("fetch failed broker=%d error=%s", node, described(response.error_code))
            for state, _ in asked.values():
                state.retry_at_s = time.monotonic() + self._settings.backoff_s
            return
        for topic in response.responses:
            for part in topic.partitions:
                state, offset = asked[topic.topic, part.partition_index]
                if self.states.get(state.place) is state and state.position == offset:
                    self._take(state, part)

    def _take(self, state: FetchState, part: m.FetchResponse.PartitionData) -> None:
        if part.error_code:
            self._failed(state, part.error_code, state.position)
            return
        state.low, state.high, state.last_stable = part.log_start_offset, part.high_watermark, part.last_stable_offset
        if part.preferred_read_replica >= 0:
            state.replica, state.replica_until_s = part.preferred_read_replica, time.monotonic() + _REPLICA_S
            return
        aborted: list[tuple[int, int]] = []
        if self._settings.isolation and part.aborted_transactions:
            aborted = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions)
        data = part.records or _NO_RECORDS
        records = ReceivedRecords(data, *state.place, state.position, aborted, inflate)
        if records.leader_epoch >= 0:
            state.epoch = records.leader_epoch
        state.position = records.next_offset
        is_end = records.next_offset >= state.end(self._settings.isolation > 0)
        if len(data) or (is_end and state.end_notified != state.position):
            state.end_notified = state.position if is_end else -1
            self.fetched.append(Fetched(state, records, len(data), is_end))
            self._queued += len(data)

    def _failed(self, state: FetchState, code: int, offset: int) -> None:
        state.retry_at_s = time.monotonic() + self._settings.backoff_s
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and state.replica >= 0:
            state.replica = -1  # the follower may not have it yet
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            reason = f"offset {offset} is out of range"
            self._stop(state, KafkaError(KafkaError._AUTO_OFFSET_RESET, described(code, reason)), offset)
        elif code in STALE:
            state.replica = -1
            self._metadata.request()
        else:
            self.failures.append(FetchFailure(state, KafkaError(code, described(code)), offset))

    def _stop(self, state: FetchState, error: KafkaError, offset: int) -> None:
        """Report an error that the application handles; the partition is not read until it is assigned again."""
        if any(each.state is state for each in self.fetched):
            return  # the records before come first; the same error follows at the next fetch
        state.failed = True
        self.failures.append(FetchFailure(state, error, offset))


def is_malformed(error: Exception) -> bool:
    """Whether an error is one of received records."""
    return isinstance(error, ValueError | ProtocolKafkaError)
