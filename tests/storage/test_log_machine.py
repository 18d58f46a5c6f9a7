"""A log behaves like a list, through rolls, truncations, restarts, kills and losses of power."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from odradek.protocol.batch import Header, headers, read_header, records
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import encode_snapshot
from odradek.storage.validation import Prepared, ReceivedRun
from tests.storage.batches import NOW_MS, all_bytes, batch, open_log
from tests.storage.disks import MemoryDisk

PATH = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=200, file_delete_delay_ms=1000)


class LogMachine(RuleBasedStateMachine):
    """The model is the batches that the log should have, as bytes, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.disk.make_directory(PATH)
        self.disk.sync_directory("/data")
        self.log: Log = open_log(PATH, CONFIG, disk=self.disk)
        self.disk.sync_directory(PATH)  # as a data directory does when it begins a log
        self.model: list[bytes] = []
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.epoch = 0
        self.clock = 0

    def spans(self) -> list[tuple[int, int]]:
        return [(header.base_offset, header.next_offset) for header in map(header_of, self.model)]

    # -- events of a log -----------------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 90),
        producer=st.sampled_from([-1, -1, 1, 2]),
        later=st.integers(-5, 20),
        epoch_step=st.sampled_from([0, 0, 0, 1]),
        form=st.sampled_from(["writable", "read-only", "staged"]),
    )
    def append(self, count: int, size: int, producer: int, later: int, epoch_step: int, form: str) -> None:
        self.epoch += epoch_step
        self.clock += later
        known = self.log.producers.get(producer)
        sequence = known.last_sequence + 1 if known else 0
        data = batch(
            count,
            size=size,
            timestamp_ms=NOW_MS + self.clock,
            producer=(producer, 0, sequence) if producer > 0 else (-1, -1, -1),
        )
        stamped: memoryview | bytes | Prepared = bytes(data) if form == "read-only" else data
        if form == "staged":
            stamped = Prepared(data, read_header(data))
            stamped.stage(self.log.folder)
        appended = self.log.append(stamped, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert (appended.first_offset, appended.last_offset) == (self.end_offset, self.end_offset + count - 1)
        if form == "read-only":
            data[0:8] = self.end_offset.to_bytes(8, "big")
            data[12:16] = self.epoch.to_bytes(4, "big")
        self.model.append(bytes(data))
        self.end_offset += count

    @rule(count=st.integers(1, 3), gap=st.integers(0, 7), size=st.integers(0, 90), is_staged=st.booleans())
    def replicate(self, count: int, gap: int, size: int, is_staged: bool) -> None:
        chunk = []
        base = self.end_offset + gap
        for number in range(count):
            data = bytes(
                batch(2, size=size, base_offset=base, leader_epoch=self.epoch, timestamp_ms=NOW_MS + self.clock)
            )
            chunk.append(data)
            base += 2 + number
        torn = chunk[0][: size % 61]
        received = memoryview(b"".join(chunk) + torn)
        run = ReceivedRun(received, self.epoch, self.log.folder) if is_staged else received
        self.log.append_replicated(run, now_ms=NOW_MS)
        self.model.extend(chunk)
        self.end_offset = header_of(chunk[-1]).next_offset

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start_offset + round(share * (self.end_offset - self.start_offset))
        assert self.log.truncate_to(offset, now_ms=NOW_MS) == (offset < self.end_offset)
        self.model = [data for data in self.model if header_of(data).next_offset <= offset]
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    @rule(beyond=st.integers(0, 100))
    def truncate_fully(self, beyond: int) -> None:
        self.end_offset = self.start_offset = self.end_offset + beyond
        self.log.truncate_fully(self.end_offset, now_ms=NOW_MS)
        self.model = []

    @rule(share=st.floats(0, 1))
    def delete_prefix(self, share: float) -> None:
        offset = self.start_offset + round(share * (self.end_offset - self.start_offset))
        self.log.advance_start_offset(offset, high_watermark=self.end_offset)
        self.log.delete_old_segments(high_watermark=self.end_offset, now_ms=NOW_MS)
        self.log.purge(NOW_MS + 1000)
        self.start_offset = offset
        self.model = [data for data in self.model if header_of(data).next_offset > offset]

    @rule()
    def flush(self) -> None:
        self.log.flush(now_ms=NOW_MS)
        self.recovery_point = self.end_offset

    @rule()
    def restart(self) -> None:
        self.log.close(now_ms=NOW_MS)
        at_batch_end = self.model and header_of(self.model[-1]).next_offset
        self.reopen(clean=True)
        # Where a truncation cut into a batch, only the batches on disk show where the log ends.
        if self.log.end_offset != self.end_offset:
            assert self.log.end_offset == (at_batch_end or self.log.end_offset) < self.end_offset
            self.end_offset = self.log.end_offset
        self.recovery_point = self.end_offset

    @rule()
    def kill(self) -> None:
        before = encode_snapshot(self.log.producers.active())
        truncated = self.model and header_of(self.model[-1]).next_offset != self.end_offset
        self.reopen(clean=False)
        if not truncated and self.model:
            assert self.log.end_offset == self.end_offset
            if self.start_offset == 0:
                assert sorted_entries(encode_snapshot(self.log.producers.active())) == sorted_entries(before)
        self.end_offset = self.log.end_offset
        self.recovery_point = min(self.recovery_point, self.end_offset)

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        self.disk.lose_power(lambda most: data.draw(st.integers(0, most)))
        expected = [each for each in self.model if header_of(each).next_offset <= self.recovery_point]
        self.reopen(clean=False)
        found = split(all_bytes(self.log))
        assert found[: len(expected)] == expected
        self.model = found
        self.end_offset = self.log.end_offset
        assert self.end_offset >= min(self.recovery_point, header_of(expected[-1]).next_offset if expected else 0)
        self.recovery_point = min(self.recovery_point, self.end_offset)

    def reopen(self, *, clean: bool) -> None:
        self.log = open_log(
            PATH,
            CONFIG,
            disk=self.disk,
            clean=clean,
            start_offset=self.start_offset,
            recovery_point=self.recovery_point,
        )
        if self.log.start_offset < self.start_offset:
            # A start offset beyond the last batch on the disk is rejected, and the batches below it are back.
            assert self.log.end_offset < self.start_offset
            self.model = split(all_bytes(self.log))
        self.start_offset = self.log.start_offset

    # -- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_list(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start_offset, self.end_offset)
        assert split(all_bytes(self.log)) == self.model

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        entries = self.log.epochs.entries()
        assert entries == sorted(entries)
        for header in map(header_of, self.model):
            assert self.log.epochs.epoch_at(max(header.base_offset, self.start_offset)) == header.leader_epoch

    @rule(share=st.floats(0, 1), bound=st.floats(0, 1), max_bytes=st.integers(0, 400), at_least_one=st.booleans())
    def read(self, share: float, bound: float, max_bytes: int, at_least_one: bool) -> None:
        offset = self.start_offset + round(share * (self.end_offset - self.start_offset))
        limit = self.start_offset + round(bound * (self.end_offset - self.start_offset))
        part = self.log.read(offset, max_bytes, end_offset=limit, at_least_one=at_least_one)
        found = part.records if isinstance(part.records, bytes) else part.records.read()
        wanted = [data for data in self.model if header_of(data).next_offset > offset]
        first = wanted[0] if wanted else b""
        below = b"".join(data for data in wanted if header_of(data).next_offset <= limit)
        if offset >= limit or not below:
            assert found == b"" or not below
            assert found == b""
        else:
            size = max(max_bytes, len(first)) if at_least_one else max_bytes
            assert below.startswith(found)
            assert len(found) <= size
            assert len(found) == min(size, len(below)) or len(self.log.segments) > 1

    @rule(ago=st.integers(-30, 200))
    def search_by_time(self, ago: int) -> None:
        timestamp_ms = NOW_MS + self.clock - ago
        everything = [record for data in self.model for record in records(data) if record.offset >= self.start_offset]
        expected = next((record.offset for record in everything if record.timestamp_ms >= timestamp_ms), None)
        found = self.log.search.offset_for_timestamp(timestamp_ms, self.log.start_offset)
        assert (found.offset if found else None) == expected


def header_of(data: bytes) -> Header:
    return next(headers(data))[1]


def split(data: bytes) -> list[bytes]:
    return [data[position : position + header.size] for position, header in headers(data)]


def sorted_entries(snapshot: bytes) -> list[bytes]:
    return sorted(snapshot[start : start + 46] for start in range(10, len(snapshot), 46))


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
