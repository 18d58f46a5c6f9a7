"""What clients of transactions received while faults hit brokers, and every way in which it contradicts exactly once.

A history is a list of operations, each with its outcome: a single send or poll, or a transaction of several, with the
offset of every record as far as it is known. `ok` is an operation that the client saw succeed; `fail` is one that
surely took no effect; `info` may have taken effect or not. Values are unique in their partition, and readers are
read_committed. At the end, with all faults over, a last reader reads all from the start; its polls belong to the
history, too.

From the acknowledgements and the reads the checker derives which value is at which offset (`Versions`) and finds:

- inconsistent-offset: two values at one offset; duplicate: one value at two offsets
- aborted-read: a value of a failed operation was read; garbage-read: a value that no client sent
- precommitted-read: a transaction read its own value, or a value was read before its commit was requested
- torn-transaction: a value of a transaction was read, and another one, below the highest offset read of its partition,
  never
- lost-write: an acknowledged value below the highest offset read of its partition that no reader read
- unseen: an acknowledged value that is not below anything read once all was drained
- poll-skip, nonmonotonic-poll: within one assignment a reader received offsets with a gap that holds a value that is
  readable, or an offset that is not above the one before
- nonmonotonic-send: acknowledged offsets of one client in one partition do not grow
- write-read-cycle: a cycle of operations each of which read what the one before wrote
- stale-map: the last reader, folding a compacted partition to a map of name to value, gets another map than the fold of
  all that was committed there by offset

A partition is compacted where its values have names (keys, in Kafka's words). There a value that a later one of its
name has replaced may be gone, and so may a deletion (a tombstone): that no reader read them is no anomaly.

The offsets that control records take are gaps like those of aborted records: no reader receives them. Allowed is what
Kafka allows: sends of several transactions interleaved, and write-write cycles. Names are those of Jepsen's Kafka
workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

SHOWN: Final = 20

Value: TypeAlias = int
"""Unique in its partition."""


class Outcome(Enum):
    """The outcome of an operation, as far as its client has it."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Send:
    """A value that was sent; `offset` is None where no acknowledgement returned it.

    `name` is the key of the value in a compacted partition, None elsewhere; one that `deletes` is a tombstone.
    """

    partition: int
    value: Value
    offset: int | None = None
    name: int | None = None
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Poll:
    """The records of one poll: partition, offset, value, in the order received.

    `assignment` numbers the reader's assignments: polls of one follow each other, whichever operation they belong to.
    """

    records: tuple[tuple[int, int, Value], ...]
    assignment: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """A send, a poll or a transaction of several, from `began` to `ended` on one clock.

    `commit_began` is when the client requested the commit of a transaction, None where it never did or there is no
    commit.
    """

    client: str
    outcome: Outcome
    steps: tuple[Send | Poll, ...]
    began: int
    ended: int
    transaction: bool = False
    commit_began: int | None = None

    @property
    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))

    @property
    def reads(self) -> Iterator[tuple[int, int, Value]]:
        return (record for poll in self.polls for record in poll.records)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One contradiction."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


Place: TypeAlias = tuple[int, Value]
"""A value, by partition."""


