"""Metadata of a client: the leaders of its topics (Kafka: Metadata, MetadataCache).

The client names the topics that it needs. It is refreshed when it is old, when a topic is new, and when a request fails
because of it. An older leader epoch than the known one is ignored: a broker may be behind (KIP-320).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.errors import error_of_code
from odradek.streams.clients.network import REQUESTS, ClientNetwork

log = logging.getLogger(__name__)

BY_NAME: Final = 12
"""The highest version of Metadata of Kafka 3.9; responses have topic ids from version 10 on."""
EVERY_STEP_S: Final = 0.05
"""How often a blocking call looks for a connection to send its request on."""
STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which the leader has to be found again."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition; its epoch is -1 where the broker returned none."""

    node: int
    epoch: int


@dataclass(slots=True)
class _Topic:
    error_code: int
    leaders: dict[int, Leader]
    topic_id: object


class ClientMetadata:
    """The leaders of topics, as brokers returned them last."""

    def __init__(self, network: ClientNetwork, *, max_age_s: float, backoff_s: float, create_topics: bool) -> None:
        """`create_topics`: whether a request for a missing topic lets the broker create it."""
        self._network = network
        self._max_age_s = max_age_s
        self._backoff_s = backoff_s
        self._create_topics = create_topics
        network.on_failure = self.request
        self._topics: dict[str, _Topic] = {}
        self._wanted: set[str] = set()
        self._in_flight = False
        self._requested = False
        self._at_s = self._tried_s = -1e9
        self.version = 0
        """It grows with each response."""
        self.on_topic: Callable[[str, int], None] = lambda topic, partitions: None
        """Called with a topic and its partition count after each response that has them."""

    # ---- what is known

    def leader(self, place: TopicPartition) -> Leader | None:
        """The leader of a partition; None where it is not known, which requests it."""
        topic = self._topics.get(place[0])
        found = None if topic is None else topic.leaders.get(place[1])
        if found is None or found.node < 0:
            self.want((place[0],))
            self.request()
            return None
        return found

    def error_of(self, topic: str) -> int:
        """The error code of a topic in the last response that had it; 0 for none."""
        known = self._topics.get(topic)
        return 0 if known is None else known.error_code

    def partition_count(self, topic: str) -> int | None:
        """The partition count of a topic; None where it is not known."""
        known = self._topics.get(topic)
        return len(known.leaders) if known is not None and known.leaders and not known.error_code else None

    # ---- what is requested

    def want(self, topics: Iterable[str]) -> None:
        """Keep these topics up to date from now on."""
        fresh = set(topics) - self._wanted
        if fresh:
            self._wanted |= fresh
            self._requested = True

    def keep_only(self, topics: set[str]) -> None:
        """Forget all topics but these."""
        self._wanted &= topics

    def request(self) -> None:
        """Request the topics again soon: a leader was wrong or is missing."""
        self._requested = True

    def maintain(self) -> None:
        """Send a request where one is due; the network receives its response."""
        now = time.monotonic()
        due = self._requested or now - self._at_s > self._max_age_s
        if due and self._wanted and not self._in_flight and now - self._tried_s >= self._backoff_s:
            self._send(sorted(self._wanted), now)

    def fetch(self, topics: Iterable[str] | None, timeout_s: float) -> m.MetadataResponse | None:
        """The response to a request for these topics, or for all; None after the timeout."""
        found: list[Any] = []
        request = self._request_for(topics)
        deadline = time.monotonic() + timeout_s
        sent_to: int | None = None

        def receive(response: Any, error: Exception | None) -> None:
            nonlocal sent_to
            sent_to = None
            if error is None:
                self._apply(response)
                found.append(response)

        while not found:
            if sent_to is None:
                node = self._network.any_node()
                if self._network.ready((node, REQUESTS)):
                    sent_to = node
                    self._network.send((node, REQUESTS), request, receive, highest=BY_NAME)
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._network.login_failure is not None:
                break
            self._network.poll(min(left_s, EVERY_STEP_S) if sent_to is None else left_s)
        return found[0] if found else None

    # ---- internals

    def _request_for(self, topics: Iterable[str] | None) -> m.MetadataRequest:
        kind = m.MetadataRequest.MetadataRequestTopic
        named = None if topics is None else [kind(name=topic) for topic in topics]
        return m.MetadataRequest(topics=named, allow_auto_topic_creation=self._create_topics and topics is not None)

    def _send(self, topics: list[str], now: float) -> None:
        channel = (self._network.any_node(), REQUESTS)
        if not self._network.ready(channel):
            return
        self._tried_s, self._in_flight, self._requested = now, True, False

        def receive(response: Any, error: Exception | None) -> None:
            self._in_flight = False
            if error is None:
                self._apply(response)
                self._at_s = time.monotonic()
            else:
                self._requested = True

        self._network.send(channel, self._request_for(topics), receive, highest=BY_NAME)

    def _apply(self, response: m.MetadataResponse) -> None:
        if response.brokers:
            self._network.set_nodes({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        for topic in response.topics:
            name = topic.name or ""  # None only for requests by id
            known = self._topics.get(name)
            leaders = {} if known is None or known.topic_id != topic.topic_id else known.leaders
            if not topic.error_code:
                leaders = {
                    each.partition_index: _newer(leaders.get(each.partition_index), each) for each in topic.partitions
                }
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                leaders = {}  # it was deleted; a new one begins with epoch 0
            self._topics[name] = _Topic(topic.error_code, leaders, topic.topic_id)
            if leaders:
                self.on_topic(name, len(leaders))
            if name in self._wanted and (topic.error_code or any(each.node < 0 for each in leaders.values())):
                self._requested = True
        self.version += 1


def _newer(known: Leader | None, read: m.MetadataResponse.MetadataResponsePartition) -> Leader:
    if known is not None and 0 <= read.leader_epoch < known.epoch:
        return known
    return Leader(read.leader_id, read.leader_epoch)


def cluster_of(response: m.MetadataResponse) -> Any:
    """The topics of a response, with the attributes of confluent-kafka's ClusterMetadata that the runtime reads."""
    topics: Mapping[str, Any] = {
        topic.name or "": SimpleNamespace(
            error=error_of_code(topic.error_code) if topic.error_code else None,
            partitions={each.partition_index: SimpleNamespace(leader=each.leader_id) for each in topic.partitions},
        )
        for topic in response.topics
    }
    return SimpleNamespace(topics=topics)
