"""Racks of the brokers that have the replicas of an application's partitions (Kafka: RackUtils, KIP-925)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from odradek.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class ReplicaRacks:
    """Requests the replicas of topics at the first call, and returns the same answer later."""

    def __init__(self, admin: AdminClient, topics: Iterable[str], timeout_s: float) -> None:
        self._admin = admin
        self._topics = sorted(set(topics))
        self._timeout_s = timeout_s
        self._found: Mapping[TopicPartition, frozenset[str]] | None = None

    def __call__(self) -> Mapping[TopicPartition, frozenset[str]]:
        """The racks of each partition; brokers without broker.rack have none. A topic that the cluster does not
        describe in time is missing.
        """
        if self._found is None:
            self._found = self._request()
        return self._found

    def _request(self) -> dict[TopicPartition, frozenset[str]]:
        found: dict[TopicPartition, frozenset[str]] = {}
        answers = self._admin.describe_topics(TopicCollection(self._topics), request_timeout=self._timeout_s)
        for topic, answer in answers.items():
            try:
                partitions = answer.result(self._timeout_s).partitions
            except (KafkaException, TimeoutError) as error:
                log.warning("cannot describe the replicas topic=%s error=%s", topic, error)
                continue
            for each in partitions:
                found[topic, each.id] = frozenset(node.rack for node in each.replicas if node.rack)
        return found