@dataclass(slots=True)
class Versions:
    """Which value is at which offset, by all that was acknowledged and read."""

    at: dict[tuple[int, int], set[Value]] = field(default_factory=lambda: defaultdict(set))
    offsets: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    writer: dict[Place, Operation] = field(default_factory=dict)
    readers: dict[Place, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    read_below: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """One more than the highest offset that any reader read, by partition."""
    named: dict[Place, Send] = field(default_factory=dict)
    """The values sent to compacted partitions."""
    latest: dict[tuple[int, int], tuple[int, Send]] = field(default_factory=dict)
    """The committed value of the highest offset, with it, by compacted partition and name."""

    def note(self, partition: int, offset: int, value: Value) -> None:
        self.at[partition, offset].add(value)
        self.offsets[partition, value].add(offset)

    def is_committed(self, place: Place) -> bool:
        """Whether it was read or acknowledged."""
        writer = self.writer.get(place)
        return place in self.readers or (writer is not None and writer.outcome is Outcome.OK)

    def may_be_gone(self, place: Place) -> bool:
        """Whether compaction may have removed it."""
        send = self.named.get(place)
        if send is None or send.name is None:
            return False
        newest = self.latest.get((send.partition, send.name))
        return send.deletes or (newest is not None and newest[0] > max(self.offsets.get(place, ()), default=-1))


def versions_of(history: Iterable[Operation]) -> Versions:
    """Collects the offsets and values of the operations.

    A failed operation counts as well: its polls were received, and its values are in the log, aborted.
    """
    found = Versions()
    for operation in history:
        for send in operation.sends:
            found.writer[send.partition, send.value] = operation
            if send.name is not None:
                found.named[send.partition, send.value] = send
            if send.offset is not None:
                found.note(send.partition, send.offset, send.value)
        for partition, offset, value in operation.reads:
            found.note(partition, offset, value)
            found.readers[partition, value].append(operation)
            found.read_below[partition] = max(found.read_below[partition], offset + 1)
    for place, send in found.named.items():
        if send.name is not None and place in found.offsets and found.is_committed(place):
            entry = max(found.offsets[place]), send
            newest = found.latest.setdefault((send.partition, send.name), entry)
            if entry[0] > newest[0]:
                found.latest[send.partition, send.name] = entry
    return found


def anomalies(history: Sequence[Operation]) -> list[Anomaly]:
    """Every contradiction in a history that ended with a last reader's polls of everything."""
    versions = versions_of(history)
    found: list[Anomaly] = []
    for judge in (_places, _reads, _writes, _torn, _sends, _cycles, _maps):
        found += [Anomaly(kind, what) for kind, what in judge(history, versions)]
    found += [Anomaly(kind, what) for kind, what in _assignments(history, versions)]
    return found


def report(found: Sequence[Anomaly]) -> str:
    """The first of them, a line each, and how many there are."""
    more = [f"... {len(found)} in all"] if len(found) > SHOWN else []
    return "\n".join([*map(str, found[:SHOWN]), *more])


Findings: TypeAlias = Iterator[tuple[str, str]]


def _places(history: Sequence[Operation], versions: Versions) -> Findings:
    for (partition, offset), values in versions.at.items():
        if len(values) > 1:
            yield "inconsistent-offset", f"{sorted(values)} at {offset} of partition {partition}"
    for (partition, value), offsets in versions.offsets.items():
        if len(offsets) > 1:
            yield "duplicate", f"{value} at {sorted(offsets)} of partition {partition}"


def _reads(history: Sequence[Operation], versions: Versions) -> Findings:
    for (partition, value), readers in versions.readers.items():
        writer = versions.writer.get((partition, value))
        what = f"{value} in partition {partition}, by {readers[0].client}"
        if writer is None:
            yield "garbage-read", what
        elif writer.outcome is Outcome.FAIL:
            yield "aborted-read", what
        elif writer.transaction and any(_is_early(reader, writer) for reader in readers):
            yield "precommitted-read", what


def _is_early(reader: Operation, writer: Operation) -> bool:
    return reader is writer or writer.commit_began is None or reader.ended < writer.commit_began


def _writes(history: Sequence[Operation], versions: Versions) -> Findings:
    for (partition, value), writer in versions.writer.items():
        if writer.outcome is not Outcome.OK or (partition, value) in versions.readers:
            continue
        if versions.may_be_gone((partition, value)):
            continue
        offset = next(iter(versions.offsets.get((partition, value), ())), None)
        bound = versions.read_below[partition]
        if offset is None:  # acknowledged without an offset: nothing shows that it is below the offsets read
            yield "unseen", f"{value} in partition {partition}"
        elif offset < bound:
            yield "lost-write", f"{value} at {offset} of partition {partition}, which was read below {bound}"
        else:
            yield "unseen", f"{value} at {offset} of partition {partition}, which was read below {bound}"


def _torn(history: Sequence[Operation], versions: Versions) -> Findings:
    """An indefinite transaction's offsets may be unknown; after the drain a value that no reader read is not there."""
    for operation in history:
        if not operation.transaction or operation.outcome is Outcome.FAIL:  # a read of such a value is an aborted read
            continue
        places = {(send.partition, send.value): send for send in operation.sends}
        seen = [send for place, send in places.items() if place in versions.readers]
        missing = [place for place in places if place not in versions.readers and not versions.may_be_gone(place)]
        if seen and missing:
            yield "torn-transaction", f"of {operation.client}: {seen[0]} was read, {missing} never"


def _sends(history: Sequence[Operation], versions: Versions) -> Findings:
    """The sends of one client to one partition, in the order of sending."""
    latest: dict[tuple[str, int], tuple[int, Value]] = {}
    for operation in sorted(history, key=lambda each: each.began):
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends:
            if send.offset is None:
                continue
            before = latest.get((operation.client, send.partition))
            if before is not None and send.offset <= before[0]:
                what = f"{send.value} at {send.offset} after {before[1]} at {before[0]} of partition {send.partition}"
                yield "nonmonotonic-send", f"{what}, by {operation.client}"
            latest[operation.client, send.partition] = send.offset, send.value


def _assignments(history: Sequence[Operation], versions: Versions) -> Findings:
    """Within an assignment no readable value is skipped and none is read twice.

    Readable are the values that any reader read, and those that an ok operation wrote, and that no compaction can have
    removed; aborted values are in the log, too.
    """
    readable: dict[int, dict[int, Value]] = defaultdict(dict)
    for (partition, value), offsets in versions.offsets.items():
        if not versions.is_committed((partition, value)) or versions.may_be_gone((partition, value)):
            continue
        for offset in offsets:
            readable[partition][offset] = value
    position: dict[tuple[str, int, int], int] = {}
    for operation in sorted(history, key=lambda each: each.began):
        for poll in operation.polls:
            for partition, offset, value in poll.records:
                place = operation.client, poll.assignment, partition
                before = position.get(place)
                position[place] = offset
                if before is None:
                    continue
                where = f"{value} at {offset} of partition {partition} after {before}, by {operation.client}"
                if offset <= before:
                    yield "nonmonotonic-poll", where
                else:
                    between = range(before + 1, offset)
                    skipped = next((each for each in between if each in readable[partition]), None)
                    if skipped is not None:
                        yield "poll-skip", f"{where}, and {skipped} holds {readable[partition][skipped]}"


def _maps(history: Sequence[Operation], versions: Versions) -> Findings:
    """Both folds take the last value of each name: the reader's by the order of reading, the other by offset.

    So the result does not depend on whether the partition has been compacted, nor how far.
    """
    folded: dict[tuple[int, int], Send] = {}
    for partition, _, value in history[-1].reads if history else ():
        send = versions.named.get((partition, value))
        if send is not None and send.name is not None:
            folded[partition, send.name] = send
    for (partition, name), (offset, newest) in versions.latest.items():
        got = folded.get((partition, name))
        wanted = None if newest.deletes else newest.value
        if wanted != (None if got is None or got.deletes else got.value):
            shown = "nothing" if got is None else got.value
            what = f"{shown} for {name} of partition {partition}"
            yield "stale-map", f"{what}, which has {wanted or 'nothing'} since {newest.value} at {offset}"


def _cycles(history: Sequence[Operation], versions: Versions) -> Findings:
    """Cycles of operations along "wrote what the next read"; a transaction that reads itself is found elsewhere."""
    number = {id(operation): index for index, operation in enumerate(history)}
    follows: dict[int, set[int]] = defaultdict(set)
    for place, readers in versions.readers.items():
        writer = versions.writer.get(place)
        if writer is None or not writer.transaction:
            continue
        for reader in readers:
            if reader.transaction and reader is not writer:
                follows[number[id(writer)]].add(number[id(reader)])
    for circle in circles(follows):
        clients = [history[index].client for index in circle]
        yield "write-read-cycle", f"{len(circle)} transactions, of {', '.join(clients[:4])}: {circle[:4]}"


def circles(follows: Mapping[int, Iterable[int]]) -> Iterator[list[int]]:
    """The strongly connected components of more than one node (Tarjan 1972, with a stack of its own)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in list(follows):
        if root in index:
            continue
        work = [(root, iter(follows.get(root, ())))]
        while work:
            node, successors = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            for successor in successors:
                if successor not in index:
                    work.append((successor, iter(follows.get(successor, ()))))
                    break
                if successor in on_path:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = _cut(path, node)
                    on_path.difference_update(component)
                    if len(component) > 1:
                        yield component


def _cut(path: list[int], node: int) -> list[int]:
    at = path.index(node)
    component = path[at:]
    del path[at:]
    return component
