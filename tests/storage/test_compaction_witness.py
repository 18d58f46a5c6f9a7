"""Kafka 3.9.2's cleaner and Odradek's leave the same batches of the same log, for drawn logs.

Hypothesis draws the records; both logs get the same batches and are compacted pass for pass, one by Odradek's cleaner
and the other by Kafka's own (tests/jvm/CleanerWitness.java). Every batch must be the same: offsets, number of records,
producer, epochs, sequence, attributes, delete horizon, and the records themselves. So must be the leader epochs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import Header, Record, build, control_batch, records
from odradek.storage.checkpoints import LEADER_EPOCHS
from odradek.storage.compaction import clean
from odradek.storage.compaction_checkpoint import COMPACTION_CHECKPOINT
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.file_records import checked_batches
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, java_command
from tests.storage.batches import NOW_MS, open_log
from tests.storage.compaction_pass import EVERYWHERE, a_pass, check_gaps

pytestmark = pytest.mark.jvm

SOURCE = Path(__file__).parent.parent / "jvm" / "CleanerWitness.java"
TIMEOUT_S = 60.0
RETENTION_MS = 100
CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_index_bytes=4096,
    index_interval_bytes=100,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, (1, 2), (10, 11)


class Witness:
    """Kafka's log and cleaner in one JVM."""

    def __init__(self) -> None:
        self._process = BackgroundProcess(java_command("3.9.2", str(SOURCE), [], [*QUICK_START, "-Xmx256m", *QUIET]))
        self._asked = 0

    def ask(self, *words: object) -> list[int]:
        """The numbers of the response. Raises AssertionError where Kafka refuses."""
        self._asked += 1
        self._process.write_line(" ".join(map(str, words)))
        lines = self._process.stdout.wait_until(lambda lines: len(lines) >= self._asked, TIMEOUT_S)
        status, *numbers = lines[self._asked - 1].split()
        assert status == "ok", lines[self._asked - 1]
        return [int(each) for each in numbers]

    def close(self) -> None:
        self._process.kill()


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    made = Witness()
    yield made
    made.close()


# -- written batches ---------------------------------------------------------------------------------------------------


class Write(NamedTuple):
    """A batch of a producer: keys, each with a value or, where that is None, a tombstone."""

    producer_id: int
    items: tuple[tuple[bytes, bytes | None], ...]


class End(NamedTuple):
    """The end of a transaction, if its producer has one."""

    producer_id: int
    commit: bool


class Epoch(NamedTuple):
    """A new leader begins to write; where `bumps` all producers get a new epoch with the next batch."""

    bumps: bool


class Roll(NamedTuple):
    """A new segment."""


Step = Write | End | Epoch | Roll
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
ITEMS = st.lists(st.tuples(KEYS, st.none() | st.just(b"") | st.binary(min_size=1, max_size=20)), min_size=1, max_size=4)
STEPS = st.one_of(
    st.builds(Write, st.sampled_from([PLAIN, PLAIN, *IDEMPOTENT, *TRANSACTIONAL, *TRANSACTIONAL]), ITEMS.map(tuple)),
    st.builds(Write, st.just(PLAIN), ITEMS.map(tuple)),
    st.builds(End, st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.builds(Epoch, st.booleans()),
    st.builds(Roll),
)


class Round(NamedTuple):
    """The batches before a pass, and the time between the pass before it and this one."""

    steps: list[Step]
    later_ms: int


ROUNDS = st.lists(
    st.builds(Round, st.lists(STEPS, min_size=1, max_size=14), st.sampled_from([1, RETENTION_MS, 2 * RETENTION_MS])),
    min_size=1,
    max_size=5,
)


class Writers:
    """Producers and leaders; every batch goes to all logs."""

    def __init__(self) -> None:
        self.leader_epoch = 0
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def carry_out(self, step: Step, logs: list[Log], now_ms: int) -> None:
        match step:
            case Write(producer_id, items):
                self._write(producer_id, items, logs, now_ms)
            case End(producer_id, commit):
                if producer_id in self._open:
                    self._end(producer_id, logs, now_ms, commit=commit)
            case Epoch(bumps):
                self.leader_epoch += 1
                for log in logs:
                    log.begin_epoch(self.leader_epoch)
                for producer_id in [each for each in self._epochs if bumps and each not in self._open]:
                    self._epochs[producer_id] += 1
                    self._sequences[producer_id] = 0
            case Roll():
                for log in logs:
                    log.roll(now_ms)

    def _write(
        self, producer_id: int, items: tuple[tuple[bytes, bytes | None], ...], logs: list[Log], now_ms: int
    ) -> None:
        transactional, idempotent = producer_id in TRANSACTIONAL, producer_id >= 0
        sequence = self._sequences.get(producer_id, 0)
        data = build(
            [Record(number, now_ms + number, key, value) for number, (key, value) in enumerate(items)],
            producer_id=producer_id,
            producer_epoch=self._epochs.setdefault(producer_id, 0) if idempotent else -1,
            base_sequence=sequence if idempotent else -1,
            transactional=transactional,
        )
        for log in logs:
            verification = WAIVED if transactional else None
            log.append(bytes(data), leader_epoch=self.leader_epoch, now_ms=now_ms, verification=verification)
        if idempotent:
            self._sequences[producer_id] = sequence + len(items)
        if transactional:
            self._open.add(producer_id)

    def _end(self, producer_id: int, logs: list[Log], now_ms: int, *, commit: bool) -> None:
        self._open.discard(producer_id)
        marker = control_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=self._epochs[producer_id],
            timestamp_ms=now_ms,
        )
        for log in logs:
            log.append(bytes(marker), leader_epoch=self.leader_epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)


# -- remaining batches -------------------------------------------------------------------------------------------------


