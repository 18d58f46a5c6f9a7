"""Offsets that leaders return: the first and the last of partitions (ListOffsets), and the end of a leader epoch
(OffsetForLeaderEpoch, KIP-320) (Kafka: OffsetFetcher, OffsetsForLeaderEpochClient).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.metadata import EVERY_STEP_S, STALE, ClientMetadata, Leader
from odradek.streams.clients.network import REQUESTS, ClientNetwork

HIGHEST_LIST_OFFSETS: Final = 7
HIGHEST_END_OFFSETS: Final = 4
_AGAIN_S: Final = 0.1
_NO_CODE: Final = -1
"""In place of an error code where no response arrived."""

Found = Mapping[TopicPartition, tuple[int, int]]
"""The error code and the offset of each partition."""


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions of each topic."""
    topics: dict[str, list[TopicPartition]] = {}
    for place in places:
        topics.setdefault(place[0], []).append(place)
    return topics


class OffsetRequests:
    """Requests for offsets of one client."""

    def __init__(self, network: ClientNetwork, metadata: ClientMetadata, isolation: int) -> None:
        """`isolation`: 1 for the last stable offset as the end, 0 for the high watermark."""
        self._network = network
        self._metadata = metadata
        self._isolation = isolation

    def request(
        self, node: int, wanted: Mapping[TopicPartition, tuple[int, int]], on_found: Callable[[Found], None]
    ) -> None:
        """Request offsets for times, or logical offsets, from the leader on an open channel. `wanted` has the leader
        epoch and the time of each partition; those without an answer are not among the found ones.
        """
        kind = m.ListOffsetsRequest
        request = kind(
            replica_id=-1,
            isolation_level=self._isolation,
            topics=[
                kind.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        kind.ListOffsetsPartition(
                            partition_index=place[1], current_leader_epoch=wanted[place][0], timestamp=wanted[place][1]
                        )
                        for place in places
                    ],
                )
                for topic, places in by_topic(wanted).items()
            ],
        )

        def receive(response: Any, error: Exception | None) -> None:
            found = {}
            if error is None:
                for topic in response.topics:
                    for each in topic.partitions:
                        if each.error_code in STALE:
                            self._metadata.request()
                        found[topic.name, each.partition_index] = each.error_code, each.offset
            else:
                self._metadata.request()
            on_found(found)

        self._network.send((node, REQUESTS), request, receive, highest=HIGHEST_LIST_OFFSETS)

    def fetch(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, tuple[int, int]]:
        """The error code and the offset for a time or logical offset of each partition, as far as leaders return them
        within the timeout. A code that a new leader may not return is not among them: the request is repeated.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        asked: set[TopicPartition] = set()
        retry_at = 0.0
        deadline = time.monotonic() + timeout_s

        def receive(places: set[TopicPartition], answers: Found) -> None:
            nonlocal retry_at
            asked.difference_update(places)
            retry_at = time.monotonic() + _AGAIN_S
            found.update((place, answer) for place, answer in answers.items() if answer[0] not in STALE)

        self._metadata.want({topic for topic, _ in wanted})
        while len(found) < len(wanted) and time.monotonic() < deadline and self._network.login_failure is None:
            left = {place: wanted[place] for place in wanted if place not in found and place not in asked}
            if time.monotonic() >= retry_at:
                for node, mine in self._by_leader(left).items():
                    if self._network.ready((node, REQUESTS)):
                        asked.update(mine)
                        self.request(node, mine, partial(receive, set(mine)))
            self._metadata.maintain()
            self._network.poll(max(0.0, min(EVERY_STEP_S, deadline - time.monotonic())))
        return found

    def request_end_of_epoch(
        self, leader: Leader, wanted: Mapping[TopicPartition, int], on_found: Callable[[Found], None]
    ) -> None:
        """Request the end offsets of leader epochs from the leader on an open channel; -1 where it has no such epoch.
        All partitions have that leader with its epoch.
        """
        kind = m.OffsetForLeaderEpochRequest
        request = kind(
            replica_id=-1,
            topics=[
                kind.OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        kind.OffsetForLeaderPartition(
                            partition=place[1], current_leader_epoch=leader.epoch, leader_epoch=wanted[place]
                        )
                        for place in places
                    ],
                )
                for topic, places in by_topic(wanted).items()
            ],
        )

        def receive(response: Any, error: Exception | None) -> None:
            found = {}
            for topic in () if error is not None else response.topics:
                for each in topic.partitions:
                    found[topic.topic, each.partition] = each.error_code, each.end_offset
            on_found(found)

        self._network.send((leader.node, REQUESTS), request, receive, highest=HIGHEST_END_OFFSETS)

    def _by_leader(self, wanted: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, tuple[int, int]]]:
        found: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for place, time_ms in wanted.items():
            leader = self._metadata.leader(place)
            if leader is not None:
                found.setdefault(leader.node, {})[place] = leader.epoch, time_ms
        return found
