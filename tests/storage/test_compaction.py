"""Compaction of one log against a model that stores everything that was ever written (C1).

After any passes, with any progress of the other replicas: offsets never change, the latest value of each key stays, no
aborted record is read, tombstones and markers stay as long as a replica may need them, producers keep their sequences,
and a restart changes nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.protocol.batch import Record, build, control_batch
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.compaction import Cleaned, clean
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from tests.storage.batches import NOW_MS, batch, open_log
from tests.storage.compaction_pass import EVERYWHERE, Written, a_pass, check_gaps, committed_view, folded, stored

RETENTION_MS = 100
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, index_interval_bytes=100, delete_retention_ms=RETENTION_MS
)
PLAIN, IDEMPOTENT = -1, (1, 2)
TRANSACTIONAL = (10, 11, 12)


class CompactedLog(RuleBasedStateMachine):
    """Producers of every kind, passes with small maps and slow replicas, and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="odradek-compaction-"))
        self.now_ms = NOW_MS
        self.written: dict[int, Written] = {}
        self.transactions = 0
        self.under_way: dict[int, int] = {}  # producer id -> number of its transaction
        self.outcome: dict[int, bool] = {}  # number -> committed
        self.sequences: dict[int, int] = {}
        self.covered_ms: dict[int, int] = {}  # offset -> when a pass first covered it
        self.everywhere = -1
        self.cleaned_to = -1

    @initialize()
    def begin(self) -> None:
        self.log = open_log(self.folder / "topic-0", CONFIG, now_ms=self.now_ms)

    def teardown(self) -> None:
        self.log.close_files()
        shutil.rmtree(self.folder)

    # ---- writing

    @rule(
        producer_id=st.sampled_from([PLAIN, *IDEMPOTENT, *TRANSACTIONAL, *TRANSACTIONAL]),
        items=st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.binary(max_size=40)),
            min_size=1,
            max_size=5,
        ),
        codec=st.sampled_from(list(Codec)),
    )
    def write(self, producer_id: int, items: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        transactional = producer_id in TRANSACTIONAL
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = build(
            [Record(number, self.now_ms + number, key, value) for number, (key, value) in enumerate(items)],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        wrote = self.log.append(
            data,
            leader_epoch=0,
            now_ms=self.now_ms,
            origin=AppendOrigin.CLIENT,
            verification=WAIVED if transactional else None,
        )
        number = -1
        if transactional:
            if producer_id not in self.under_way:
                self.transactions += 1
                self.under_way[producer_id] = self.transactions
            number = self.under_way[producer_id]
        for index, (key, value) in enumerate(items):
            offset = wrote.first_offset + index
            self.written[offset] = Written(offset, producer_id, number, key, value, self.now_ms + index)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(items)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.under_way)))
        marker = control_batch(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=self.now_ms
        )
        wrote = self.log.append(marker, leader_epoch=0, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)
        number = self.under_way.pop(producer_id)
        self.outcome[number] = commit
        self.written[wrote.first_offset] = Written(
            wrote.first_offset, producer_id, number, timestamp_ms=self.now_ms, commit=commit
        )

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(ms=st.integers(1, 2 * RETENTION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    # ---- compaction

    @rule(keys=st.integers(1, 6) | st.just(1000), lag=st.sampled_from([0, 0, 1, 10]), unknown=st.booleans())
    def compact(self, keys: int, lag: int, unknown: bool) -> None:
        """A pass, with other replicas whose progress is `lag` records behind, or unknown."""
        everywhere = -1 if unknown else self.log.cleaned_to - lag
        request = a_pass(self.log, self.now_ms, everywhere=everywhere, keys=keys)
        if request is None:
            return
        untouched = [each for each in stored(self.log) if each.offset >= request.sources[-1].next_base]
        cleaned = clean(OsDisk(), request)
        assert cleaned.cleaned_to > request.first_dirty
        assert self.log.swap_in(cleaned, now_ms=self.now_ms)
        assert self.log.cleaned_to == cleaned.cleaned_to
        self.everywhere = max(self.everywhere, everywhere)
        for offset in range(cleaned.cleaned_to):
            self.covered_ms.setdefault(offset, self.now_ms)
        assert [each for each in stored(self.log) if each.offset >= request.sources[-1].next_base] == untouched
        self.check_compacted(cleaned)

    def check_compacted(self, cleaned: Cleaned) -> None:
        """Below `cleaned_to` each key has one record at most, besides tombstones that wait, and nothing aborted."""
        seen: dict[bytes | None, int] = {}
        for each in committed_view(self.log):
            if each.offset < cleaned.cleaned_to:
                assert each.key not in seen, f"{each} and offset {seen[each.key]}"
                seen[each.key] = each.offset
        for each in stored(self.log):
            if each.offset < cleaned.cleaned_to and each.commit is None:
                number = self.written[each.offset].transaction
                assert number < 0 or self.outcome[number], f"{each} is of an aborted transaction"

    @rule(clean_stop=st.booleans())
    def restart(self, clean_stop: bool) -> None:
        before = self.sequences_known()
        undecided, end_offset = self.log.producers.first_undecided_offset, self.log.end_offset
        cleaned_to = self.log.cleaned_to
        if clean_stop:
            self.log.close(now_ms=self.now_ms)
        else:
            self.log.close_files()
        self.log = open_log(self.folder / "topic-0", CONFIG, clean=clean_stop, now_ms=self.now_ms)
        self.log.cleaned_to = cleaned_to  # which the directory stores
        assert self.log.end_offset == end_offset
        assert self.log.producers.first_undecided_offset == undecided
        assert self.sequences_known() == before

    def sequences_known(self) -> dict[int, list[tuple[int, ...]]]:
        """The last batch of each producer that the log remembers; without its time, which is that of the remaining
        records.
        """
        active = self.log.producers.active()
        known = {each.producer_id: [tuple(batch[:3]) for batch in list(each.batches)[-1:]] for each in active}
        return {producer_id: batches for producer_id, batches in known.items() if batches}

    # ---- invariants

    @invariant()
    def what_is_there_was_written(self) -> None:
        offset = -1
        for each in stored(self.log):
            assert each.offset > offset
            offset = each.offset
            assert each == self.written[offset]._replace(transaction=-1)

    @invariant()
    def readers_end_with_the_same_map(self) -> None:
        view = committed_view(self.log)
        stable = self.log.producers.first_undecided_offset
        limit = self.log.end_offset if stable is None else stable
        committed = [
            each
            for each in self.written.values()
            if each.commit is None and (each.transaction < 0 or self.outcome.get(each.transaction, False))
        ]
        assert folded([each for each in view if each.offset < limit]) == folded(
            [each for each in committed if each.offset < limit]
        )
        for each in view:
            assert each.offset >= limit or self.outcome.get(self.written[each.offset].transaction, True)

    @invariant()
    def what_others_may_need_is_there(self) -> None:
        there = {each.offset for each in stored(self.log)}
        latest: dict[bytes | None, Written] = {}
        data_of = set()
        for each in self.written.values():
            if each.commit is None and (each.transaction < 0 or self.outcome.get(each.transaction, False)):
                latest[each.key] = each
            if each.commit is None and each.offset in there:
                data_of.add(each.transaction)
        needed = [each for each in latest.values() if each.value is None]
        needed += [each for each in self.written.values() if each.commit is not None]
        for each in needed:
            if each.offset in there:
                continue
            assert each.commit is None or each.transaction not in data_of, f"{each} is gone before its data"
            assert each.offset < self.everywhere, f"{each} is gone, and not every replica has compacted that far"
            assert self.now_ms >= self.covered_ms[each.offset] + RETENTION_MS, f"{each} is gone too early"

    @invariant()
    def a_gap_between_segments_is_in_the_compaction_checkpoint(self) -> None:
        check_gaps(self.log)


CompactedLog.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestCompactedLog = CompactedLog.TestCase


# -- examples ----------------------------------------------------------------------------------------------------------


def keyed(log: Log, *items: tuple[bytes, bytes | None], now_ms: int = NOW_MS, producer_id: int = -1) -> int:
    """Append a batch of records; returns its first offset."""
    data = build(
        [Record(number, now_ms, key, value) for number, (key, value) in enumerate(items)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    return log.append(data, leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR).first_offset


def compact(log: Log, now_ms: int = NOW_MS, *, everywhere: int = EVERYWHERE, keys: int = 1 << 20) -> Cleaned:
    """One pass, including the swap."""
    request = a_pass(log, now_ms, everywhere=everywhere, keys=keys)
    assert request is not None
    cleaned = clean(OsDisk(), request)
    assert log.swap_in(cleaned, now_ms=now_ms)
    return cleaned


def test_a_full_map_ends_a_pass_before_the_batch_that_does_not_fit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for first in (b"a", b"c", b"e"):
        keyed(log, (first, b"1"), (bytes([first[0] + 1]), b"1"))
    log.roll(NOW_MS)
    assert compact(log, keys=3).cleaned_to == 2
    assert compact(log, keys=3).cleaned_to == 4
    assert compact(log, keys=3).cleaned_to == 6
    assert a_pass(log, NOW_MS) is None


def test_a_full_map_ends_a_pass_before_the_transaction_that_does_not_fit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    keyed(log, (b"a", b"1"))
    for sequence, key in enumerate((b"b", b"c")):
        data = build(
            [Record(0, NOW_MS, key, b"2")], producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append(data, leader_epoch=0, now_ms=NOW_MS, verification=WAIVED)
    marker = control_batch(commit=True, coordinator_epoch=0, producer_id=9, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.roll(NOW_MS)
    assert compact(log, keys=2).cleaned_to == 1
    assert compact(log, keys=2).cleaned_to == 4


def test_a_batch_larger_than_the_whole_map_is_cleaned_nevertheless(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    keyed(log, *((b"%d" % number, b"1") for number in range(5)))
    keyed(log, *((b"%d" % number, b"2") for number in range(5)))
    log.roll(NOW_MS)
    assert compact(log, keys=2).cleaned_to == 5
    assert compact(log, keys=2).cleaned_to == 10
    assert [(each.offset, each.value) for each in stored(log)] == [(offset, b"2") for offset in range(5, 10)]


def test_a_tombstone_goes_when_its_time_is_over_and_every_replica_has_compacted_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    keyed(log, (b"a", b"1"))
    tombstone = keyed(log, (b"a", None))
    log.roll(NOW_MS)
    compact(log)
    assert [each.offset for each in stored(log)] == [tombstone]

    def again(now_ms: int, everywhere: int) -> list[int]:
        keyed(log, (b"z", b"1"), now_ms=now_ms)
        log.roll(now_ms)
        compact(log, now_ms, everywhere=everywhere)
        return [each.offset for each in stored(log) if each.key == b"a"]

    assert again(NOW_MS + RETENTION_MS - 1, EVERYWHERE) == [tombstone]
    assert again(NOW_MS + RETENTION_MS, tombstone) == [tombstone]
    assert again(NOW_MS + RETENTION_MS, -1) == [tombstone]
    assert again(NOW_MS + RETENTION_MS, tombstone + 1) == []


def test_a_marker_goes_long_after_its_data_and_when_every_replica_has_compacted_that(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    data = build([Record(0, NOW_MS, b"a", b"1")], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS, verification=WAIVED)
    marker = control_batch(commit=False, coordinator_epoch=0, producer_id=9, producer_epoch=0, timestamp_ms=NOW_MS)
    at = log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR).first_offset
    log.producers.expire(NOW_MS + 1, 1)

    def again(now_ms: int, everywhere: int) -> bool:
        keyed(log, (b"z", b"1"), now_ms=now_ms)
        log.roll(now_ms)
        compact(log, now_ms, everywhere=everywhere)
        return any(each.offset == at for each in stored(log))

    assert again(NOW_MS, EVERYWHERE)
    assert [each.key for each in stored(log)] == [None, b"z"], "the data goes with the first pass"
    assert log.search.aborted_transactions(0, log.end_offset) == [(9, 0)]
    assert again(NOW_MS, EVERYWHERE), "the second finds nothing of it, and lets the time begin"
    assert log.search.aborted_transactions(0, log.end_offset) == []
    assert again(NOW_MS + RETENTION_MS - 1, EVERYWHERE)
    assert again(NOW_MS + RETENTION_MS, at)
    assert again(NOW_MS + RETENTION_MS, -1)
    assert not again(NOW_MS + RETENTION_MS, at + 1)


def test_a_segment_with_nothing_to_remove_stays_unchanged(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    keyed(log, (b"a", bytes(500)))
    keyed(log, (b"b", bytes(500)))
    log.roll(NOW_MS)
    before = log.segments
    cleaned = compact(log)
    assert cleaned.groups == ()
    assert cleaned.cleaned_to == 2
    assert [left is right for left, right in zip(log.segments, before, strict=True)] == [True, True, True]
    assert not [name for name in (tmp_path / "topic-0").iterdir() if name.suffix == ".cleaned"]


def test_small_segments_become_one_and_keep_the_time_of_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for number in range(4):
        keyed(log, (b"%d" % number, b"1"))
        log.roll(NOW_MS)
    last = tmp_path / "topic-0" / f"{3:020d}.log"
    OsDisk().set_modified_ms(str(last), NOW_MS - 5)
    compact(log)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert OsDisk().modified_ms(str(tmp_path / "topic-0" / f"{0:020d}.log")) == NOW_MS - 5


def test_the_result_of_a_pass_over_a_log_truncated_meanwhile_is_not_swapped_in(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(3):
        keyed(log, (b"a", b"1"))
        log.roll(NOW_MS)
    request = a_pass(log, NOW_MS)
    assert request is not None
    cleaned = clean(OsDisk(), request)
    log.truncate_to(1, now_ms=NOW_MS)
    assert not log.swap_in(cleaned, now_ms=NOW_MS)
    assert [each.offset for each in stored(log)] == [0]


def test_a_truncation_below_the_compacted_end_makes_the_log_dirty_again(tmp_path: Path) -> None:
    """KAFKA-3330."""
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(3):
        keyed(log, (b"a", b"1"))
        log.roll(NOW_MS)
    compact(log)
    assert log.cleaned_to == 3
    log.truncate_to(2, now_ms=NOW_MS)
    assert log.cleaned_to == 2
    log.truncate_fully(7, now_ms=NOW_MS)
    assert log.cleaned_to == -1


def test_a_damaged_batch_ends_the_pass_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(3):
        keyed(log, (b"a", bytes(300)))
    log.roll(NOW_MS)
    request = a_pass(log, NOW_MS)
    assert request is not None
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaError, match=r"00000000000000000000\.log at byte 0: no sound batch") as raised:
        clean(OsDisk(), request)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not list((tmp_path / "topic-0").glob("*.cleaned"))


def test_a_removed_segment_is_not_recreated(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    keyed(log, (b"a", b"1"))
    log.roll(NOW_MS)
    request = a_pass(log, NOW_MS)
    assert request is not None
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        clean(OsDisk(), request)
    assert not path.exists()


def test_the_throttle_slows_a_pass_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(4):
        keyed(log, (b"a", bytes(400)))
    log.roll(NOW_MS)
    request = a_pass(log, NOW_MS)
    assert request is not None
    clock = [0.0]
    monkeypatch.setattr("odradek.storage.compaction.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("odradek.storage.compaction.time.sleep", lambda step: clock.__setitem__(0, clock[0] + step))
    cleaned = clean(OsDisk(), replace(request, bytes_per_second=1000.0))
    stats = cleaned.stats
    assert stats.bytes_read / 1000 - 0.1 <= clock[0] <= (stats.bytes_read + stats.bytes_after) / 1000 + 0.1


@pytest.mark.parametrize("in_flight", [1, 4, 5, 7])
def test_the_last_sequence_below_the_high_watermark_stays_while_newer_batches_may_be_truncated(
    tmp_path: Path, in_flight: int
) -> None:
    """A follower that copies the log up to the high watermark would append a retry of that batch again."""
    log = open_log(tmp_path / "topic-0", CONFIG)

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            log.append(batch(producer=(7, 0, number)), leader_epoch=0, now_ms=NOW_MS)
            log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)

    send(0, 6)
    high_watermark = log.end_offset
    send(6, in_flight)
    request = a_pass(log, NOW_MS, last_stable=high_watermark, high_watermark=high_watermark)
    assert request is not None
    assert log.swap_in(clean(OsDisk(), request), now_ms=NOW_MS)

    follower = open_log(tmp_path / "follower" / "topic-0", CONFIG)
    while follower.end_offset < high_watermark:
        copied = log.read(follower.end_offset, 1 << 20, end_offset=high_watermark).records
        assert follower.append_replicated(copied if isinstance(copied, bytes) else copied.read(), now_ms=NOW_MS)
    producer = follower.producers.get(7)
    assert producer is not None
    assert producer.last_sequence == 5

    request = a_pass(log, NOW_MS)
    assert request is not None
    assert log.swap_in(clean(OsDisk(), request), now_ms=NOW_MS)
    left = [header for segment in log.segments for _, header in segment.headers() if header.producer_id == 7]
    assert [header.last_sequence for header in left] == [5 + in_flight], "once it is replicated, the last one is enough"


def test_the_old_segments_serve_readers_until_the_swap_has_ended(tmp_path: Path) -> None:
    """A thread renames the files and waits for the disk; the log takes writes and returns records meanwhile."""
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(3):
        keyed(log, (b"a", b"1"))
        log.roll(NOW_MS)
    log.close_files()
    log = open_log(tmp_path / "topic-0", CONFIG)
    request = a_pass(log, NOW_MS)
    assert request is not None
    change = log.start_swap(clean(OsDisk(), request), now_ms=NOW_MS)
    assert change is not None
    assert [each.offset for each in stored(log)] == [0, 1, 2]
    change.run()
    keyed(log, (b"b", b"1"))
    assert [each.offset for each in stored(log)] == [0, 1, 2, 3]
    log.finish_change(change)
    assert [each.offset for each in stored(log)] == [2, 3]
    log.close(now_ms=NOW_MS)


@pytest.mark.parametrize("has_run", [False, True])
def test_a_truncation_lets_a_swap_end_first(tmp_path: Path, has_run: bool) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    for _ in range(3):
        keyed(log, (b"a", b"1"))
        log.roll(NOW_MS)
    keyed(log, (b"a", b"2"))
    request = a_pass(log, NOW_MS)
    assert request is not None
    change = log.start_swap(clean(OsDisk(), request), now_ms=NOW_MS)
    assert change is not None
    if has_run:
        change.run()
    log.truncate_to(3, now_ms=NOW_MS)
    change.run()
    log.finish_change(change)
    assert [each.offset for each in stored(log)] == [2]
    log.close(now_ms=NOW_MS)
