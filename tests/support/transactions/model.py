"""Good histories of transactions, made by a log that keeps all of Kafka's guarantees, and faults planted in them.

The log is a list for each partition; clients take turns by a draw, so that transactions interleave. A reader gets the
committed values, up to the first offset of a transaction that is open, as read_committed does. The last partition has
names and is compacted now and then, as far as its committed values go on without a gap.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import ne
from typing import Final

from tests.support.transactions.checker import Operation, Outcome, Poll, Send, versions_of

PARTITIONS: Final = 3
COMPACTED: Final = 2
NAMES: Final = 3
DELETE_CHANCE: Final = 0.2
COMPACT_CHANCE: Final = 0.1
CLIENTS: Final = 3
MOST_STEPS: Final = 4
MARKER: Final = None


@dataclass(slots=True)
class Open:
    """An operation that has not ended: its steps, and whether its values may be read."""

    client: str
    transaction: bool
    began: int
    steps: list[Send | Poll] = field(default_factory=list)
    decided: bool = False
    committed: bool = False


class ModelLog:
    """Operations of clients, step by step, and their results: `history`, once `finish` was called."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now = 0
        self._values = 0
        self._logs: list[list[tuple[Send, Open] | None]] = [[] for _ in range(PARTITIONS)]
        self._open: dict[str, Open] = {}
        self._position: dict[str, list[int]] = {}
        self._assignment: dict[str, int] = {}
        self.history: list[Operation] = []

    def step(self) -> None:
        """A client begins, continues or ends an operation; or the log is compacted."""
        if self._chance.random() < COMPACT_CHANCE:
            self._compact()
            return
        client = f"client {self._chance.randrange(CLIENTS)}"
        operation = self._open.get(client)
        if operation is None:
            transaction = self._chance.random() < 0.7
            operation = Open(client, transaction, self._tick())
            self._open[client] = operation
        if operation.transaction and len(operation.steps) < self._chance.randint(1, MOST_STEPS):
            self._work(operation)
        elif operation.transaction:
            self._end(operation)
        else:
            operation.decided = operation.committed = True
            self._work(operation)
            self._conclude(operation, Outcome.OK, None)

    def finish(self) -> list[Operation]:
        """Ends the open transactions, and lets a last reader read everything."""
        for operation in list(self._open.values()):
            self._end(operation)
        reader = Open("last", transaction=False, began=self._tick())
        while records := self._read("last"):
            reader.steps.append(Poll(tuple(records)))
        self._conclude(reader, Outcome.OK, None)
        return self.history

    def _work(self, operation: Open) -> None:
        if self._chance.random() < 0.6:
            partition = self._chance.randrange(PARTITIONS)
            self._values += 1
            send = Send(partition, self._values, len(self._logs[partition]))
            if partition == COMPACTED:
                deletes = self._chance.random() < DELETE_CHANCE
                send = replace(send, name=self._chance.randrange(NAMES), deletes=deletes)
            self._logs[partition].append((send, operation))
            operation.steps.append(send)
        else:
            records = self._read(operation.client)
            operation.steps.append(Poll(tuple(records), self._assignment.get(operation.client, 0)))
        self._tick()

    def _end(self, operation: Open) -> None:
        commit_began = self._tick() if self._chance.random() < 0.8 else None
        operation.decided = True
        operation.committed = commit_began is not None and self._chance.random() < 0.9
        for partition in {step.partition for step in operation.steps if isinstance(step, Send)}:
            self._logs[partition].append(MARKER)
        outcome = Outcome.OK if operation.committed else Outcome.FAIL
        if self._chance.random() < 0.2:
            outcome = Outcome.INFO
            operation.steps = [self._forget(step) for step in operation.steps]
        if outcome is not Outcome.OK:  # and reads again from the start
            self._position.pop(operation.client, None)
            self._assignment[operation.client] = self._assignment.get(operation.client, 0) + 1
        self._conclude(operation, outcome, commit_began)

    def _compact(self) -> None:
        """Values that a later committed value of their name replaces are removed; their offset stays empty, as a
        control record's is.
        """
        log = self._logs[COMPACTED]
        names: set[int | None] = set()
        for offset in reversed(range(self._stable(log))):
            entry = log[offset]
            if entry is None or not entry[1].committed:
                continue
            send, _ = entry
            if send.name in names:
                log[offset] = MARKER
            names.add(send.name)

    def _stable(self, log: Sequence[tuple[Send, Open] | None]) -> int:
        """The first offset of a transaction that is open, or the end."""
        return next((at for at, entry in enumerate(log) if entry and not entry[1].decided), len(log))

    def _forget(self, step: Send | Poll) -> Send | Poll:
        return replace(step, offset=None) if isinstance(step, Send) and self._chance.random() < 0.5 else step

    def _conclude(self, operation: Open, outcome: Outcome, commit_began: int | None) -> None:
        self._open.pop(operation.client, None)
        self.history.append(
            Operation(
                operation.client,
                outcome,
                tuple(operation.steps),
                operation.began,
                self._tick(),
                operation.transaction,
                commit_began,
            )
        )

    def _read(self, client: str) -> list[tuple[int, int, int]]:
        position = self._position.setdefault(client, [0] * PARTITIONS)
        records: list[tuple[int, int, int]] = []
        for partition, log in enumerate(self._logs):
            stable = self._stable(log)
            most = position[partition] + self._chance.randint(1, 5)
            for offset in range(position[partition], min(stable, most)):
                entry = log[offset]
                if entry is not MARKER and entry[1].committed:
                    records.append((partition, offset, entry[0].value))
                position[partition] = offset + 1
        if not records and client == "last" and any(map(int.__lt__, position, map(len, self._logs))):
            return self._read(client)
        return records

    def _tick(self) -> int:
        self._now += 1
        return self._now


