"""Requests, results and append tokens of the classic membership, and the names of its states.

Requests and results are independent of versions: a handler translates each version of JoinGroup and SyncGroup to and
from these. The tokens identify a pending append, so that its outcome can be assigned to a request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.group.state.classic_members import Member

UNKNOWN_MEMBER_ID: Final = ""

# The error of a request when the log refuses a generation (Kafka's GroupMetadataManager.storeGroup).
STORE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ClassicGroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups print them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Terms(NamedTuple):
    """The properties of a member from its join. `protocols` are (name, metadata) pairs in the order of preference."""

    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class JoinRequest(NamedTuple):
    """A JoinGroup request of any version."""

    member_id: str
    protocol_type: str
    terms: Terms
    id_required: bool = False
    """Refuse a new member with its new id, so that a lost response leaves no unused member behind (KIP-394)."""
    may_skip_assignment: bool = False
    """The client supports a returning static leader that skips the assignment (JoinGroup 9)."""


class JoinResult(NamedTuple):
    """The response to a join; `members` are (member id, instance id, metadata), for the leader only."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Collection[tuple[str, str | None, bytes]] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request; protocol type and name are None in versions that do not contain them."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncResult(NamedTuple):
    """The response to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class GenerationStored(NamedTuple):
    """Token of an append: a generation with the assignments of its members; None for one without members."""

    generation: int
    assignments: Mapping[str, bytes] | None


class ReturnStored(NamedTuple):
    """Token of an append: a static member rejoined a stable group; `old_leader` is for its answer."""

    generation: int
    member: Member
    new_id: str
    old_id: str
    old_leader: str
    may_skip_assignment: bool
