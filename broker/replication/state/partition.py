"""State machine of one partition: leadership, ISR, high watermark and write checks (Kafka: Partition and Replica).

The machine stores offsets and epochs, never bytes. Its inputs are events: a control request arrives, the log grows, a
follower fetches, the controller answers an AlterPartition request. It applies the rules of Kafka's `Partition` and
`Replica`:

- Only the leader accepts a write. With acks=all it accepts a write only while the in-sync replicas (ISR) are at least
  `min.insync.replicas`, or all replicas of the partition.
- The high watermark is the smallest end offset among the in-sync replicas. It never falls while this broker leads, and
  does not rise while the ISR is below `min.insync.replicas` (KIP-966).
- A leader requests another ISR from the controller before it uses it (KIP-497). Until the controller has answered, the
  leader counts with the union of both sets: a replica that may be in the ISR already holds back the high watermark.
- A follower joins the ISR when it has every record below the high watermark and every record that was in the log when
  this leader was elected (KAFKA-7128). It leaves the ISR when it was not caught up for `replica.lag.time.max.ms`.
- The leader answers a request that names a leader epoch only in that epoch (KIP-320).

One rule is stricter than Kafka's: a replica removes a tombstone or a transaction marker from its log only below
`compacted_everywhere`. That is the offset below which every assigned replica has compacted its log, including replicas
outside the ISR and replicas on brokers that do not run. Otherwise a replica that was away for longer than
`delete.retention.ms` would come back with a value whose tombstone no other replica has. Followers report their cleaned
offset to the leader of the epoch, and the leader returns `compacted_everywhere` to them (docs/compaction.md).

Assertions check what the rules imply: the high watermark of a leader is within its log, epochs never fall, and a leader
requests no ISR without itself. Three relations look like invariants and are none:

- The high watermark of a follower can fall, and can be below its log start offset, when the leader has a lower one.
- The log end offset of a replica falls when it truncates its log.
- The ISR can have a broker that is no replica any more: when a reassignment is replaced, Kafka's controller removes the
  old replicas from the assignment at once, and from the ISR one after the other.

States of a replica on this broker:

    | state    | event           | next     | effect                                                    |
    |----------|-----------------|----------|-----------------------------------------------------------|
    | offline  | become_leader   | leader   | high watermark advances if the ISR is this broker alone   |
    | offline  | become_follower | follower |                                                           |
    | leader   | become_follower | follower | delayed writes fail with NOT_LEADER_OR_FOLLOWER           |
    | follower | become_leader   | leader   | followers' end offsets are unknown until they fetch       |
    | any      | go_offline      | offline  | all requests fail with KAFKA_STORAGE_ERROR                |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

NO_EPOCH: Final = -1
UNKNOWN_OFFSET: Final = -1
NO_ISR_EPOCH: Final = -1
NEVER_MS: Final = -(2**62)
UNNAMED: Final[TopicPartition] = ("", -1)
DEFAULT_MAX_LAG_MS: Final = 30_000
RETRIABLE_ISR_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)
REFUSED_ISR_ERRORS: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})


class Role(Enum):
    """The role of this broker for a partition."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


LEADER: Final = Role.LEADER
NO_ERROR: Final = ErrorCode.NONE
"""Python 3.11 calls a function to find a member of an enumeration, which costs each append more than its checks."""


class LeaderAndIsr(NamedTuple):
    """A partition's state as the controller sends it. `partition_epoch` is the version of the state's znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    is_recovering: bool = False


class PendingIsr(NamedTuple):
    """An ISR that the leader requests in `leader_epoch`, to replace the ISR of `partition_epoch`."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: tuple[int, ...]
    """The broker epoch of each member of `isr`, from its fetches; -1 if it is unknown (KIP-903)."""


