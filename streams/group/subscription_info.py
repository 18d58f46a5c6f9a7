"""User data of group members: subscriptions to the leader, assignments to the members (Kafka: SubscriptionInfo).

A subscription contains the process of a thread, its tasks, the positions of the process's state, and the endpoint for
queries; an assignment contains the active and standby tasks of a thread, and the locations of all others
(org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo and AssignmentInfo, in a layout of its own:
the members of a group are all Java or all Python).

Layout: a version byte, then the fields in the order of the classes below. Numbers are unsigned varints, signed ones
zigzag; text and bytes have a length prefix; a set of tasks is grouped by sub-topology, its partitions as differences.
Versions only ever add fields at the end, and a reader skips unknown fields, so that instances of two releases can be in
one group during an upgrade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from odradek.streams.errors import StreamsError
from odradek.streams.records import TaskId

_T = TypeVar("_T")

VERSION: Final = 1

RUNNING: Final = -2
"""The position of an active, restored task's state: the end offset of its changelogs."""
UNKNOWN_POSITION: Final = -3
"""The position of state that exists, but with an unknown offset."""

NO_ERROR: Final = 0
INCOMPLETE_SOURCE_TOPIC_METADATA: Final = 1
ASSIGNMENT_ERROR: Final = 3
SHUTDOWN_REQUESTED: Final = 4
"""Codes in `AssignmentInfo.error`, with the numbers of Kafka's AssignorError."""

Partitions = Mapping[str, frozenset[int]]
"""Partitions by topic."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """The data of a thread for the leader.

    `positions` is the state of each stateful task that its process has, as the sum of the offsets in all its
    changelogs, RUNNING or UNKNOWN_POSITION; each thread of a process reports the tasks that it runs, and one of them
    (or all) the directories that no thread has opened. `active` and `standby` are the thread's own tasks. `serial`
    changes with each subscription: the coordinator starts a rebalance for a follower only if its subscription differs.
    """

    process_id: bytes
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    positions: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    error: int = NO_ERROR
    serial: int = 0

    def encode(self) -> bytes:
        """The user data. Raises ValueError for a process id that is not 16 bytes."""
        if len(self.process_id) != 16:
            raise ValueError(f"a process id is 16 bytes, not {len(self.process_id)}")
        data = bytearray((VERSION,))
        data += self.process_id
        _write_tasks(data, self.active)
        _write_tasks(data, self.standby)
        _write_tasks(data, self.positions)
        for task in sorted(self.positions):
            _write_signed(data, self.positions[task])
        _write_number(data, len(self.tags))
        for name in sorted(self.tags):
            _write_text(data, name)
            _write_text(data, self.tags[name])
        _write_text(data, self.endpoint)
        _write_number(data, self.error)
        _write_number(data, self.serial)
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionInfo:
        """Read user data. Raises StreamsError."""
        return _read(data, cls._decode, "subscription")

    @classmethod
    def _decode(cls, reader: _FieldReader) -> SubscriptionInfo:
        process_id = reader.take(16)
        active = reader.tasks()
        standby = reader.tasks()
        positions = {task: reader.signed() for task in reader.tasks()}
        tags = {reader.text(): reader.text() for _ in range(reader.number())}
        return cls(
            process_id,
            frozenset(active),
            frozenset(standby),
            positions,
            tags,
            endpoint=reader.text(),
            error=reader.number(),
            serial=reader.number(),
        )


@dataclass(frozen=True, slots=True)
class HostPartitions:
    """The partitions (of source topics and changelogs) of active tasks and of standby tasks in the process of an
    endpoint.
    """

    active: Partitions
    standby: Partitions


Hosts = Mapping[str, HostPartitions]
"""By endpoint, host:port."""


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The leader's assignment for a thread.

    `next_rebalance_ms` is the time at which the thread requests a rebalance, in ms since the epoch; 0 is never.
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    next_rebalance_ms: int = 0
    error: int = NO_ERROR
    hosts: Hosts = field(default_factory=dict)
    reason: str = ""
    """What the leader found, where `error` is a code."""

    def encode(self, hosts: bytes | None = None) -> bytes:
        """The user data. `hosts` is `encode_hosts(self.hosts)`, if the leader has encoded it already: all members get
        the same.
        """
        data = bytearray((VERSION,))
        _write_tasks(data, self.active)
        _write_tasks(data, self.standby)
        _write_number(data, self.next_rebalance_ms)
        _write_number(data, self.error)
        data += encode_hosts(self.hosts) if hosts is None else hosts
        if self.reason:
            _write_text(data, self.reason)
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> AssignmentInfo:
        """Read user data. Raises StreamsError."""
        return _read(data, cls._decode, "assignment")

    @classmethod
    def _decode(cls, reader: _FieldReader) -> AssignmentInfo:
        return cls(
            tuple(reader.tasks()),
            tuple(reader.tasks()),
            next_rebalance_ms=reader.number(),
            error=reader.number(),
            hosts=_read_hosts(reader),
            reason=reader.text() if reader.left else "",
        )


def encode_hosts(hosts: Hosts) -> bytes:
    """The locations of all partitions, with each topic's name written once."""
    data = bytearray()
    topics = sorted({topic for host in hosts.values() for topic in (*host.active, *host.standby)})
    _write_number(data, len(topics))
    for topic in topics:
        _write_text(data, topic)
    numbers = {topic: number for number, topic in enumerate(topics)}
    _write_number(data, len(hosts))
    for endpoint in sorted(hosts):
        _write_text(data, endpoint)
        for partitions in (hosts[endpoint].active, hosts[endpoint].standby):
            _write_tasks(data, ((numbers[topic], part) for topic, parts in partitions.items() for part in parts))
    return bytes(data)


