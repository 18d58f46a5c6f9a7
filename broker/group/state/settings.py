"""Broker properties of groups and their offsets, under Kafka's names and with the defaults of Kafka 3.9, but
for the limits of members, which Kafka does not have.

`group.consumer.*`, which Kafka 3.9 supports with KRaft only, have the defaults of Kafka 4.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.broker.group.state.consumer_assignors import ASSIGNORS, CLASSES

MEMBERS_SHARE: Final = 8
"""One member may take this part of `odradek.group.max.metadata.bytes`."""


@dataclass(slots=True)
class GroupSettings:
    """`group.*`, `offsets.*` and `odradek.group.*` of server.properties; dots are underscores. Sizes are bytes."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 5_000
    odradek_group_max_metadata_bytes: int = 16 << 20
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    offsets_load_buffer_size: int = 5_242_880
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 5_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer")

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset is retained after its last use."""
        return self.offsets_retention_minutes * 60_000

    @property
    def assignors(self) -> list[str]:
        """The names of the enabled server-side assignors, the default first. Kafka's class names are accepted, too."""
        names = [CLASSES.get(name, name) for name in self.group_consumer_assignors]
        return [name for name in names if name in ASSIGNORS]

    @property
    def default_assignor(self) -> str:
        """The assignor of a group whose members request none."""
        return next(iter(self.assignors), "uniform")