def good_history(seed: int, steps: int) -> list[Operation]:
    """A history without a fault."""
    log = ModelLog(random.Random(seed))
    for _ in range(steps):
        log.step()
    return log.finish()


# ---- faults

History = list[Operation]
Record = tuple[int, int, int]
NEVER_SENT: Final = 1_000_000


def without(history: Sequence[Operation], *places: tuple[int, int]) -> History:
    """The history in which no reader read these values."""
    return [_with_reads(each, lambda record: (record[0], record[2]) not in places) for each in history]


def _with_reads(operation: Operation, keep: Callable[[Record], bool]) -> Operation:
    steps = tuple(
        replace(step, records=tuple(filter(keep, step.records))) if isinstance(step, Poll) else step
        for step in operation.steps
    )
    return replace(operation, steps=steps)


def _last_poll(history: Sequence[Operation], *more: Record) -> History:
    *before, last = history
    return [*before, replace(last, steps=(*last.steps, Poll(more)))]


def _changed(history: Sequence[Operation], old: Operation, new: Operation) -> History:
    return [new if each is old else each for each in history]


def _inconsistent(history: History) -> Iterator[History]:
    for partition, offset, _ in history[-1].reads:
        yield _last_poll(history, (partition, offset, NEVER_SENT))


def _duplicate(history: History) -> Iterator[History]:
    for partition, offset, value in history[-1].reads:
        yield _last_poll(history, (partition, offset + 1000, value))


def _garbage(history: History) -> Iterator[History]:
    yield _last_poll(history, (0, 1000, NEVER_SENT))


def _aborted(history: History) -> Iterator[History]:
    read = set(versions_of(history).readers)
    for each in history:
        if any((send.partition, send.value) in read for send in each.sends):
            yield _changed(history, each, replace(each, outcome=Outcome.FAIL))


def _precommitted(history: History) -> Iterator[History]:
    read = versions_of(history).readers
    for each in history:
        readers = [reader for send in each.sends for reader in read.get((send.partition, send.value), ())]
        if each.transaction and readers:
            first = min(reader.ended for reader in readers)
            yield _changed(history, each, replace(each, commit_began=first + 1))
            yield _changed(history, each, replace(each, commit_began=None))


