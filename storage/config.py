"""The configuration of one log: the topic properties that storage uses (Kafka: LogConfig).

Names are Kafka's property names with underscores for dots (`segment.bytes` is `segment_bytes`) and the defaults are
those of Kafka 3.9 (LogConfig). A LogConfig never changes; after a change of the topic configuration the replica passes
a new LogConfig to the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

MAX_INT64: Final = 2**63 - 1
MOST_PRODUCERS: Final = 10_000
"""The default limit of the producers of one log; each takes about a KiB of memory."""
_DAY_MS: Final = 24 * 60 * 60 * 1000


class AppendOrigin(IntEnum):
    """The writer of a batch, which decides how much of it is checked."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic properties; times in milliseconds, sizes in bytes, -1 in `retention_*` means no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False

    max_message_bytes: int = 1048588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = MAX_INT64
    message_downconversion_enable: bool = True

    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64

    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    max_producer_ids: int = MOST_PRODUCERS
    """The limit of the producers without an open transaction; a property of the broker, not of topics."""

    # Computed once from the properties, because every append uses them.
    compacts: bool = field(init=False)
    """Whether compaction removes old values of a key, so that every record needs a key."""
    deletes: bool = field(init=False)
    """Whether retention deletes old segments by age and by size."""
    stamps_append_time: bool = field(init=False)
    """Whether the broker sets the timestamps of records from its clock (LogAppendTime, KIP-32)."""
    has_plain_records: bool = field(init=False)
    """Whether records need no key and may have any timestamp, as by default."""
    stores_plain_batches: bool = field(init=False)
    """Whether a plain batch (`protocol.plain_batch`) of a client is stored as it is."""
    stores_own_batches: bool = field(init=False)
    """Whether an uncompressed batch of the broker itself is stored as it is."""
    flushes: bool = field(init=False)
    """Whether the topic configures flushes, instead of leaving them to the operating system."""
    max_segment_ms: int = field(init=False)
    """The age at which the active segment is rolled; a compacted log may roll earlier, for the cleaner."""

    def __post_init__(self) -> None:
        compacts = "compact" in self.cleanup_policy
        stamps = self.message_timestamp_type == "LogAppendTime"
        unlimited = self.message_timestamp_before_max_ms == self.message_timestamp_after_max_ms == MAX_INT64
        for name, value in (
            ("compacts", compacts),
            ("deletes", "delete" in self.cleanup_policy),
            ("stamps_append_time", stamps),
            ("has_plain_records", unlimited and not stamps and not compacts),
            ("stores_plain_batches", unlimited and not (stamps or compacts) and self.compression_type == "producer"),
            ("stores_own_batches", not stamps and self.compression_type in ("producer", "uncompressed")),
            ("flushes", self.flush_messages < MAX_INT64 or self.flush_ms < MAX_INT64),
            ("max_segment_ms", min(self.segment_ms, self.max_compaction_lag_ms) if compacts else self.segment_ms),
        ):
            object.__setattr__(self, name, value)
