"""A crash at each call to the disk of a life with compactions, and the verdict on the log that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from odradek.protocol.batch import Record, build, control_batch, records
from odradek.storage.compaction import clean
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from tests.storage.batches import NOW_MS, TOPIC_ID
from tests.storage.compaction_pass import Written, a_pass, check_gaps, committed_view, folded, stored
from tests.storage.disks import Choose, MemoryDisk, MemoryFile, at_random, keep_all, keep_nothing
from tests.storage.memory_state import state_of
from tests.storage.r13 import batches_in, check_indexes

PATH, NAME = "/data", ("topic", 0)


CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=700,
    index_interval_bytes=100,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)
TRANSACTIONAL = 9
KEYS_IN_THE_MAP = 7


class Life:
    """A broker's directory with one compacted log; `written` has the appended records, by offset."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.written: dict[int, Written] = {}
        self.sequence = 0
        self.undecided: list[int] = []
        self.aborted: set[int] = set()
        self.synced = 0
        self.epochs = [(0, 0)]
        """(epoch, start offset), as leaders began them."""
        self.log: Log

    def open(self) -> None:
        request = DirectoryRequest(0, "cluster", NOW_MS, config_for=lambda topic: CONFIG, random=Random(0))
        self.directory = Directory.open(PATH, request, self.disk)
        self.log = self.directory.logs.get(NAME) or self.directory.create_log(NAME, TOPIC_ID, CONFIG, now_ms=NOW_MS)

    def append(self, *items: tuple[bytes, bytes | None], transactional: bool = False) -> None:
        data = build(
            [Record(number, NOW_MS, key, value) for number, (key, value) in enumerate(items)],
            producer_id=TRANSACTIONAL if transactional else -1,
            producer_epoch=0 if transactional else -1,
            base_sequence=self.sequence if transactional else -1,
            transactional=transactional,
        )
        wrote = self.log.append(data, leader_epoch=self.epochs[-1][0], now_ms=NOW_MS, verification=WAIVED)
        for number, (key, value) in enumerate(items):
            offset = wrote.first_offset + number
            self.written[offset] = Written(offset, -1, -1, key, value)
            if transactional:
                self.undecided.append(offset)
        if transactional:
            self.sequence += len(items)

    def end(self, *, commit: bool) -> None:
        marker = control_batch(
            commit=commit, coordinator_epoch=0, producer_id=TRANSACTIONAL, producer_epoch=0, timestamp_ms=NOW_MS
        )
        self.log.append(marker, leader_epoch=self.epochs[-1][0], now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
        if not commit:
            self.aborted.update(self.undecided)
        self.undecided.clear()

    def begin_epoch(self) -> None:
        epoch = self.epochs[-1][0] + 1
        self.log.begin_epoch(epoch)
        self.epochs.append((epoch, self.log.end_offset))

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def flush(self) -> None:
        self.log.flush(now_ms=NOW_MS)
        self.synced = self.log.end_offset

    def checkpoint(self) -> None:
        self.directory.checkpoints.write_recovery_points()
        self.directory.checkpoints.write_start_offsets()

    def compact(self) -> None:
        """One pass with a small map, as in the broker."""
        request = a_pass(self.log, NOW_MS, everywhere=self.log.cleaned_to, keys=KEYS_IN_THE_MAP)
        if request is not None:
            assert self.log.swap_in(clean(self.disk, request), now_ms=NOW_MS)
            self.directory.checkpoints.write_cleaner_offsets()

    def purge(self) -> None:
        self.log.purge(NOW_MS)

    def be_killed(self) -> None:
        self.disk.kill()
        self.open()

    def restart(self) -> None:
        self.directory.close(now_ms=NOW_MS)
        self.synced = self.log.end_offset
        self.open()


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch that wrote an offset."""
    return next(epoch for epoch, start in reversed(epochs) if start <= offset)


def some(life: Life, *, transactional: bool = False) -> None:
    """A few values and a tombstone."""
    base = life.log.end_offset
    items = [(b"k%d" % ((base + number * 3) % 8), b"%d" % (base + number) * 8) for number in range(4)]
    life.append(*items, (b"k%d" % (base % 5), None), transactional=transactional)


def some_in_a_transaction(life: Life) -> None:
    some(life, transactional=True)


STEPS: list[tuple[str, Callable[[Life], None]]] = [
    ("open", Life.open),
    *[("append", some)] * 2,
    ("begin epoch", Life.begin_epoch),
    *[("append", some)] * 2,
    ("begin epoch", Life.begin_epoch),
    *[("append", some)] * 2,
    ("flush", Life.flush),
    ("checkpoint", Life.checkpoint),
    ("roll", Life.roll),
    ("compact", Life.compact),
    ("compact", Life.compact),
    ("transaction", some_in_a_transaction),
    ("append", some),
    ("transaction", some_in_a_transaction),
    ("abort", lambda life: life.end(commit=False)),
    ("append", some),
    ("roll", Life.roll),
    ("flush", Life.flush),
    ("compact", Life.compact),
    ("purge", Life.purge),
    ("compact", Life.compact),
    ("compact", Life.compact),
    ("kill", Life.be_killed),
    ("begin epoch", Life.begin_epoch),
    ("transaction", some_in_a_transaction),
    ("commit", lambda life: life.end(commit=True)),
    ("append", some),
    ("begin epoch", Life.begin_epoch),
    *[("append", some)] * 2,
    ("flush", Life.flush),
    ("roll", Life.roll),
    ("compact", Life.compact),
    ("compact", Life.compact),
    ("checkpoint", Life.checkpoint),
    ("restart", Life.restart),
    ("append", some),
    ("roll", Life.roll),
    ("compact", Life.compact),
    ("purge", Life.purge),
    ("compact", Life.compact),
]


class Crash(NamedTuple):
    """The disk just before a call, with the written records and the least synced offset at that time."""

    disk: MemoryDisk
    step: str
    call: int
    written: dict[int, Written]
    aborted: frozenset[int]
    synced: int
    epochs: tuple[tuple[int, int], ...] = ()


def crashes() -> list[Crash]:
    """One for each call of the steps from the first compaction on, and for their ends."""
    life = Life(MemoryDisk())
    found: list[Crash] = []
    for name, act in STEPS:
        synced, here = life.synced, len(found)

        def before_call(name: str = name, synced: int = synced) -> None:
            found.append(Crash(life.disk.fork(), name, life.disk.plan.calls, {}, frozenset(), synced))

        life.disk.plan.before = before_call
        act(life)
        before_call()
        # Records that the step writes may be there or not; records that decide the outcome were written before.
        found[here:] = [
            each._replace(written=dict(life.written), aborted=frozenset(life.aborted), epochs=tuple(life.epochs))
            for each in found[here:]
        ]
    return found


def check(life: Life, crash: Crash, *, power: bool) -> None:
    """Whether the opened log is one that the crash may leave. Raises AssertionError."""
    log = life.log
    end = log.end_offset
    assert end >= crash.synced
    previous = -1
    for segment in log.segments:
        batches = batches_in(segment)
        check_indexes(segment, batches)
        for data, header in batches:
            assert header.base_offset > previous, f"offset {header.base_offset} comes twice"
            previous = header.last_offset
            for each in records(data):
                if not header.is_control:
                    then = crash.written[each.offset]
                    assert (then.key, then.value) == (each.key, each.value)
    check_gaps(log)
    for offset in range(previous + 1):
        assert log.epochs.epoch_at(offset) == epoch_at(crash.epochs, offset), f"epoch of {offset}"
    undecided = log.producers.first_undecided_offset
    limit = end if undecided is None else undecided
    known = [each for each in crash.written.values() if each.offset < limit and each.offset not in crash.aborted]
    assert folded([each for each in committed_view(log) if each.offset < limit]) == folded(known)


def compacted_to_the_end(life: Life) -> list[Written]:
    """The records that are left when everything has been compacted that can be."""
    life.roll()
    before = -2
    while life.log.cleaned_to > before:
        before = life.log.cleaned_to
        life.compact()
    return stored(life.log)


def judged(crash: Crash, way: str, choose: Choose | None, seen: set[object]) -> str | None:
    """The violation after a crash; None where there is none, or where the same disk was `seen` before, or the same
    directory in memory over it: the rest of its life, without another loss of power, is the same too.
    """
    disk = crash.disk.fork()
    facts = crash.synced, len(crash.written), len(crash.aborted), crash.epochs
    if choose is not None:
        disk.lose_power(choose)
        what = disk.fingerprint(), *facts
        if what in seen:
            return None
        seen.add(what)
    life = Life(disk)
    try:
        life.open()
        check(life, crash, power=choose is not None)
        opened = (state_of(life.directory, (MemoryDisk, MemoryFile)), disk.visible(), *facts)
        if opened in seen:
            return None
        seen.add(opened)
        compacted_to_the_end(life)
        check(life, crash, power=choose is not None)
        life.restart()
        check(life, crash, power=choose is not None)
    except Exception as error:
        return f"{crash.step}, call {crash.call}, {way}: {error!r}"
    return None


def ways(crash: Crash, seeds: int = 1) -> dict[str, Choose | None]:
    """Ways to end at a crash, with the unsynced writes to keep; None where only the process ends. The same in every
    run.
    """
    found: dict[str, Choose | None] = {"a loss of all": keep_nothing}
    orders = (0, 1) if crash.step == "compact" else (crash.call % 2,)
    for seed, order in product(range(seeds), orders):
        name = f"a loss in {'' if order else 'no '}order, {seed}"
        found[name] = at_random(Random(f"{crash.call} {name}"), order)
    return found | ({"a kill": None} if crash.call % 2 else {"a loss of nothing": keep_all})


def crashes_in_recovery(crash: Crash, choose: Choose) -> list[Crash]:
    """A crash for each call to the disk of the broker that starts after a loss of power."""
    disk = crash.disk.fork()
    disk.lose_power(choose)
    found: list[Crash] = []

    def before_call() -> None:
        step = f"recovery after {crash.step}, call {crash.call}"
        found.append(crash._replace(disk=disk.fork(), step=step, call=disk.plan.calls))

    disk.plan.before = before_call
    Life(disk).open()
    return found