def batches_of(log: Log) -> list[tuple[Header, tuple[Record, ...]]]:
    """Every batch of a log, in its order: the whole header and all records."""
    return [
        (header, tuple(records(buffer, place)))
        for segment in log.segments
        for buffer, place, _, header in checked_batches(segment)
    ]


class Implementations:
    """One log in two directories: Kafka's cleaner works on the first, Odradek's on the second."""

    def __init__(self, folder: Path, witness: Witness, segment_bytes: int) -> None:
        self._witness = witness
        self.config = replace(CONFIG, segment_bytes=segment_bytes)
        self.kafkas, self.ours = folder / "kafkas" / "topic-0", folder / "ours" / "topic-0"
        self.cleaned_to = -1
        self.empty = 0
        self._writers = Writers()

    def write(self, steps: list[Step], now_ms: int) -> None:
        logs = [self._opened(self.kafkas, now_ms), self._opened(self.ours, now_ms)]
        for step in steps:
            self._writers.carry_out(step, logs, now_ms)
        for log in logs:
            log.close(now_ms=now_ms)

    def compact(self, now_ms: int) -> None:
        """One pass of both, which must leave the same."""
        ours = self._opened(self.ours, now_ms)
        request = a_pass(ours, now_ms, everywhere=EVERYWHERE)
        if request is None:
            ours.close(now_ms=now_ms)
            return
        cleaned = clean(OsDisk(), request)
        assert ours.swap_in(cleaned, now_ms=now_ms)
        upper, cleaned_to = self._witness.ask(
            "clean", self.kafkas, request.first_dirty, now_ms, self.config.segment_bytes, RETENTION_MS
        )
        assert (upper, cleaned_to) == (request.sources[-1].next_base, cleaned.cleaned_to)
        self.cleaned_to = cleaned_to
        kafkas = self._opened(self.kafkas, now_ms)
        left = batches_of(kafkas)
        assert batches_of(ours) == left
        self.empty += sum(not found for _, found in left)
        check_gaps(ours)
        ours.close(now_ms=now_ms)
        kafkas.close(now_ms=now_ms)
        assert (self.ours / LEADER_EPOCHS).read_bytes() == (self.kafkas / LEADER_EPOCHS).read_bytes()

    def check_recovery(self, now_ms: int) -> None:
        """After a kill no gap that compaction left is taken for a loss, and the epochs are unchanged."""
        whole = self._opened(self.ours, now_ms)
        expected, epochs, end = batches_of(whole), whole.epochs.entries(), whole.end_offset
        whole.close(now_ms=now_ms)
        copy = self.ours.with_name("copy")
        shutil.copytree(self.ours, copy)
        for cleaned_to in (self.cleaned_to, -1):  # with and without the cleaner's checkpoint
            again = open_log(copy, self.config, clean=False, cleaned_to=cleaned_to, now_ms=now_ms)
            assert batches_of(again) == expected
            assert again.end_offset == end
            last = expected[-1][0].leader_epoch if expected else -1
            assert again.epochs.entries() == [each for each in epochs if each[0] <= last]
            again.close_files()
        shutil.rmtree(copy)

    def check_kafka_opens(self, now_ms: int) -> None:
        """Kafka opens the log that Odradek's cleaner left, after a clean stop and after any other."""
        log = self._opened(self.ours, now_ms)
        expected, end = batches_of(log), log.end_offset
        log.close(now_ms=now_ms)
        for how in ("clean", "unclean"):
            assert self._witness.ask("open", self.ours, how, self.config.segment_bytes, now_ms) == [0, end]
        log = self._opened(self.ours, now_ms)
        assert batches_of(log) == expected
        log.close(now_ms=now_ms)

    def _opened(self, path: Path, now_ms: int) -> Log:
        return open_log(path, self.config, cleaned_to=self.cleaned_to, now_ms=now_ms)


@settings(max_examples=60, deadline=None)
@given(rounds=ROUNDS, segment_bytes=st.sampled_from([200, 200, 400, 1000]))
def test_both_cleaners_leave_the_same_batches(witness: Witness, rounds: list[Round], segment_bytes: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="odradek-cleaners-"))
    try:
        implementations, now_ms = Implementations(folder, witness, segment_bytes), NOW_MS
        for steps, later_ms in rounds:
            now_ms += later_ms
            implementations.write(steps, now_ms)
            implementations.compact(now_ms)
            implementations.check_recovery(now_ms)
        implementations.check_kafka_opens(now_ms)
        event(f"{min(implementations.empty, 5)} empty batches or more")
    finally:
        shutil.rmtree(folder)


def test_plain_producers_leave_no_empty_batch_except_the_one_before_the_active_segment(
    witness: Witness, tmp_path: Path
) -> None:
    """Twenty segments of 200 bytes, several leaders, one key: Kafka leaves one record."""
    implementations, now_ms = Implementations(tmp_path, witness, 200), NOW_MS
    for number in range(20):
        steps: list[Step] = [Write(PLAIN, ((b"k", b"%d" % number * 30),)), Roll()]
        implementations.write([Epoch(False), *steps] if number % 5 == 0 else steps, now_ms)
    implementations.compact(now_ms)
    log = open_log(implementations.ours, implementations.config, cleaned_to=implementations.cleaned_to)
    assert [header.base_offset for segment in log.segments for _, header in segment.headers()] == [19]
    assert log.epochs.entries() == [(1, 0), (2, 5), (3, 10), (4, 15)]
    log.close(now_ms=now_ms)
    implementations.check_recovery(now_ms)
    implementations.check_kafka_opens(now_ms)
    assert (implementations.ours / COMPACTION_CHECKPOINT).exists(), "Kafka leaves the file alone"
