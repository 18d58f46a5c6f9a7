"""Interactive queries, version 2: requests and results (KIP-796, KIP-960, KIP-968, KIP-985; Kafka: streams.query).

    result = streams.query(StateQueryRequest("counts", KeyQuery("kafka"), require_active=True))
    result.only_partition_result.result

A query returns one result for each partition of this instance, or the reason why that partition has none.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from odradek.streams.errors import StreamsError
from odradek.streams.java_names import JavaNames

Moment = int | datetime
"""ms since the epoch, or a datetime."""


class FailureReason(enum.Enum):
    """Why a partition has no result."""

    UNKNOWN_QUERY_TYPE = enum.auto()
    """The store cannot answer this kind of query."""
    NOT_ACTIVE = enum.auto()
    """The request requires a running active task."""
    NOT_UP_TO_BOUND = enum.auto()
    """The position of the task is before the bound of the request."""
    NOT_PRESENT = enum.auto()
    """The partition is not on this instance."""
    DOES_NOT_EXIST = enum.auto()
    """There is no such partition."""
    STORE_EXCEPTION = enum.auto()
    """The store has raised an error."""


class ResultOrder(enum.Enum):
    """The order of the rows of one partition."""

    ANY = enum.auto()
    ASCENDING = enum.auto()
    DESCENDING = enum.auto()


class Position(JavaNames):
    """Offsets by topic and partition: how far a task has processed its input."""

    __slots__ = ("offsets",)

    def __init__(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self.offsets: dict[str, dict[int, int]] = {topic: dict(each) for topic, each in (offsets or {}).items()}
        """The offset of the last record, by topic and partition."""

    @classmethod
    def empty_position(cls) -> Position:
        """A position without offsets."""
        return cls()

    @classmethod
    def from_map(cls, offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """A copy of these offsets."""
        return cls(offsets)

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Advance one partition to this offset, unless it is further already. Returns this object."""
        each = self.offsets.setdefault(topic, {})
        each[partition] = max(offset, each.get(partition, offset))
        return self

    def merge(self, other: Position | None) -> Position:
        """Advance each partition to the offset of `other`. Returns this object."""
        for topic, each in ({} if other is None else other.offsets).items():
            for partition, offset in each.items():
                self.with_component(topic, partition, offset)
        return self

    def copy(self) -> Position:
        """A copy, which later changes do not reach."""
        return Position(self.offsets)

    @property
    def topics(self) -> set[str]:
        """The topics with an offset."""
        return set(self.offsets)

    def partition_positions(self, topic: str) -> Mapping[int, int]:
        """The offsets of a topic, by partition."""
        return self.offsets.get(topic, {})

    @property
    def is_empty(self) -> bool:
        """Whether there is no offset."""
        return not self.offsets

    def reaches(self, bound: Position, partition: int) -> bool:
        """Whether this position is not before `bound`, of which only this partition counts."""
        for topic, offsets in bound.offsets.items():
            wanted = offsets.get(partition)
            if wanted is not None and self.partition_positions(topic).get(partition, -1) < wanted:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self.offsets == other.offsets

    def __hash__(self) -> int:
        """Raises TypeError, as Java's: a position changes."""
        raise TypeError("a Position is mutable; it cannot be the key of a mapping")

    def __repr__(self) -> str:
        return f"Position({self.offsets})"


@dataclass(frozen=True, slots=True)
class PositionBound:
    """The least position that a request accepts. Without a position it accepts any."""

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """A bound that any position reaches."""
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """A bound at a copy of this position."""
        return cls(position.copy())

    @property
    def is_unbounded(self) -> bool:
        """Whether any position reaches it."""
        return self.position.is_empty


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The value of a key, without its timestamp."""

    key: Any
    skip_cache: bool = False
    """Whether to read the store below the cache."""


@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery:
    """The value of a key, and its timestamp (KIP-960)."""

    key: Any
    skip_cache: bool = False


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """`(key, value)` for the keys between both bounds, these included; None stands for an open end."""

    lower_bound: Any = None
    upper_bound: Any = None
    result_order: ResultOrder = ResultOrder.ANY
    """By the serialized keys."""


@dataclass(frozen=True, slots=True)
class TimestampedRangeQuery:
    """`(key, (value, timestamp))` for the keys between both bounds (KIP-985)."""

    lower_bound: Any = None
    upper_bound: Any = None
    result_order: ResultOrder = ResultOrder.ANY


@dataclass(frozen=True, slots=True)
class WindowKeyQuery:
    """`(start, value)` for the windows of a key that start between both times, these included."""

    key: Any
    time_from: Moment
    time_to: Moment


@dataclass(frozen=True, slots=True)
class WindowRangeQuery:
    """`(Windowed, value)`: with a key its sessions; with times the windows of all keys that start between them."""

    key: Any = None
    time_from: Moment | None = None
    time_to: Moment | None = None


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery:
    """The version of a key's value that was valid at a time, by default the latest (KIP-960)."""

    key: Any
    as_of: Moment | None = None


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery:
    """The versions of a key's value that were valid at any time between both, these included (KIP-968)."""

    key: Any
    from_time: Moment | None = None
    to_time: Moment | None = None
    result_order: ResultOrder = ResultOrder.ANY
    """By the start of validity; ANY is the latest first."""


Query = (
    KeyQuery
    | TimestampedKeyQuery
    | RangeQuery
    | TimestampedRangeQuery
    | WindowKeyQuery
    | WindowRangeQuery
    | VersionedKeyQuery
    | MultiVersionedKeyQuery
)


@dataclass(frozen=True, slots=True)
class StateQueryRequest:
    """A query of one store of this instance."""

    store_name: str
    query: Query
    partitions: Collection[int] | None = None
    """None: all that are on this instance."""
    require_active: bool = False
    """Whether only running active tasks may answer; the position bound then has no effect."""
    position_bound: PositionBound = field(default_factory=PositionBound)
    execution_info: bool = False
    """Whether results explain how they were found."""


@dataclass(slots=True)
class QueryResult(JavaNames):
    """The result of one partition. Rows of a range show the store as it was at the query: exhaust or close them."""

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    """How far the task had processed its input; empty for a standby."""
    execution_info: list[str] = field(default_factory=list)

    NO_RESULT: ClassVar[str] = "Cannot get result for failed query."

    @property
    def is_success(self) -> bool:
        """Whether there is a result, which may be None."""
        return self.failure_reason is None

    @property
    def is_failure(self) -> bool:
        """Whether there is no result."""
        return self.failure_reason is not None

    @property
    def result(self) -> Any:
        """The result. Raises StreamsError for a failure."""
        if self.failure_reason is not None:
            raise StreamsError(f"{self.NO_RESULT} Failure is {self.failure_reason.name}: {self.failure_message}")
        return self.value


@dataclass(slots=True)
class StateQueryResult(JavaNames):
    """The results of a request, by partition."""

    partition_results: dict[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None
    """The result of a global store."""

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The result of the only partition that succeeded with a value, None where there is none. Raises StreamsError
        where there are several.
        """
        found = [each for each in self.partition_results.values() if each.is_success and each.value is not None]
        if len(found) > 1:
            raise StreamsError("The query did not return exactly one partition result")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The positions of all results together."""
        merged = Position()
        for each in self.partition_results.values():
            merged.merge(each.position)
        return merged
