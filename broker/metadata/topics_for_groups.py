"""The topics of the cluster for the state machines of groups: a snapshot of `MetadataCache` with a version."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.metadata.cache import MetadataCache


class CachedTopics:
    """Implements `Topics` of `machines.consumer_group_requests`."""

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache
        self.version = 1
        """Incremented with every change of the metadata cache."""
        metadata_cache.watch(self._changed)

    def _changed(self) -> None:
        self.version += 1

    def names(self) -> Iterable[str]:
        return self._metadata_cache.topics

    def id_of(self, name: str) -> bytes | None:
        topic = self._metadata_cache.topics.get(name)
        return topic.topic_id if topic is not None else None

    def name_of(self, topic_id: bytes) -> str | None:
        return self._metadata_cache.name_of(topic_id)

    def partition_count(self, name: str) -> int:
        topic = self._metadata_cache.topics.get(name)
        return len(topic.partitions) if topic is not None else 0
