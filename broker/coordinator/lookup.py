"""Coordinator lookup: finds the coordinator of a group or a transactional id (Kafka: KafkaApis.getCoordinator).

The coordinator is the leader of the key's partition of `__consumer_offsets` or `__transaction_state`. The broker
creates these topics at the first FindCoordinator request; until then there is no coordinator. Appends to them follow
the rules of acks=all for every value of `offsets.commit.required.acks` (Kafka deprecated it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.broker.controller.auto_topic_creation import AutoCreatedTopic, TopicCreator, TopicsKnown
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.metadata.state.topics import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.broker.transaction.state.settings import TransactionSettings
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode

TRANSACTION_KEY = 1
NO_ERROR: Final = ErrorCode.NONE
CODECS = {0: Codec.NONE, 1: Codec.GZIP, 2: Codec.SNAPPY, 3: Codec.LZ4, 4: Codec.ZSTD}
"""`offsets.topic.compression.codec` by number."""


class Coordinators:
    """Finds the broker that coordinates a group or a transactional id."""

    def __init__(
        self, topics: InternalTopicSettings, metadata_cache: MetadataCache, creator: TopicCreator, known: TopicsKnown
    ) -> None:
        """`known` waits for conditions on `metadata_cache`."""
        self._topics = topics
        self._metadata_cache = metadata_cache
        self._creator = creator
        self._known = known

    def await_coordinators(
        self,
        kind: int,
        keys: Sequence[str],
        listener: str,
        timeout_ms: int,
        charge: Callable[[int], None],
        done: Callable[[], None],
    ) -> None:
        """Call `done` once, when each key has a coordinator or the timeout is over; perhaps before this returns.

        Creates the internal topic if it does not exist; the timeout begins after that. `charge` then receives the
        number of its partitions, unless another request had begun to create it.
        """

        def all_have_one() -> bool:
            return not any(self.coordinator(kind, key, listener)[0] for key in keys)

        def wait() -> None:
            if name in self._metadata_cache.topics:
                self._known.wait_until(all_have_one, timeout_ms, done)
            else:
                done()  # the topic could not be created

        def created(outcomes: Mapping[str, ErrorCode]) -> None:
            topic = self._metadata_cache.topics.get(name)
            if is_first and topic is not None and outcomes.get(name) is ErrorCode.NONE:
                charge(len(topic.partitions))
            wait()

        name = _topic_of(kind)
        is_first = not self._creator.is_creating(name)
        if name in self._metadata_cache.topics:
            wait()
        else:
            self._creator.create([self._topics.creatable_topic(name)], created)

    def coordinator(self, kind: int, key: str, listener: str) -> tuple[ErrorCode, int, str, int, str | None]:
        """Error, node id, host and port of the coordinator for a listener, and an error message."""
        topic = self._metadata_cache.topics.get(_topic_of(kind))
        if topic is None:
            return _unavailable(None)
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = self._metadata_cache.brokers.get(partition.leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            return _unavailable(None)
        return NO_ERROR, broker.broker_id, endpoint.host, endpoint.port, None


class InternalTopicSettings:
    """Settings for the creation of internal topics (Kafka: AutoTopicCreationManager)."""

    def __init__(self, groups: GroupSettings, transactions: TransactionSettings, replicas: Callable[[], int]) -> None:
        """`replicas()` is the largest replication factor that is possible now. Kafka waits until there are as many
        brokers as the property requires; with the default of 3, a single broker could then never serve a client.
        """
        self._groups = groups
        self._transactions = transactions
        self._replicas = replicas

    def creatable_topic(self, name: str) -> AutoCreatedTopic:
        """The partitions, replication factor and configs for the automatic creation of a topic."""
        if name == GROUP_OFFSETS:
            return AutoCreatedTopic(
                name,
                partitions=self._groups.offsets_topic_num_partitions,
                replication_factor=min(self._groups.offsets_topic_replication_factor, self._replicas()),
                configs={
                    "cleanup.policy": "compact",
                    "segment.bytes": str(self._groups.offsets_topic_segment_bytes),
                    "compression.type": "producer",
                },
            )
        if name == TRANSACTION_STATE:
            factor = min(self._transactions.transaction_state_log_replication_factor, self._replicas())
            return AutoCreatedTopic(
                name,
                partitions=self._transactions.transaction_state_log_num_partitions,
                replication_factor=factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(min(self._transactions.transaction_state_log_min_isr, factor)),
                    "segment.bytes": str(self._transactions.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return AutoCreatedTopic(name)


def _topic_of(kind: int) -> str:
    return TRANSACTION_STATE if kind == TRANSACTION_KEY else GROUP_OFFSETS


def _unavailable(message: str | None) -> tuple[ErrorCode, int, str, int, str | None]:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1, message
