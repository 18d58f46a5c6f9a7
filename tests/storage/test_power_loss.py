"""Power is lost at every call of a log's life to the disk, and the log that comes back meets R13.

A life is a row of named steps, done once; each call to the disk leaves a copy of the disk as it was just before. Every
copy then loses its process, or its power in several ways, and is opened as a broker opens it: with its own clean mark
and its own checkpoints. The opening is itself a row of calls at which power is lost again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import pytest

from odradek.protocol.batch import control_batch, read_header, stamp
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from odradek.storage.recovery import LoadRequest
from odradek.storage.validation import Prepared, ReceivedRun
from tests.storage.batches import NOW_MS, TOPIC_ID, batch
from tests.storage.disks import Choose, MemoryDisk, at_random, keep_all, keep_nothing
from tests.storage.r13 import Written, batches_of, check_files, check_r13, check_rebuild, check_run

PATH = "/data"
NAME = ("topic", 0)
LOG_PATH = f"{PATH}/topic-0"
CONFIG = LogConfig(segment_bytes=9000, index_interval_bytes=1000, retention_bytes=30_000, file_delete_delay_ms=1000)


class Life:
    """A broker's data directory with one log, and the batches in `written` that it should hold.

    `synced` is the end of the flushed part, `checkpointed_start` the log's start that is surely stored. `exact` marks a
    log that was never truncated and written in one go, whose indexes have entries at the usual distances.
    """

    def __init__(self, disk: MemoryDisk, config: LogConfig = CONFIG) -> None:
        self.disk, self.config = disk, config
        self.written: list[Written] = []
        self.checkpointed_start = 0
        self.synced = 0
        self.sequences: dict[int, int] = {}
        self.epoch = 0
        self.exact = True
        self.directory: Directory
        self.log: Log

    def open(self) -> None:
        """Start as a broker does."""
        request = DirectoryRequest(
            broker_id=0, cluster_id="cluster", now_ms=NOW_MS, config_for=lambda topic: self.config, random=Random(0)
        )
        self.directory = Directory.open(PATH, request, self.disk)
        log = self.directory.logs.get(NAME)
        self.log = log or self.directory.create_log(NAME, TOPIC_ID, self.config, now_ms=NOW_MS)

    def append(self, size: int = 700, *, producer: int = -1, transactional: bool = False, count: int = 2) -> None:
        """Append as a leader."""
        sequence = self.sequences.get(producer, 0)
        data = batch(
            count,
            size=size // count,
            timestamp_ms=NOW_MS + len(self.written) * 3 % 10 + len(self.written),
            producer=(producer, 0, sequence) if producer >= 0 else (-1, -1, -1),
            transactional=transactional,
        )
        self.sequences[producer] = sequence + count
        self._append(data, AppendOrigin.CLIENT)

    def marker(self, *, commit: bool, producer: int = 2) -> None:
        """Append as a leader, for a coordinator."""
        data = control_batch(
            commit=commit, coordinator_epoch=1, producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS
        )
        self._append(memoryview(data), AppendOrigin.COORDINATOR)

    def append_staged(self, size: int) -> None:
        """Append a large batch as a leader; a thread has written it before."""
        data = batch(1, size=size, timestamp_ms=NOW_MS)
        prepared = Prepared(data, read_header(data))
        prepared.stage(self.log.folder)
        self._append(data, AppendOrigin.CLIENT, prepared)

    def _append(self, data: memoryview, origin: AppendOrigin, prepared: Prepared | None = None) -> None:
        stamped = bytearray(data)
        stamp(stamped, 0, self.log.end_offset, self.epoch)
        self.written.append(Written(bytes(stamped), read_header(stamped)))
        self.log.append(prepared or data, leader_epoch=self.epoch, now_ms=NOW_MS, origin=origin, verification=WAIVED)
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        """Flush before the response, as a replica does."""
        if self.log.flush_due(NOW_MS):
            self.flush()

    def replicate(self, count: int = 2, *, size: int = 900, gap: int = 0, is_staged: bool = False) -> None:
        """Append as a follower; a thread may have written the batches before."""
        offset = self.log.end_offset + gap
        data = b""
        for _ in range(count):
            each = bytes(
                batch(2, size=size // 2, base_offset=offset, leader_epoch=self.epoch, timestamp_ms=NOW_MS + self.epoch)
            )
            self.written.append(Written(each, read_header(each)))
            data += each
            offset += 2
        received = ReceivedRun(memoryview(data), self.epoch, self.log.folder) if is_staged else data
        self.log.append_replicated(received, now_ms=NOW_MS)
        self._flush_if_due()

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    def truncate(self, offset: int) -> None:
        self.exact = False
        self.log.truncate_to(offset, now_ms=NOW_MS)
        self.written = [each for each in self.written if each.header.next_offset <= offset]
        self.synced = min(self.synced, offset)
        self.epoch += 1

    def truncate_fully(self, offset: int) -> None:
        self.exact = False
        self.log.truncate_fully(offset, now_ms=NOW_MS)
        self.written = []
        self.synced = offset
        self.epoch += 1

    def delete_records(self, offset: int) -> None:
        self.log.advance_start_offset(offset, high_watermark=self.log.end_offset)

    def retain(self) -> None:
        self.log.delete_old_segments(high_watermark=self.log.end_offset, now_ms=NOW_MS)

    def purge(self) -> None:
        self.log.purge(NOW_MS + 2000)

    def flush(self) -> None:
        self.log.flush(now_ms=NOW_MS)
        self.synced = self.log.end_offset

    def flush_rolled(self) -> None:
        flush = self.log.start_flush(rolled_only=True)
        flush.run()
        self.log.finish_flush(flush, None, now_ms=NOW_MS)
        self.synced = max(self.synced, self.log.active.base_offset)

    def checkpoint(self) -> None:
        self.directory.checkpoints.write_recovery_points()
        self.directory.checkpoints.write_start_offsets()
        self.checkpointed_start = self.log.start_offset

    def close(self) -> None:
        self.directory.close(now_ms=NOW_MS)
        self.synced = self.log.end_offset
        self.checkpointed_start = self.log.start_offset

    def restart(self) -> None:
        self.close()
        self.open()
        self.exact = False

    def be_killed(self) -> None:
        self.disk.kill()
        self.open()
        self.exact = False


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


Step = tuple[str, Callable[[Life], None]]
LEADER: list[Step] = [
    ("open", Life.open),
    ("append", Life.append),
    ("idempotent", lambda life: life.append(1500, producer=1)),
    ("transaction", lambda life: life.append(1200, producer=2, transactional=True)),
    ("append", lambda life: life.append(2600)),
    ("commit", lambda life: life.marker(commit=True)),
    ("flush", Life.flush),
    ("append", lambda life: life.append(3000, count=3)),
    ("begin epoch", Life.begin_epoch),
    *[("transaction", lambda life: life.append(1700, producer=2, transactional=True))] * 3,
    ("abort", lambda life: life.marker(commit=False)),
    ("flush what is rolled", Life.flush_rolled),
    ("checkpoint", Life.checkpoint),
    ("idempotent", lambda life: life.append(800, producer=1)),
    ("kill", Life.be_killed),
    *[("append", lambda life: life.append(2500))] * 4,
    ("transaction", lambda life: life.append(900, producer=2, transactional=True)),
    ("flush", Life.flush),
    ("restart", Life.restart),
    ("append", lambda life: life.append(600, producer=1)),
    ("abort", lambda life: life.marker(commit=False)),
    ("append", lambda life: life.append(2000)),
    ("roll", lambda life: life.log.roll(NOW_MS)),
    ("append", Life.append),
    ("close", Life.close),
]
STAGED: list[Step] = [
    ("open", Life.open),
    ("begin epoch", Life.begin_epoch),
    ("flush", Life.flush),
    ("first staged", lambda life: life.append_staged(3000)),
    ("flush", Life.flush),
    ("staged", lambda life: life.append_staged(2500)),
    ("append", Life.append),
    ("flush", Life.flush),
    ("staged", lambda life: life.append_staged(2500)),
    ("flush what is rolled", Life.flush_rolled),
    ("append", lambda life: life.append(1500, producer=1)),
    ("begin epoch", Life.begin_epoch),
    ("staged", lambda life: life.append_staged(4000)),
    ("flush", Life.flush),
    ("checkpoint", Life.checkpoint),
    ("replicated", lambda life: life.replicate(3, is_staged=True)),
    ("flush what is rolled", Life.flush_rolled),
    ("staged", lambda life: life.append_staged(8000)),
    ("kill", Life.be_killed),
    *[("staged", lambda life: life.append_staged(1000))] * 3,
    ("truncate", lambda life: life.truncate(life.log.end_offset - 1)),
    ("begin epoch", Life.begin_epoch),
    ("staged", lambda life: life.append_staged(1000)),
    ("roll", lambda life: life.log.roll(NOW_MS)),
    ("staged", lambda life: life.append_staged(1000)),
    ("restart", Life.restart),
    ("staged", lambda life: life.append_staged(1000)),
    ("close", Life.close),
]
HEADS: list[Step] = [
    ("open", Life.open),
    *[("append", lambda life: life.append(2500, producer=1))] * 7,
    ("delete records", lambda life: life.delete_records(5)),
    ("checkpoint", Life.checkpoint),
    ("transaction", lambda life: life.append(2500, producer=2, transactional=True)),
    ("delete records", lambda life: life.delete_records(9)),
    ("retention", Life.retain),
    ("begin epoch", Life.begin_epoch),
    *[("append", lambda life: life.append(2500))] * 8,
    ("flush", Life.flush),
    ("retention", Life.retain),
    ("purge", Life.purge),
    ("append", Life.append),
    ("checkpoint", Life.checkpoint),
    ("delete records", lambda life: life.delete_records(life.log.end_offset)),
    ("retention", Life.retain),
    ("append", Life.append),
    ("flush", Life.flush),
    ("roll", lambda life: life.log.roll(NOW_MS)),
    ("append", Life.append),
    ("delete records", lambda life: life.delete_records(life.log.end_offset)),
    ("retention of all but the new segment", Life.retain),
    ("append", Life.append),
    ("kill", Life.be_killed),
    ("purge", Life.purge),
    ("restart", Life.restart),
    ("append", Life.append),
]
FOLLOWER: list[Step] = [
    ("open", Life.open),
    *[("replicate", lambda life: life.replicate(3))] * 4,
    ("flush", Life.flush),
    ("replicate", Life.replicate),
    ("checkpoint", Life.checkpoint),
    ("truncate", lambda life: life.truncate(25)),
    ("begin epoch", Life.begin_epoch),
    ("replicate", lambda life: life.replicate(4)),
    ("truncate far", lambda life: life.truncate(11)),
    *[("replicate", lambda life: life.replicate(3, size=1200))] * 3,
    ("flush what is rolled", Life.flush_rolled),
    ("truncate to the end", lambda life: life.truncate(life.log.end_offset)),
    ("begin epoch", Life.begin_epoch),
    ("replicate", Life.replicate),
    ("checkpoint", Life.checkpoint),
    ("kill", Life.be_killed),
    ("replicate", lambda life: life.replicate(5)),
    ("truncate fully", lambda life: life.truncate_fully(100)),
    *[("replicate", Life.replicate)] * 3,
    ("flush", Life.flush),
    ("replicate", Life.replicate),
    ("truncate", lambda life: life.truncate(life.log.end_offset - 3)),
    ("restart", Life.restart),
    ("replicate", Life.replicate),
    ("truncate", lambda life: life.truncate(103)),
    ("replicate", lambda life: life.replicate(5)),
    ("close", Life.close),
]
EVERY = 9
"""Recovery begins with one in so many calls, and is itself crashed at each of its calls: all take ten minutes."""
LIVES = {"leader": LEADER, "staged": STAGED, "heads": HEADS, "follower": FOLLOWER}


class State(NamedTuple):
    """The state of a log between two steps; the offsets are those of `Log`."""

    written: list[Written]
    synced: int
    start: int
    checkpointed_start: int
    end: int
    exact: bool

    @classmethod
    def of(cls, life: Life) -> State:
        log, synced = life.log, life.synced
        assert log.recovery_point <= synced
        return cls(list(life.written), synced, log.start_offset, life.checkpointed_start, log.end_offset, life.exact)


@dataclass
class Crash:
    """A disk just before a call, within the step between two states."""

    disk: MemoryDisk
    step: str
    call: int
    before: State
    after: State = field(init=False)


def live(steps: Sequence[Step], config: LogConfig = CONFIG) -> list[Crash]:
    """Carry out the steps; a crash for each call to the disk, and one for the end."""
    life = Life(MemoryDisk(), config)
    state = State([], 0, 0, 0, 0, True)
    crashes: list[Crash] = []
    for name, act in steps:
        here: list[Crash] = []

        def before_call(here: list[Crash] = here, name: str = name, state: State = state) -> None:
            here.append(Crash(life.disk.fork(), name, life.disk.plan.calls, state))

        life.disk.plan.before = before_call
        act(life)
        before_call()
        state = State.of(life)
        for crash in here:
            crash.after = state
        crashes += here
    return crashes


def check(crash: Crash, disk: MemoryDisk, config: LogConfig, *, power: bool) -> None:
    """Open the remaining files, compare them with the written batches, write on, and lose power once more."""
    before, after = crash.before, crash.after
    life = Life(disk, config)
    life.open()
    found = batches_of(life.log)
    synced = min(before.synced, after.synced) if power else min(before.end, after.end)
    try:
        check_run(found, before.written, synced, start=after.start)
    except AssertionError as not_before:
        try:
            check_run(found, after.written, synced, start=after.start)
        except AssertionError as not_after:
            raise AssertionError(f"{not_before}; {not_after}") from None
    check_files(life.log, start=after.start)
    stored = min(before.checkpointed_start, after.checkpointed_start)
    assert life.log.start_offset >= stored or life.log.end_offset < stored  # beyond the end it is rejected
    if before.exact and after.exact:
        copy = Life(disk.fork(), config)
        copy.open()
        copy.close()
        request = LoadRequest(config=config, start_offset=copy.log.start_offset, now_ms=NOW_MS)
        check_rebuild(copy.disk, LOG_PATH, request)
    _write_on(life, found, after.start, Random(crash.call))


def _write_on(life: Life, found: list[Written], start: int, random: Random) -> None:
    """Batches that replace truncated ones may be lost with the next loss of power, but not if they were flushed."""
    life.written, life.epoch = list(found), 99
    life.sequences = {each.producer_id: each.last_sequence + 1 for each in life.log.producers.active()}
    life.append(600)
    life.append(1000, producer=7)
    _check_after(life, at_random(random), life.log.recovery_point, start)
    life.flush()
    _check_after(life, keep_nothing, life.log.end_offset, start)


def _check_after(life: Life, choose: Choose, synced: int, start: int) -> None:
    fork = life.disk.fork()
    fork.lose_power(choose)
    again = Life(fork, life.config)
    again.open()
    check_r13(again.log, life.written, synced, start=max(start, life.log.start_offset))


def losses(crash: Crash, seeds: int) -> dict[str, Choose | None]:
    """Ways to end at a crash, with the unsynced writes to keep; None where only the process ends. The same in every
    run.
    """
    ways: dict[str, Choose | None] = {"a kill": None, "a loss of all": keep_nothing}
    if crash.call % 2:  # the log is that of a kill
        ways["a loss of nothing"] = keep_all
    for seed in range(seeds):
        for order in range(2):
            name = f"a loss in {'' if order else 'no '}order, {seed}"
            ways[name] = at_random(Random(f"{crash.call} {name}"), order)
    return ways


def judged(crash: Crash, way: str, choose: Choose | None, seen: set[object], config: LogConfig = CONFIG) -> str | None:
    """The violation after a crash; None where there is none, or where the same disk was `seen` before."""
    disk = crash.disk.fork()
    if choose is not None:
        disk.lose_power(choose)
        what = disk.fingerprint(), id(crash.before), id(crash.after)
        if what in seen:
            return None
        seen.add(what)
    try:
        check(crash, disk, config, power=choose is not None)
    except Exception as error:
        return f"{crash.step}, call {crash.call}, {way}: {error!r}"
    return None


def wrong_after(crashes: Sequence[Crash], seeds: int, config: LogConfig = CONFIG) -> list[str]:
    """All violations after any of the crashes, ended in each way."""
    seen: set[object] = set()
    found = [
        judged(crash, way, choose, seen, config) for crash in crashes for way, choose in losses(crash, seeds).items()
    ]
    return [each for each in found if each is not None]


def crashes_in_recovery(crash: Crash, choose: Choose) -> list[Crash]:
    """A crash for each call to the disk of the broker that starts after a loss of power."""
    disk = crash.disk.fork()
    disk.lose_power(choose)
    here: list[Crash] = []

    def before_call() -> None:
        again = Crash(disk.fork(), f"recovery after {crash.step}, call {crash.call}", disk.plan.calls, crash.before)
        again.after = crash.after
        here.append(again)

    disk.plan.before = before_call
    Life(disk).open()
    return here


@pytest.mark.parametrize("every", [pytest.param(20, id="some"), pytest.param(1, marks=pytest.mark.slow, id="all")])
@pytest.mark.parametrize("name", LIVES)
def test_power_is_lost_at_every_call(name: str, every: int) -> None:
    crashes = live(LIVES[name])
    assert len(crashes) > 200
    wrong = wrong_after(crashes[::every], seeds=1)
    assert not wrong, "\n".join([f"{len(wrong)} of {len(crashes)} calls", *wrong[:20]])


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
def test_power_is_lost_again_at_every_call_of_recovery(name: str) -> None:
    wrong: list[str | None] = []
    seen: set[object] = set()
    for crash in live(LIVES[name])[::EVERY]:
        for again in crashes_in_recovery(crash, at_random(Random(crash.call))):
            kept = again.call % 3
            choose = keep_nothing if not kept else at_random(Random(f"{again.call} again"), kept - 1)
            wrong.append(judged(again, "a second loss", choose, seen))
    assert len(seen) > 200
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
def test_with_a_flush_for_each_message_nothing_acknowledged_is_lost(name: str) -> None:
    """Acknowledged records, with `flush.messages=1`, are there when every unsynced page is gone."""
    config = replace(CONFIG, flush_messages=1)
    crashes = live(LIVES[name], config)
    for crash in crashes:
        if crash.before.written:
            last = crash.before.written[-1].header.next_offset
            assert crash.before.synced >= last, f"before {crash.step} all was answered"
    seen: set[object] = set()
    wrong = [judged(crash, "a loss of all", keep_nothing, seen, config) for crash in crashes]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_a_data_directory_survives_a_loss_of_power_with_all_flushed_records() -> None:
    """Its own name, and those of directories created above it, are durable before anything in it is."""
    disk, path = MemoryDisk(), "/mounted/made/for/the/broker"
    request = DirectoryRequest(broker_id=0, cluster_id="cluster", now_ms=NOW_MS, random=Random(0))
    log = Directory.open(path, request, disk).create_log(NAME, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    log.flush(now_ms=NOW_MS)
    disk.lose_power(keep_nothing)
    assert Directory.open(path, request, disk).logs[NAME].end_offset == 1


def test_no_segment_is_removed_before_the_name_of_the_next_one_is_durable() -> None:
    """A roll does not wait for the disk. Without this wait a loss of power leaves no segment at all, and the offsets of
    the removed one are given to other records.
    """
    life = Life(MemoryDisk())
    life.open()
    life.append()
    life.flush()
    life.log.roll(NOW_MS)
    life.append()
    life.delete_records(life.synced)
    life.retain()
    assert len(life.log.segments) == 1
    ends = set()
    for seed in range(30):
        disk = life.disk.fork()
        disk.lose_power(at_random(Random(seed), 0))
        again = Life(disk)
        again.open()
        ends.add(again.log.end_offset)
    assert ends == {life.synced, life.log.end_offset}


def test_a_flush_makes_the_name_of_a_new_segment_durable() -> None:
    life = Life(MemoryDisk())
    life.open()
    life.append()
    life.flush()
    life.log.roll(NOW_MS)
    life.append()
    life.flush()
    life.disk.lose_power(keep_nothing)
    end_offset = life.log.end_offset
    life.open()
    assert life.log.end_offset == end_offset
