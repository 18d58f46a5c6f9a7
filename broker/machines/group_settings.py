"""The broker properties that rule groups and their offsets, under Kafka's names and with the defaults of Kafka 3.9."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupSettings:
    """`group.*` and `offsets.*` of server.properties; dots are underscores. Sizes are bytes."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    offsets_load_buffer_size: int = 5_242_880
    offsets_commit_timeout_ms: int = 5_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset outlives its last use."""
        return self.offsets_retention_minutes * 60_000