def _read_hosts(reader: _FieldReader) -> Hosts:
    topics = [reader.text() for _ in range(reader.number())]

    def partitions() -> Partitions:
        found: dict[str, set[int]] = {}
        for number, partition in reader.tasks():
            found.setdefault(topics[number], set()).add(partition)
        return {topic: frozenset(parts) for topic, parts in found.items()}

    return {reader.text(): HostPartitions(partitions(), partitions()) for _ in range(reader.number())}


def _read(data: bytes, decode: Callable[[_FieldReader], _T], what: str) -> _T:
    reader = _FieldReader(data)
    try:
        version = reader.number()
        if not 1 <= version < 128:
            raise ValueError(f"version {version}")
        return decode(reader)
    except (IndexError, ValueError) as error:
        raise StreamsError(f"this is no {what} of this runtime ({error}): {data[:32].hex(' ')}") from error


def _write_number(data: bytearray, number: int) -> None:
    if number < 0:
        raise ValueError(f"{number} is negative")
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _write_signed(data: bytearray, number: int) -> None:
    _write_number(data, number << 1 if number >= 0 else (-number << 1) - 1)


def _write_text(data: bytearray, text: str) -> None:
    encoded = text.encode()
    _write_number(data, len(encoded))
    data += encoded


def _write_tasks(data: bytearray, tasks: Iterable[tuple[int, int]]) -> None:
    groups: dict[int, list[int]] = {}
    for subtopology, partition in sorted(set(tasks)):
        groups.setdefault(subtopology, []).append(partition)
    _write_number(data, len(groups))
    for subtopology, partitions in groups.items():
        _write_number(data, subtopology)
        _write_number(data, len(partitions))
        last = 0
        for partition in partitions:
            _write_number(data, partition - last)
            last = partition


class _FieldReader:
    """Reads fields in the order of writing. Raises IndexError or ValueError for other bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def signed(self) -> int:
        number = self.number()
        return number >> 1 if number & 1 == 0 else -((number + 1) >> 1)

    def take(self, size: int) -> bytes:
        start = self._position
        self._position = start + size
        if self._position > len(self._data):
            raise IndexError(f"the bytes end at {len(self._data)}, before {self._position}")
        return self._data[start : self._position]

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def text(self) -> str:
        return self.take(self.number()).decode()

    def tasks(self) -> list[TaskId]:
        found = []
        for _ in range(self.number()):
            subtopology = self.number()
            partition = 0
            for _ in range(self.number()):
                partition += self.number()
                found.append(TaskId(subtopology, partition))
        return found
