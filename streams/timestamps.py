"""Timestamp extractors: Kafka's predefined functions for the timestamp of a record (Kafka: TimestampExtractor).

An extractor is a function of key, value, the record's own timestamp, the latest of its partition before it, and the
record's origin; it returns the record's timestamp in ms, and a negative number drops the record. The record's own
timestamp is event time, or ingestion time where the topic has `message.timestamp.type=LogAppendTime`.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from odradek.streams.errors import StreamsError
from odradek.streams.records import RecordMetadata

log = logging.getLogger(__name__)


def fail_on_invalid_timestamp(key: Any, value: Any, timestamp: int, partition_time: int, source: RecordMetadata) -> int:
    """The record's own timestamp. Raises StreamsError where it is negative (FailOnInvalidTimestamp, the default)."""
    if timestamp < 0:
        raise StreamsError(
            f"Input record of {source.topic}-{source.partition} at offset {source.offset} has invalid (negative) "
            f"timestamp {timestamp}. Use another timestamp extractor to process it."
        )
    return timestamp


def log_and_skip_on_invalid_timestamp(
    key: Any, value: Any, timestamp: int, partition_time: int, source: RecordMetadata
) -> int:
    """The record's own timestamp; a record whose timestamp is negative is dropped (LogAndSkipOnInvalidTimestamp)."""
    if timestamp < 0:
        log.warning(
            "dropping a record with a negative timestamp topic=%s partition=%d offset=%d timestamp=%d",
            source.topic,
            source.partition,
            source.offset,
            timestamp,
        )
    return timestamp


def use_partition_time_on_invalid_timestamp(
    key: Any, value: Any, timestamp: int, partition_time: int, source: RecordMetadata
) -> int:
    """The record's own timestamp, or the latest of its partition where that is negative.

    Raises StreamsError where there is no such time yet (UsePartitionTimeOnInvalidTimestamp).
    """
    if timestamp >= 0:
        return timestamp
    if partition_time < 0:
        raise StreamsError(
            f"Could not infer new timestamp for input record of {source.topic}-{source.partition} at offset "
            f"{source.offset} because partition time is unknown."
        )
    return partition_time


def wallclock_timestamp(key: Any, value: Any, timestamp: int, partition_time: int, source: RecordMetadata) -> int:
    """Processing time: the wall-clock time in ms (WallclockTimestampExtractor)."""
    return time.time_ns() // 1_000_000
