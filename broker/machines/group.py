"""One group: its membership and its offsets, and the rules that need both.

Membership decides who may commit; the offsets decide whether a group without members is still worth keeping. Both
change only by what is in the log of `__consumer_offsets`: a request returns the records to append, and when those are
durable they are applied by the same code that reads them back after a failover. The states of a group and what leads
from one to the next stand at the head of `group_membership`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.broker.machines.effects import Append, Effect, KeyValue, Now, Reply
from odradek.broker.machines.group_membership import CONSUMER, Membership
from odradek.broker.machines.group_records import group_key, offset_key, offset_record
from odradek.broker.machines.group_requests import State
from odradek.broker.machines.group_settings import GroupSettings
from odradek.broker.machines.offsets import CommitRequest, Offsets, Partition, Stage
from odradek.protocol.errors import ErrorCode, KafkaError

# What a client hears when the log refuses a commit (Kafka's GroupMetadataManager.maybeConvertOffsetCommitError).
COMMIT_ERRORS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class OffsetsStored(NamedTuple):
    """Token of an append: a commit, and what is already known of each of its entries."""

    stage: Stage
    reply_to: Any
    verdicts: list[ErrorCode]


class Group:
    """The machine. Methods that take `now` are events; what they return is to be carried out in order."""

    __slots__ = ("_settings", "group_id", "membership", "offsets")

    def __init__(self, group_id: str, settings: GroupSettings, now: Now) -> None:
        self.group_id = group_id
        self.membership = Membership(group_id, settings, now)
        self.offsets = Offsets()
        self._settings = settings

    @property
    def is_dead(self) -> bool:
        """Whether the group is gone, so that its id is free again."""
        return self.membership.state is State.DEAD

    def commit(self, token: Any, request: CommitRequest, now: Now) -> list[Effect]:
        """Store offsets. Answered, once they are durable, with one error code for each entry, in their order."""
        error = self.membership.check_commit(request.member_id, request.instance_id, request.generation)
        if error:
            return [Reply(token, [error] * len(request.entries))]
        effects = self.membership.seen(request.member_id, now)
        limit = self._settings.offset_metadata_max_bytes
        verdicts = [
            ErrorCode.OFFSET_METADATA_TOO_LARGE if _java_length(committed.metadata) > limit else ErrorCode.NONE
            for _, committed in request.entries
        ]
        accepted = [entry for entry, verdict in zip(request.entries, verdicts, strict=True) if not verdict]
        if not accepted:
            effects.append(Reply(token, verdicts))
            return effects
        stage = self.offsets.stage(accepted)
        records = [offset_record(self.group_id, partition, committed) for partition, committed in accepted]
        effects.append(Append(records, OffsetsStored(stage, token, verdicts)))
        return effects

    def appended(self, token: Any, error: ErrorCode, now: Now) -> list[Effect]:
        """The outcome of an Append that carried a token."""
        if not isinstance(token, OffsetsStored):
            return self.membership.stored(token, error, now)
        self.offsets.finish(token.stage, durable=not error)
        outcome = COMMIT_ERRORS.get(error, error)
        return [Reply(token.reply_to, [verdict or outcome for verdict in token.verdicts])]

    def delete(self, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """Delete the group with its offsets; only one without members may go."""
        if self.membership.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        return ErrorCode.NONE, self._bury(self.offsets.remove(), now, everything=True)

    def delete_offsets(self, partitions: list[Partition], now: Now) -> tuple[list[ErrorCode], list[Effect]]:
        """Forget offsets that no member consumes (KIP-496): one error code for each partition.

        Raises KafkaError(NON_EMPTY_GROUP) when the group has members that are no consumers.
        """
        state, membership = self.membership.state, self.membership
        if state is not State.EMPTY and membership.protocol_type != CONSUMER:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} is in use by {membership.protocol_type}"
            )
        in_use = [state is not State.EMPTY and membership.subscribes_to(topic) for topic, _ in partitions]
        free = [partition for partition, used in zip(partitions, in_use, strict=True) if not used]
        codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE for used in in_use]
        return codes, self._bury(self.offsets.remove(free), now) if free else []

    def forget(self, partitions: list[Partition], now: Now) -> list[Effect]:
        """These topic partitions have been deleted, and their offsets with them."""
        return self._bury(self.offsets.remove(partitions), now)

    def expire(self, now: Now) -> list[Effect]:
        """Forget the offsets that nobody used for too long (KIP-211), and the group once it has nothing left."""
        membership, retention_ms = self.membership, self._settings.offsets_retention_ms
        expired: list[Partition] = []
        if membership.protocol_type is None:
            expired = self.offsets.expire(now.wall_ms, retention_ms, None)
        elif membership.state is State.EMPTY:
            expired = self.offsets.expire(now.wall_ms, retention_ms, membership.state_since_ms)
        elif (
            membership.state is State.STABLE and membership.protocol_type == CONSUMER and membership.knows_subscriptions
        ):
            expired = self.offsets.expire(now.wall_ms, retention_ms, None, membership.subscribes_to)
        return self._bury(expired, now)

    def _bury(self, removed: list[Partition], now: Now, *, everything: bool = False) -> list[Effect]:
        """Write the tombstones of what was removed, and of the group when nothing is left of it."""
        records: list[KeyValue] = [(offset_key(self.group_id, partition), None) for partition in removed]
        effects: list[Effect] = []
        if self.membership.state is State.EMPTY and (everything or not self.offsets.in_use):
            effects += self.membership.die(now)
            if self.membership.generation > 0:  # generation 0 was never written
                records.append((group_key(self.group_id), None))
        if records:
            # Nobody waits: a tombstone that gets lost is written again by the next round.
            effects.append(Append(records, None))
        return effects


def _java_length(text: str) -> int:
    """The length as Kafka counts it against `offset.metadata.max.bytes`: UTF-16 units, whatever the name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
