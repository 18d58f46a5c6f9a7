"""Requests and results of a consumer-protocol group, and the validation of a heartbeat.

Requests and results are independent of versions. The checks are those that need no group: Kafka's
GroupCoordinatorService makes them before it looks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group_members import LEFT, LEFT_FOR_A_WHILE, Owned
from odradek.protocol.errors import ErrorCode, KafkaError

JOINING: Final = 0
NO_TIMEOUT: Final = -1

# The error of a request when the log refuses records of its group (Kafka's CoordinatorOperationExceptionHelper).
LOG_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Topics(Protocol):
    """The topics of the cluster in this broker's metadata."""

    @property
    def version(self) -> int:
        """A number that changes whenever a result below may have changed."""
        ...

    def names(self) -> Iterable[str]:
        """Every topic."""
        ...

    def id_of(self, name: str) -> bytes | None:
        """The id of a topic, None when there is none of that name."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic, None when there is none of that id."""
        ...

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has, 0 when there is none of that name."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def names(self) -> Iterable[str]:
        return ()

    def id_of(self, name: str) -> bytes | None:
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def partition_count(self, name: str) -> int:
        return 0


Describable = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns those of the topics that the sender of a request may describe, in their order."""


def all_topics(names: tuple[str, ...]) -> tuple[str, ...]:
    """Every topic: there is no authorizer."""
    return names


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat; None: unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    names: tuple[str, ...] | None = None
    expression: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    must_name_itself: bool = False
    """Members generate their own ids (ConsumerGroupHeartbeat 1, KIP-1082)."""
    describable: Describable = all_topics
    """The topics that the sender may describe: others do not match an expression for it."""

    @property
    def is_full(self) -> bool:
        """Whether the request contains all fields, as after an error: the response then contains all fields, too."""
        subscribes = self.names is not None or self.expression is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat; `assignment` of None: unchanged."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Owned | None = None


def check_heartbeat(group_id: str, request: HeartbeatRequest, assignors: Iterable[str]) -> None:
    """Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.epoch
    if epoch < LEFT_FOR_A_WHILE:
        _invalid(f"MemberEpoch is {epoch}; the lowest that means anything is {LEFT_FOR_A_WHILE}.")
    for name, value in (("GroupId", group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            _invalid(f"{name} can't be empty.")
    if not request.member_id.strip() and (request.must_name_itself or epoch != JOINING):
        _invalid("MemberId can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.names is None and request.expression is None:
            _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    if epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        _invalid("InstanceId can't be null.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def leaves(request: HeartbeatRequest) -> bool:
    """Whether the member leaves with this request."""
    return request.epoch in (LEFT, LEFT_FOR_A_WHILE)


def _invalid(message: str) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