def _lost(history: History) -> Iterator[History]:
    versions = versions_of(history)
    for (partition, value), writer in versions.writer.items():
        (offset,) = versions.offsets[partition, value] or {-1}
        if versions.may_be_gone((partition, value)):
            continue
        if writer.outcome is Outcome.OK and offset < versions.read_below[partition] - 1:
            yield without(history, (partition, value))


def _unseen(history: History) -> Iterator[History]:
    for partition in range(COMPACTED):
        reads = [record for record in history[-1].reads if record[0] == partition]
        if reads and versions_of(history).writer[partition, reads[-1][2]].outcome is Outcome.OK:
            yield without(history, (partition, reads[-1][2]))


def _torn(history: History) -> Iterator[History]:
    versions = versions_of(history)
    read = set(versions.readers)
    for each in history:
        sends = [send for send in each.sends if (send.partition, send.value) in read and send.name is None]
        if each.transaction and each.outcome is not Outcome.FAIL and len(sends) > 1:
            yield without(history, (sends[-1].partition, sends[-1].value))


def _skipped(history: History) -> Iterator[History]:
    for each in history[:-1]:
        for partition in range(COMPACTED):
            reads = [record for record in each.reads if record[0] == partition]
            for left_out in reads[1:-1]:
                yield _changed(history, each, _with_reads(each, lambda record, gone=left_out: record != gone))


def _backwards(history: History) -> Iterator[History]:
    for record in history[-1].reads:
        yield _last_poll(history, record)


def _unordered(history: History) -> Iterator[History]:
    for each in history:
        sends = [send for send in each.sends if send.offset is not None]
        pairs = [(one, two) for one, two in pairwise(sends) if one.partition == two.partition]
        if each.outcome is Outcome.OK:
            for one, two in pairs:
                moved = {one: replace(one, offset=two.offset), two: replace(two, offset=one.offset)}
                steps = tuple(moved.get(step, step) if isinstance(step, Send) else step for step in each.steps)
                yield _changed(history, each, replace(each, steps=steps))


def _circular(history: History) -> Iterator[History]:
    versions = versions_of(history)
    for (partition, value), readers in versions.readers.items():
        writer = versions.writer[partition, value]
        for reader in readers:
            for send in reader.sends if reader.transaction and writer.transaction else ():
                if send.offset is not None:
                    read = Poll(((send.partition, send.offset, send.value),))
                    yield _changed(history, writer, replace(writer, steps=(*writer.steps, read)))


def _stale(history: History) -> Iterator[History]:
    """The last reader misses the last value of a name, which is known, and so has an older value, or a deleted one."""
    versions = versions_of(history)
    last = history[-1]
    for offset, newest in versions.latest.values():
        record = newest.partition, offset, newest.value
        place = newest.partition, newest.value
        is_known = versions.writer[place].outcome is Outcome.OK or set(map(id, versions.readers[place])) - {id(last)}
        before = [
            versions.named[each[0], each[2]] for each in last.reads if each[0] == newest.partition and each < record
        ]
        values = [each for each in before if each.name == newest.name]
        if is_known and (not newest.deletes or (values and not values[-1].deletes)):
            yield _changed(history, last, _with_reads(last, partial(ne, record)))


FAULTS: Final[Mapping[str, Callable[[History], Iterator[History]]]] = {
    "inconsistent-offset": _inconsistent,
    "duplicate": _duplicate,
    "garbage-read": _garbage,
    "aborted-read": _aborted,
    "precommitted-read": _precommitted,
    "lost-write": _lost,
    "unseen": _unseen,
    "torn-transaction": _torn,
    "poll-skip": _skipped,
    "nonmonotonic-poll": _backwards,
    "nonmonotonic-send": _unordered,
    "write-read-cycle": _circular,
    "stale-map": _stale,
}
"""For each anomaly, all the ways to plant it in a good history."""