class RemoteReplica:
    """The state that the leader keeps of one follower (Kafka: Replica). Times are of the monotonic clock."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "compacted_to",
        "end_offset",
        "fetch_ms",
        "leader_end_at_fetch",
        "start_offset",
    )

    def __init__(self) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = NEVER_MS
        self.fetch_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.compacted_to = 0
        """The follower's log is compacted below this offset; 0 until the follower reports more in this epoch."""

    def begin(self, now_ms: int, leader_end: int, *, new_epoch: bool, in_sync: bool) -> None:
        """Reset the follower's state when this broker applies a LeaderAndIsr request as leader
        (Replica.resetReplicaState).
        """
        if new_epoch:
            self.end_offset = UNKNOWN_OFFSET
            self.start_offset = UNKNOWN_OFFSET
            self.broker_epoch = -1
            self.compacted_to = 0
            self.leader_end_at_fetch = UNKNOWN_OFFSET
            self.fetch_ms = NEVER_MS
            self.caught_up_ms = now_ms if in_sync else NEVER_MS
        else:
            self.leader_end_at_fetch = leader_end
            self.fetch_ms = now_ms
            if in_sync:
                self.caught_up_ms = now_ms

    def fetched(
        self, offset: int, start_offset: int, leader_end: int, now_ms: int, broker_epoch: int, cleaned_to: int
    ) -> None:
        """Update the state from a fetch of the follower at `offset`.

        If `offset` reaches the leader's end offset of the previous fetch, the follower was caught up at the time of
        that fetch.

        `cleaned_to` is -1 from a broker of Kafka, which does not report what it has compacted. Such a replica has, at
        least, all the tombstones and markers below `offset` itself.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.leader_end_at_fetch = leader_end
        self.fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        self.compacted_to = offset if cleaned_to < 0 else min(cleaned_to, offset)

    def turned_away(self) -> None:
        """The controller has refused to add the follower to the ISR: the high watermark does not wait for the follower
        until it fetches again.
        """
        self.caught_up_ms = NEVER_MS

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has the whole log, or had it at most `max_lag_ms` ago (Replica.isCaughtUp)."""
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms


