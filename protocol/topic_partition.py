"""The name of a partition (Kafka: org.apache.kafka.common.TopicPartition)."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""Topic and index of a partition. A plain tuple, because every request makes one for each partition that it names."""
