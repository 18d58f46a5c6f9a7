"""Reconciliation of one member: moves it one step towards its target (KIP-848; Kafka: CurrentAssignmentBuilder).

| state                 | the member reports                   | result               |
|-----------------------|--------------------------------------|----------------------|
| STABLE                | anything, target unchanged           | no change            |
| STABLE                | anything, a newer target             | the next step, below |
| UNREVOKED_PARTITIONS  | still owns it, or does not report    | stays in its epoch   |
| UNREVOKED_PARTITIONS  | has revoked it                       | the next step        |
| UNRELEASED_PARTITIONS | anything                             | the next step        |
| UNKNOWN               | owns partitions, or does not report  | FENCED_MEMBER_EPOCH  |

| the next step finds                          | the member changes to                                                 |
|----------------------------------------------|-----------------------------------------------------------------------|
| partitions to revoke that it still owns      | UNREVOKED_PARTITIONS in its old epoch, with the partitions it keeps   |
| partitions that others have not revoked yet  | UNRELEASED_PARTITIONS in the target's epoch, with the free partitions |
| neither                                      | STABLE in the target's epoch, with all partitions                     |

So a partition has one owner at any time: a member gets it only when it has no owner, and its former owner keeps it
until that member has reported that it has revoked it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group_members import ConsumerMember, MemberState, Owned
from odradek.protocol.errors import ErrorCode, KafkaError


class Target(NamedTuple):
    """The target of a member."""

    epoch: int
    assignment: Assignment
    topics: frozenset[bytes]
    """The ids of the topics that it subscribes to now; it must revoke others even if the target contains them."""


class _Shares(NamedTuple):
    """A member's partitions, old and new, by their next state."""

    kept: Owned
    excess: Owned
    free: dict[bytes, list[int]]
    unreleased: bool


def reconcile(
    member: ConsumerMember,
    target: Target,
    reported: Assignment | None,
    owner: Callable[[bytes, int], str | None],
) -> ConsumerMember:
    """The member after its next step, or the same member when no step is possible.

    `reported` is what the member reports as owned, None when it does not report; `owner(topic id, partition)` is the
    member that owns a partition now. Raises KafkaError(FENCED_MEMBER_EPOCH).
    """
    strays = [topic_id for topic_id in member.assigned if topic_id not in target.topics]
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _next_step(member, member.epoch, target, reported, owner)
            return _give_up(member, strays, reported)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(member.revoking, reported):
                return _give_up(member, strays, reported)
            return _next_step(member, member.epoch, target, reported, owner)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(member, member.epoch, target, reported, owner)
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"member {member.member_id} is in an unknown state; it must revoke all its"
                    " partitions and join again",
                )
            return _next_step(member, target.epoch, target, reported, owner)


def _next_step(
    member: ConsumerMember,
    epoch: int,
    target: Target,
    reported: Assignment | None,
    owner: Callable[[bytes, int], str | None],
) -> ConsumerMember:
    shares = _sort_out(member, target, owner)
    if shares.excess and _still_owns(shares.excess, reported):
        return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, shares.kept, shares.excess)
    assigned = {topic_id: dict(partitions) for topic_id, partitions in shares.kept.items()}
    for topic_id, partitions in shares.free.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if shares.unreleased else MemberState.STABLE
    return member.moved_to(target.epoch, state, assigned, {})


def _sort_out(member: ConsumerMember, target: Target, owner: Callable[[bytes, int], str | None]) -> _Shares:
    kept: dict[bytes, dict[int, int]] = {}
    excess: dict[bytes, dict[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys([*target.assignment, *member.assigned]):
        wanted = target.assignment.get(topic_id, frozenset()) if topic_id in target.topics else frozenset()
        has = member.assigned.get(topic_id, {})
        for partition, epoch in has.items():
            (kept if partition in wanted else excess).setdefault(topic_id, {})[partition] = epoch
        for partition in sorted(wanted.difference(has)):
            # A partition of the member itself has just been revoked, and the member may get it again.
            if owner(topic_id, partition) in (None, member.member_id):
                free.setdefault(topic_id, []).append(partition)
            else:
                unreleased = True
    return _Shares(kept, excess, free, unreleased)


def _give_up(member: ConsumerMember, strays: list[bytes], reported: Assignment | None) -> ConsumerMember:
    """Revoke topics to which the member no longer subscribes, even if its target contains them."""
    if not strays:
        return member
    assigned = {topic_id: parts for topic_id, parts in member.assigned.items() if topic_id not in strays}
    revoking = {topic_id: dict(partitions) for topic_id, partitions in member.revoking.items()}
    for topic_id in strays:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _still_owns(revoking, reported):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return member.moved_to(member.epoch, member.state, assigned, member.revoking)


def _still_owns(partitions: Owned, reported: Assignment | None) -> bool:
    """Whether the member owns any of these; a member that does not report may own them."""
    if reported is None:
        return True
    return any(partition in owned for topic_id, owned in partitions.items() for partition in reported.get(topic_id, ()))