class PartitionMachine:
    """The state of one partition on one broker. Offsets are offsets of records, epochs are leader epochs."""

    __slots__ = (
        "broker_id",
        "cleaned_to",
        "compacted_everywhere",
        "epoch_start_offset",
        "high_watermark",
        "is_recovering",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_end",
        "max_lag_ms",
        "maximal_isr",
        "min_isr",
        "name",
        "partition_epoch",
        "pending",
        "remotes",
        "replicas",
        "role",
    )

    def __init__(
        self,
        broker_id: int,
        *,
        high_watermark: int,
        local_end: int,
        min_isr: int = 1,
        max_lag_ms: int = DEFAULT_MAX_LAG_MS,
        name: TopicPartition = UNNAMED,
    ) -> None:
        """`high_watermark` is the checkpointed one; `local_end` is the end offset of the local log; `max_lag_ms` is
        replica.lag.time.max.ms; `name` is for messages.
        """
        self.broker_id = broker_id
        self.name = name
        self.role = Role.OFFLINE
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_ISR_EPOCH
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.maximal_isr: frozenset[int] = frozenset()
        """The ISR; while an AlterPartition request is pending, the union of the current and the requested ISR."""
        self.pending: PendingIsr | None = None
        self.is_recovering = False
        self.local_end = local_end
        self.high_watermark = min(high_watermark, local_end)
        self.min_isr = min_isr
        self.max_lag_ms = max_lag_ms
        self.remotes: dict[int, RemoteReplica] = {}
        self.cleaned_to = UNKNOWN_OFFSET
        self.compacted_everywhere = UNKNOWN_OFFSET
        """Every assigned replica has compacted its log below this offset; -1 if this broker has no value for it. Only
        below it may a tombstone or a marker leave the log."""

    # ---- control requests

    def become_leader(self, state: LeaderAndIsr, now_ms: int) -> bool:
        """Apply a LeaderAndIsr request that names this broker as leader, also if it leads already. Returns whether the
        high watermark moved. A request with an older leader epoch or partition epoch changes nothing.
        """
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return False
        new_epoch = state.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        if new_epoch:
            self.epoch_start_offset = self.local_end
        known = self.remotes
        self.remotes = {each: known.get(each) or RemoteReplica() for each in state.replicas if each != self.broker_id}
        for replica_id, remote in self.remotes.items():
            remote.begin(now_ms, self.local_end, new_epoch=new_epoch, in_sync=replica_id in state.isr)
        self.role = Role.LEADER
        self._take(state)
        assert self.high_watermark <= self.local_end, self._violation("a leader with a high watermark beyond its log")
        self._count_compacted()
        return self._advance(now_ms)

    def become_follower(self, state: LeaderAndIsr) -> None:
        """Apply a LeaderAndIsr request that names another broker as leader, or none. Only that leader determines
        `compacted_everywhere` from here on.
        """
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return
        self.role = Role.FOLLOWER
        self.remotes = {}
        self.epoch_start_offset = self.compacted_everywhere = UNKNOWN_OFFSET
        self._take(state)

    def _take(self, state: LeaderAndIsr) -> None:
        assert state.leader_epoch >= self.leader_epoch, self._violation(f"an older leader epoch {state.leader_epoch}")
        assert state.partition_epoch >= self.partition_epoch, self._violation("an older partition epoch")
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch, self.replicas = state.partition_epoch, state.replicas
        self.is_recovering = state.is_recovering
        self.isr = self.maximal_isr = frozenset(state.isr)
        self.pending = None

    def go_offline(self) -> None:
        """Go offline: the disk under the log has failed."""
        self.role = Role.OFFLINE
        self.pending = None
        self.compacted_everywhere = UNKNOWN_OFFSET

    # ---- the local log changes

    def appended(self, local_end: int, now_ms: int = 0, *, flushed: bool = False) -> bool:
        """Set the end of the local log to `local_end`. Returns whether the high watermark moved.

        `flushed` means that the call follows an fsync: followers can have fetched past `local_end` meanwhile, and no
        later fetch of theirs would advance the high watermark. `now_ms` (monotonic) is used only if there are other
        replicas, and the ISR is this broker alone or `flushed` is set.
        """
        self.local_end = local_end
        if self.role is not LEADER:
            return False
        assert self.high_watermark <= local_end, self._violation("the leader's log ends below the high watermark")
        if not self.remotes:  # the common case, a replica set of one, without a loop
            if local_end > self.high_watermark:
                self.high_watermark = local_end
                return True
            return False
        if len(self.maximal_isr) > 1 and not flushed:
            return False  # another in-sync replica does not have these records yet
        return self._advance(now_ms)

    def truncated(self, local_end: int) -> None:
        """This follower has truncated its log to `local_end`."""
        self.local_end = local_end
        self.high_watermark = min(self.high_watermark, local_end)

    def replicated(self, local_end: int, leader_high_watermark: int) -> bool:
        """This follower's log ends at `local_end`; `leader_high_watermark` is from the leader's fetch response.

        Returns whether the high watermark moved. A follower's high watermark may fall: it follows the leader's.
        """
        self.local_end = local_end
        before = self.high_watermark
        self.high_watermark = max(0, min(leader_high_watermark, local_end))
        return self.high_watermark != before

    # ---- the log is compacted

    def cleaned(self, cleaned_to: int) -> None:
        """The local log is compacted below `cleaned_to`; -1 if it was never compacted."""
        if cleaned_to != self.cleaned_to:
            self.cleaned_to = cleaned_to
            if self.role is Role.LEADER:
                self._count_compacted()

    def received_compacted(self, compacted_everywhere: int) -> None:
        """Store `compacted_everywhere` from the fetch response of the leader of this epoch; -1 if the leader did not
        send it.
        """
        if self.role is Role.FOLLOWER:
            self.compacted_everywhere = compacted_everywhere

    def _count_compacted(self) -> None:
        reported = (remote.compacted_to for remote in self.remotes.values())
        self.compacted_everywhere = max(0, min((self.cleaned_to, *reported)))

    # ---- followers fetch

    def follower(self, replica_id: int) -> RemoteReplica:
        """The state of a follower.

        Raises KafkaError with UNKNOWN_LEADER_EPOCH for a broker that is not in the replica set that this leader has:
        the follower may have received its assignment before the leader.
        """
        remote = self.remotes.get(replica_id)
        if remote is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {replica_id} is not one of the replicas {list(self.replicas)} of this leader",
            )
        return remote

    def follower_fetched(
        self,
        replica_id: int,
        offset: int,
        now_ms: int,
        *,
        start_offset: int = 0,
        broker_epoch: int = -1,
        cleaned_to: int = UNKNOWN_OFFSET,
    ) -> bool:
        """A follower fetches at `offset`, so it has all records below it. Returns whether the high watermark moved.

        The follower has compacted its log below `cleaned_to`; -1 if it does not report that.

        Raises KafkaError: as `follower`, and NOT_LEADER_OR_FOLLOWER for a fetch with a broker epoch below that of an
        earlier fetch (KIP-903).
        """
        remote = self.follower(replica_id)
        if remote.broker_epoch > broker_epoch >= 0:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} fetches with broker epoch {broker_epoch}, "
                f"below the broker epoch {remote.broker_epoch} of an earlier fetch",
            )
        moved, compacted_to = offset != remote.end_offset, remote.compacted_to
        remote.fetched(offset, start_offset, self.local_end, now_ms, broker_epoch, cleaned_to)
        if remote.compacted_to != compacted_to:
            self._count_compacted()
        return moved and self._advance(now_ms)

    def _advance(self, now_ms: int) -> bool:
        """Raise the high watermark to the smallest end offset of the replicas that are in the ISR or about to join it
        (Partition.maybeIncrementLeaderHW).
        """
        if self.role is not Role.LEADER or len(self.isr) < self.effective_min_isr:
            return False
        lowest = self.local_end
        for replica_id, remote in self.remotes.items():
            if remote.end_offset < lowest and (
                replica_id in self.maximal_isr
                # A replica that has caught up is about to join the ISR; it can join only if the high watermark
                # waits for it (Partition.maybeIncrementLeaderHW).
                or remote.is_caught_up(self.local_end, now_ms, self.max_lag_ms)
            ):
                lowest = remote.end_offset
        if lowest <= self.high_watermark:
            return False
        assert lowest <= self.local_end, self._violation(f"a high watermark {lowest} beyond the log")
        self.high_watermark = lowest
        return True

    def reconsider(self, now_ms: int) -> bool:
        """Advance the high watermark past replicas outside the ISR that are no longer caught up as time passes.
        Returns whether the high watermark moved.
        """
        return self._advance(now_ms)

    # ---- the ISR

    def propose_expansion(self, replica_id: int) -> PendingIsr | None:
        """The pending ISR with a follower added, None if it is not eligible or another change is pending."""
        remote = self.remotes.get(replica_id)
        if remote is None or self.pending is not None or replica_id in self.isr or self.role is not Role.LEADER:
            return None
        if remote.end_offset < self.high_watermark or remote.end_offset < self.epoch_start_offset:
            return None
        return self._propose(self.isr | {replica_id})

    def propose_shrink(self, now_ms: int) -> PendingIsr | None:
        """The pending ISR without the replicas that lag for more than `max_lag_ms`; None if there is no such replica,
        or another change is pending.
        """
        if self.pending is not None or self.role is not Role.LEADER or len(self.isr) < 2:
            return None
        behind = frozenset(
            replica_id
            for replica_id, remote in self.remotes.items()
            if replica_id in self.isr and not remote.is_caught_up(self.local_end, now_ms, self.max_lag_ms)
        )
        return self._propose(self.isr - behind) if behind else None

    def _propose(self, isr: frozenset[int]) -> PendingIsr:
        members = tuple(each for each in self.replicas if each in isr)
        assert self.broker_id in isr, self._violation(f"a request for the ISR {sorted(isr)} without the leader")
        epochs = tuple(self.remotes[each].broker_epoch if each in self.remotes else -1 for each in members)
        self.pending = PendingIsr(members, self.leader_epoch, self.partition_epoch, epochs)
        self.maximal_isr = self.isr | isr
        return self.pending

    def isr_changed(self, change: PendingIsr, state: LeaderAndIsr, now_ms: int) -> bool:
        """The controller has answered an AlterPartition request with the current state. Returns whether the high
        watermark moved.
        """
        if self.pending is not change or state.leader_epoch != self.leader_epoch:
            return False  # the answer to an earlier request
        if state.partition_epoch < self.partition_epoch:
            return False
        self.isr = self.maximal_isr = frozenset(state.isr)
        self.partition_epoch = state.partition_epoch
        self.is_recovering = state.is_recovering
        self.pending = None
        return self._advance(now_ms)

    def isr_refused(self, change: PendingIsr, error: ErrorCode, now_ms: int) -> bool:
        """The controller has refused an AlterPartition request. Returns whether to send it again; the high watermark
        may have moved.

        After a refusal because this leader's state is outdated, the change stays pending: the controller sends a
        LeaderAndIsr request, and until it arrives `maximal_isr` stays the larger set.
        """
        if self.pending is not change:
            return False
        if error in REFUSED_ISR_ERRORS:
            self.pending = None
            self.maximal_isr = self.isr
            for replica_id in set(change.isr) - self.isr:
                if replica_id in self.remotes:
                    self.remotes[replica_id].turned_away()
            self._advance(now_ms)
            return False
        return error in RETRIABLE_ISR_ERRORS

    # ---- checks

    def _violation(self, what: str) -> str:
        """The message of a violated invariant."""
        return (
            f"{self.name[0]}-{self.name[1]}: {what} (broker={self.broker_id} role={self.role.value} "
            f"leader_epoch={self.leader_epoch} partition_epoch={self.partition_epoch} local_end={self.local_end} "
            f"high_watermark={self.high_watermark} isr={sorted(self.isr)} replicas={list(self.replicas)})"
        )

    @property
    def effective_min_isr(self) -> int:
        """The smaller of min.insync.replicas and the number of replicas (Partition.effectiveMinIsr)."""
        return min(self.min_isr, len(self.remotes) + 1)

    def _is_under_min(self, isr: Collection[int]) -> bool:
        """Whether an ISR is smaller than `effective_min_isr`, which is not computed in the common case."""
        return len(isr) < self.min_isr and len(isr) < self.effective_min_isr

    @property
    def remote_ends(self) -> Mapping[int, int]:
        """The end offset of each follower's log, from its last fetch; -1 before its first fetch."""
        return {replica_id: remote.end_offset for replica_id, remote in self.remotes.items()}

    def check_leader(self, epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads, in `epoch` if that is given.

        Raises KafkaError with NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
        KAFKA_STORAGE_ERROR.
        """
        self.check_epoch(epoch)
        if self.role is not Role.LEADER:
            self.check_online()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is broker {self.leader_id}")

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""
        if self.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log is offline")

    def check_epoch(self, epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless `epoch` is the current one or -1 (none)."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {epoch} is older than the current leader epoch {self.leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {epoch} is newer than the current leader epoch {self.leader_epoch}",
        )

    def check_may_append(self, acks: int) -> None:
        """Raise unless the leader accepts a write with these acks: as `check_leader`, or NOT_ENOUGH_REPLICAS."""
        if self.role is not LEADER:
            self.check_leader()
        if acks == -1 and self._is_under_min(self.isr):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, min.insync.replicas requires {self.effective_min_isr}",
            )

    def acknowledged(self, end_offset: int) -> ErrorCode | None:
        """NONE if a write that ends at `end_offset` may be acknowledged with acks=all, or its error; None means not
        yet.
        """
        if self.role is not LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        if self._is_under_min(self.maximal_isr):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return NO_ERROR
