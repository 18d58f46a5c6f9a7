"""Records, changes of tables, windows and task ids: the data types of a topology.

Between the nodes of a topology a record travels as four positional arguments, key, value, timestamp and headers, so
that the record loop creates no object for it. A user's processor gets and forwards a `Record`
(org.apache.kafka.streams.processor.api.Record).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar, dataclass_transform

from odradek.streams.type_variables import K2, V2, K, V

T = TypeVar("T")

Headers = list[tuple[str, bytes | None]] | None
"""Headers in their order; None where there are none. A list of headers is never changed, only replaced."""
Process = Callable[[Any, Any, int, Headers], None]
"""The function of a node for a record: key, value, timestamp in ms, headers."""
Stamped = tuple[Any, int]
"""A value and its timestamp in ms, as timestamped stores hold them (Java's ValueAndTimestamp)."""

NO_TIMESTAMP = -1
make_tuple: Final = tuple.__new__
"""`make_tuple(Change, (new, old))` takes half the time of `Change(new, old)`, whose constructor is a function in
Python: for what happens once a record.
"""


@dataclass_transform(frozen_default=True)
def _immutable(cls: type[T]) -> type[T]:
    """A data class with slots, which its own `__init__` sets.

    The `__init__` of dataclass(frozen=True) takes longer than all other work on a record: it finds each field by its
    name. With slots as well, Python 3.11 fails to store the types of `Record[str, int](…)`.
    """
    return dataclass(init=False, slots=True, unsafe_hash=True)(cls)


@_immutable
class Record(Generic[K, V]):
    """One record for a processor: `Record[str, int]`, or `Record` of any key and value.

    `timestamp` is in ms since the epoch. A null key or value is None. Assignments raise FrozenInstanceError.
    """

    key: K
    value: V
    timestamp: int
    headers: Headers

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = None) -> None:
        _set_key(self, key)
        _set_value(self, value)
        _set_timestamp(self, timestamp)
        _set_headers(self, headers)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self.key, self.value, self.timestamp, self.headers)

    def with_key(self, key: K2) -> Record[K2, V]:
        """The same with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """The same with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """The same at another time."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """The same with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)


_slots: Final[Any] = Record
_set_key: Final = _slots.key.__set__
_set_value: Final = _slots.value.__set__
_set_timestamp: Final = _slots.timestamp.__set__
_set_headers: Final = _slots.headers.__set__


class Change(NamedTuple):
    """A table's new row and its old one; `old` is None where no downstream node needs it."""

    new: Any
    old: Any

    @property
    def is_latest(self) -> bool:
        """False for a change of a versioned table that is older than its latest (KIP-914)."""
        return True


class LateChange(Change):
    """A change of an older version of a versioned table: its latest row stays unchanged."""

    __slots__ = ()

    @property
    def is_latest(self) -> bool:
        return False


class Window(NamedTuple):
    """A span of time in ms. The end of a time window is outside, that of a session and a sliding window inside."""

    start: int
    end: int

    def overlap(self, other: Window, *, end_inside: bool = False) -> bool:
        """Whether both have a moment in common; `end_inside` for sessions, whose end is inside."""
        if end_inside:
            return self.start <= other.end and other.start <= self.end
        return self.start < other.end and other.start < self.end


class Windowed(NamedTuple, Generic[K]):
    """A key within a window."""

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start}/{self.window.end}]"


class TaskId(NamedTuple):
    """The unit of work: one partition of one sub-topology."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Read "0_1". Raises ValueError."""
        subtopology, _, partition = text.partition("_")
        return cls(int(subtopology), int(partition))


class RecordMetadata(NamedTuple):
    """The origin of a record."""

    topic: str
    partition: int
    offset: int
