"""Group protocol: the messages between members of a group, and the events from a member to its stream thread.

The protocol type is "consumer", so that Kafka's tools describe the group: a subscription and an assignment are Kafka's
ConsumerProtocolSubscription and ConsumerProtocolAssignment, with Odradek's user data (KIP-429, KIP-792, KIP-881 added
the later fields). The protocol name is Odradek's alone; a member with another one, Java's Kafka Streams ("stream")
among them, cannot enter the same group.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.group.authentication import security_of

PROTOCOL_TYPE: Final = "consumer"
PROTOCOL_NAME: Final = "odradek-streams"
SUBSCRIPTION_VERSION: Final = 3
_VERSION: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipConfig:
    """The group settings of a member. Kafka's names and defaults; times in ms.

    `max_poll_interval_ms` is the rebalance timeout, too. `leave_group_on_close` is false as in Kafka Streams: the tasks
    of a member that closes stay unassigned for a session timeout, so that the member can return to them.
    """

    bootstrap_servers: str
    group_id: str
    client_id: str = "odradek-streams"
    group_instance_id: str | None = None
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    leave_group_on_close: bool = False
    security: ConnectionSecurity = PLAINTEXT

    def __post_init__(self) -> None:
        """Raises StreamsError for invalid settings."""
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise StreamsError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below session.timeout.ms "
                f"({self.session_timeout_ms})"
            )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> MembershipConfig:
        """From a configuration with Kafka's names, where `application.id` is the group. Raises StreamsError."""
        named: dict[str, Any] = {"group_id": config["application.id"], "security": security_of(config)}
        for field in cls.__slots__:
            value = config.get(field.replace("_", "."))
            if value is not None and field != "security":
                named[field] = int(value) if field.endswith("_ms") else value
        named["leave_group_on_close"] = config.get("internal.leave.group.on.close", False) in (True, "true")
        return cls(**named)


class MemberSubscription(NamedTuple):
    """A member's data for the assignment by the leader."""

    member_id: str
    group_instance_id: str | None
    topics: list[str]
    userdata: bytes
    rack: str | None


class RebalanceNeeded(NamedTuple):
    """The stream thread has to join again: commit, pause its tasks, then `GroupMember.rejoin()`.

    `lost`: this member is out of the group, and others may run its tasks already. The thread closes them without a
    commit.
    """

    reason: str
    lost: bool


class Assigned(NamedTuple):
    """The member's new assignment. `leader`: this member monitors the group's topics."""

    partitions: list[TopicPartition]
    userdata: bytes
    generation: int
    member_id: str
    leader: bool


Event = RebalanceNeeded | Assigned
Subscribe = Callable[[], tuple[list[str], bytes]]
Assignments = Mapping[str, tuple[list[TopicPartition], bytes]]
Assign = Callable[[dict[str, MemberSubscription]], Assignments]


class MembershipError(StreamsError):
    """The coordinator rejects this member permanently. `code` is Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class CommitFailure(enum.Enum):
    """Why offsets were not committed, and the consequence."""

    FENCED = "another process has this group.instance.id now: this member ends"
    MIGRATED = "the group went on without this member: its tasks are lost, and it joins again"
    REBALANCING = "a rebalance is under way: the tasks stay, their offsets are committed after it"
    UNKNOWN_TOPIC = "the coordinator does not have the topic: it was deleted, or the broker has just started"
    TIMED_OUT = "no coordinator accepted the offsets in time"
    REFUSED = "the coordinator rejects these offsets"


class CommitFailed(StreamsError):  # noqa: N818 - the name of Kafka's CommitFailedException
    """Offsets were not committed."""

    def __init__(self, kind: CommitFailure, code: ErrorCode, message: str) -> None:
        super().__init__(f"the offsets were not committed ({code.name}): {message}; {kind.value}")
        self.kind = kind
        self.code = code


def encode_subscription(topics: Iterable[str], userdata: bytes, rack: str | None) -> bytes:
    """A member's metadata in JoinGroup. It owns no partitions: an eager rebalance assigns all of them anew."""
    record = m.ConsumerProtocolSubscription(topics=sorted(topics), user_data=userdata, rack_id=rack)
    return _VERSION.pack(SUBSCRIPTION_VERSION) + record.encode(SUBSCRIPTION_VERSION)


def decode_subscription(member_id: str, group_instance_id: str | None, data: bytes) -> MemberSubscription:
    """A member's subscription; unknown fields of a later version are skipped. Raises ProtocolError."""
    version = min(_VERSION.unpack_from(data)[0], SUBSCRIPTION_VERSION)
    record = m.ConsumerProtocolSubscription.decode(data, version, _VERSION.size)
    return MemberSubscription(
        member_id, group_instance_id, record.topics, bytes(record.user_data or b""), record.rack_id
    )


def encode_assignment(partitions: Iterable[TopicPartition], userdata: bytes) -> bytes:
    """A member's assignment in SyncGroup."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    record = m.ConsumerProtocolAssignment(
        assigned_partitions=[
            m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
        user_data=userdata,
    )
    return _VERSION.pack(SUBSCRIPTION_VERSION) + record.encode(SUBSCRIPTION_VERSION)


def decode_assignment(data: bytes) -> tuple[list[TopicPartition], bytes]:
    """The partitions and the user data of an assignment; empty bytes are no partitions. Raises ProtocolError."""
    if not data:
        return [], b""
    version = min(_VERSION.unpack_from(data)[0], SUBSCRIPTION_VERSION)
    record = m.ConsumerProtocolAssignment.decode(data, version, _VERSION.size)
    partitions = [(entry.topic, number) for entry in record.assigned_partitions for number in entry.partitions]
    return partitions, bytes(record.user_data or b"")


def librdkafka_group_metadata(
    group_id: str, generation: int, member_id: str, group_instance_id: str | None = None
) -> bytes:
    """A member's identity in librdkafka's serialization (rd_kafka_consumer_group_metadata_write, format CGMDv2).

    `Producer.send_offsets_to_transaction` takes it, and the coordinator rejects the offsets of a fenced member
    (KIP-447).
    """
    parts = [b"CGMDv2:", struct.pack("=i", generation), group_id.encode(), b"\0", member_id.encode(), b"\0"]
    if group_instance_id is None:
        parts.append(b"\1")
    else:
        parts += [b"\0", group_instance_id.encode(), b"\0"]
    return b"".join(parts)


WHY_REFUSED: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        f"the group {{group}} has members that do not use {PROTOCOL_NAME!r}: a plain consumer, or Kafka Streams in "
        "Java. One application.id belongs to one kind of application; stop the others, or choose another application.id"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another process has joined the group {group} with the group.instance.id {instance}: each needs its own"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group {group} has as many members as the broker allows (group.max.size): use fewer instances or a smaller "
        "num.stream.threads"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker does not allow session.timeout.ms={session}: see its group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read the group {group}",
    ErrorCode.INVALID_GROUP_ID: "{group!r} is not a valid group: choose another application.id",
}


def refusal(code: ErrorCode, config: MembershipConfig) -> MembershipError:
    """The error message for an error that no retry resolves."""
    text = WHY_REFUSED.get(code, f"the coordinator of the group {{group}} returned {code.name}")
    filled = text.format(group=config.group_id, instance=config.group_instance_id, session=config.session_timeout_ms)
    return MembershipError(code, filled)
