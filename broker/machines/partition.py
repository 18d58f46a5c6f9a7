"""One partition's decisions: who leads, what is committed, who may write and how far a reader may read.

The machine knows offsets and epochs, never bytes. It is told what happened (this broker became the leader, the log
grew, a follower fetched) and answers what follows from it. Kafka keeps the same rules in `Partition` and `Replica`:

- A write is taken only by the leader; with acks=all only while the in-sync replicas (ISR) are at least
  `min.insync.replicas`.
- The high watermark is the smallest end offset among the in-sync replicas and never falls while this broker leads.
- A consumer reads up to the high watermark, or up to the last stable offset with read_committed.
- A request that names a leader epoch is answered only in that epoch (KIP-320).

States of a replica on this broker:

    | state    | event           | next     | what follows                                              |
    |----------|-----------------|----------|-----------------------------------------------------------|
    | offline  | become_leader   | leader   | high watermark at once when the ISR is this broker alone  |
    | offline  | become_follower | follower |                                                           |
    | leader   | become_follower | follower | waiting writers are answered NOT_LEADER_OR_FOLLOWER       |
    | follower | become_leader   | leader   | followers' ends are unknown until they fetch              |
    | any      | go_offline      | offline  | everything is answered KAFKA_STORAGE_ERROR                |
"""

from __future__ import annotations

from enum import Enum

from odradek.protocol.errors import ErrorCode, KafkaError

NO_EPOCH = -1
UNKNOWN_OFFSET = -1


class Role(Enum):
    """What this broker is for a partition."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


class PartitionMachine:
    """The state of one partition on one broker. Offsets are offsets of records, epochs are leader epochs."""

    __slots__ = (
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_end",
        "min_isr",
        "remote_ends",
        "replicas",
        "role",
    )

    def __init__(self, broker_id: int, *, high_watermark: int, local_end: int, min_isr: int = 1) -> None:
        """`high_watermark` is the one that was checkpointed; `local_end` the end offset of the local log."""
        self.broker_id = broker_id
        self.role = Role.OFFLINE
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.local_end = local_end
        self.high_watermark = min(high_watermark, local_end)
        self.min_isr = min_isr
        self.remote_ends: dict[int, int] = {}

    # ---- events

    def become_leader(self, epoch: int, *, replicas: tuple[int, ...], isr: frozenset[int]) -> bool:
        """The controller made this broker the leader in `epoch`. Returns whether the high watermark moved."""
        if epoch < self.leader_epoch:
            return False
        if epoch > self.leader_epoch or self.role is not Role.LEADER:
            self.epoch_start_offset = self.local_end
            self.remote_ends = dict.fromkeys((r for r in replicas if r != self.broker_id), UNKNOWN_OFFSET)
        self.role, self.leader_id, self.leader_epoch = Role.LEADER, self.broker_id, epoch
        self.replicas, self.isr = replicas, isr
        return self._advance()

    def become_follower(self, epoch: int, leader_id: int, *, replicas: tuple[int, ...], isr: frozenset[int]) -> None:
        """The controller made another broker the leader in `epoch`."""
        if epoch < self.leader_epoch:
            return
        self.role, self.leader_id, self.leader_epoch = Role.FOLLOWER, leader_id, epoch
        self.replicas, self.isr = replicas, isr
        self.remote_ends = {}
        self.epoch_start_offset = UNKNOWN_OFFSET

    def go_offline(self) -> None:
        """The disk under the log has failed."""
        self.role = Role.OFFLINE

    def appended(self, local_end: int) -> bool:
        """The local log now ends at `local_end`. Returns whether the high watermark moved."""
        self.local_end = local_end
        # The common case, a replica set of one, without a loop.
        if len(self.isr) == 1 and self.role is Role.LEADER:
            if local_end > self.high_watermark:
                self.high_watermark = local_end
                return True
            return False
        return self._advance()

    def follower_fetched(self, replica_id: int, end_offset: int) -> bool:
        """A follower asked for what comes at `end_offset`, so it has all before it. Returns whether the HW moved."""
        if self.role is not Role.LEADER or replica_id not in self.remote_ends:
            return False
        self.remote_ends[replica_id] = end_offset
        return self._advance()

    def _advance(self) -> bool:
        if self.role is not Role.LEADER:
            return False
        lowest = self.local_end
        for replica_id in self.isr:
            if replica_id != self.broker_id:
                lowest = min(lowest, self.remote_ends.get(replica_id, UNKNOWN_OFFSET))
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    # ---- questions

    def check_leader(self, epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads, in `epoch` if one is named.

        Raises KafkaError with NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
        KAFKA_STORAGE_ERROR.
        """
        self.check_epoch(epoch)
        if self.role is not Role.LEADER:
            if self.role is Role.OFFLINE:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log is offline")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is broker {self.leader_id}")

    def check_epoch(self, epoch: int) -> None:
        """Raise unless `epoch` (or none, -1) is the current one: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over; the current one is {self.leader_epoch}"
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {epoch} has not begun; the current one is {self.leader_epoch}",
        )

    def check_may_append(self, acks: int) -> None:
        """Raise unless a write with these acks may begin: as `check_leader`, or NOT_ENOUGH_REPLICAS."""
        if self.role is not Role.LEADER:
            self.check_leader()
        if acks == -1 and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, min.insync.replicas asks for {self.min_isr}",
            )

    def acknowledged(self, end_offset: int) -> ErrorCode | None:
        """Whether a write that ended at `end_offset` may be acknowledged with acks=all; None means not yet."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        if len(self.isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE
