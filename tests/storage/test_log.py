"""A log appends, reads, rolls, truncates and deletes old segments as Kafka's does."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.protocol.batch import InvalidRecords, Record, build, crc_ok, headers, read_header, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.disk import OsFile
from odradek.storage.log import Log
from odradek.storage.recent_batches import read_recent
from odradek.storage.segment import FileRange
from tests.storage.batches import NOW_MS, all_bytes, all_headers, batch, files, open_log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "topic-0")


def append(log: Log, data: memoryview | bytes, **options: object) -> int:
    return log.append(data, **({"leader_epoch": 0, "now_ms": NOW_MS} | options)).first_offset  # type: ignore[arg-type]


def data_of(log: Log, offset: int, max_bytes: int = 1 << 20, **options: object) -> bytes:
    part = log.read(offset, max_bytes, **options)  # type: ignore[arg-type]
    return part.records if isinstance(part.records, bytes) else part.records.read()


class TestAppend:
    def test_offsets_follow_each_other_and_are_stamped_with_the_epoch(self, log: Log) -> None:
        assert [append(log, batch(count), leader_epoch=7) for count in (3, 1, 2)] == [0, 3, 4]
        assert log.end_offset == 6
        assert [(header.base_offset, header.leader_epoch) for header in all_headers(log)] == [(0, 7), (3, 7), (4, 7)]
        assert log.epochs.entries() == [(7, 0)]

    def test_the_received_bytes_are_stamped_in_place_and_written_unchanged(self, log: Log) -> None:
        append(log, batch(2))
        data = batch(3)
        append(log, data, leader_epoch=5)
        assert read_header(data).base_offset == 2
        assert all_bytes(log).endswith(bytes(data))

    def test_read_only_bytes_are_not_changed_and_stored_the_same(self, log: Log, tmp_path: Path) -> None:
        data = bytes(batch(3))
        append(log, batch(1))
        append(log, memoryview(data), leader_epoch=2)
        other = open_log(tmp_path / "other")
        append(other, batch(1))
        append(other, memoryview(bytearray(data)), leader_epoch=2)
        assert read_header(data).base_offset == 0
        assert all_bytes(log) == all_bytes(other)

    def test_a_batch_larger_than_max_message_bytes_is_refused(self, log: Log) -> None:
        data = batch(1, size=500)
        log.config = LogConfig(max_message_bytes=len(data))
        append(log, data)
        log.config = LogConfig(max_message_bytes=len(data) - 1)
        with pytest.raises(KafkaError) as refused:
            append(log, batch(1, size=500))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert log.end_offset == 1

    def test_a_batch_larger_than_a_segment_is_refused(self, log: Log) -> None:
        log.config = LogConfig(segment_bytes=200)
        with pytest.raises(KafkaError) as refused:
            append(log, batch(1, size=500))
        assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE

    def test_a_wrong_checksum_is_refused_and_writes_nothing(self, log: Log) -> None:
        data = batch(2)
        data[-1] ^= 1
        with pytest.raises(KafkaError) as refused:
            append(log, data)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (log.end_offset, log.size) == (0, 0)

    @pytest.mark.parametrize("size", [0, 1, 16, 60, 61, 70])
    def test_a_torn_batch_is_refused(self, log: Log, size: int) -> None:
        with pytest.raises(KafkaError) as refused:
            append(log, batch(2)[:size])
        assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert log.end_offset == 0

    def test_two_batches_at_once_are_refused(self, log: Log) -> None:
        with pytest.raises(InvalidRecords) as refused:
            append(log, bytes(batch(1)) + bytes(batch(1)))
        assert refused.value.code is ErrorCode.INVALID_RECORD

    def test_zstd_is_refused_for_clients_that_do_not_support_it(self, log: Log) -> None:
        with pytest.raises(KafkaError) as refused:
            append(log, batch(1, codec=Codec.ZSTD), api_version=6)
        assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert append(log, batch(1, codec=Codec.ZSTD), api_version=7) == 0

    def test_a_coordinator_may_write_records_that_a_client_may_not(self, log: Log) -> None:
        log.config = LogConfig(cleanup_policy=("compact",))
        assert append(log, bytes(batch(2)), origin=AppendOrigin.COORDINATOR) == 0
        with pytest.raises(KafkaError):
            append(log, bytes(batch(2))[:-1], origin=AppendOrigin.COORDINATOR)

    def test_log_append_time_replaces_the_timestamps(self, log: Log) -> None:
        log.config = LogConfig(message_timestamp_type="LogAppendTime")
        appended = log.append(bytes(batch(3, timestamp_ms=5)), leader_epoch=0, now_ms=NOW_MS)
        assert (appended.log_append_time_ms, appended.max_timestamp) == (NOW_MS, NOW_MS)
        data = all_bytes(log)
        assert crc_ok(data, 0, read_header(data))
        assert [record.timestamp_ms for record in records(data)] == [NOW_MS] * 3

    def test_timestamps_out_of_bounds_are_refused(self, log: Log) -> None:
        log.config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
        append(log, batch(1, timestamp_ms=NOW_MS - 1000))
        append(log, batch(1, timestamp_ms=NOW_MS + 1000))
        for timestamp_ms in (NOW_MS - 1001, NOW_MS + 1001):
            with pytest.raises(InvalidRecords) as refused:
                append(log, batch(1, timestamp_ms=timestamp_ms))
            assert refused.value.code is ErrorCode.INVALID_TIMESTAMP

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_the_topics_own_codec_replaces_the_producers(self, log: Log, codec: Codec) -> None:
        log.config = LogConfig(compression_type="uncompressed" if codec is Codec.NONE else codec.name.lower())
        sent = bytes(batch(20, size=100, codec=Codec.LZ4, producer=(4, 0, 0)))
        append(log, sent)
        data = all_bytes(log)
        header = read_header(data)
        assert header.codec == codec
        assert crc_ok(data, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 0, 0)
        assert list(records(data)) == list(records(sent))


class TestRead:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        log = open_log(tmp_path / "topic-0", LogConfig(segment_bytes=2000, index_interval_bytes=200))
        for _ in range(40):
            append(log, batch(5, size=20))
        return log

    @pytest.mark.parametrize("reopened", [False, True])
    def test_every_offset_is_read_from_the_batch_that_holds_it(self, log: Log, reopened: bool) -> None:
        if reopened:
            log.close(now_ms=NOW_MS)
            log = open_log(log.directory, log.config)
        assert len(log.segments) > 3
        for offset in range(200):
            assert read_header(data_of(log, offset)).base_offset == offset - offset % 5
        assert data_of(log, 200) == b""

    def test_offsets_outside_the_log_are_out_of_range(self, log: Log) -> None:
        for offset in (-1, 201):
            with pytest.raises(KafkaError) as refused:
                log.read(offset, 100)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_read_ends_below_the_bound(self, log: Log) -> None:
        for bound in range(0, 201, 5):
            for offset in range(0, bound + 5, 5):
                last = [header.last_offset for _, header in headers(data_of(log, min(offset, 200), end_offset=bound))]
                assert all(each < bound for each in last)
                assert bool(last) == (offset < bound)

    def test_the_limit_cuts_the_last_batch_as_kafka_does(self, log: Log) -> None:
        size = read_header(data_of(log, 0)).size
        whole = data_of(log, 0)
        assert data_of(log, 0, size * 2 + 7) == whole[: size * 2 + 7]
        assert data_of(log, 0, 7) == whole[:size]
        assert data_of(log, 0, 7, at_least_one=False) == whole[:7]
        assert log.read(0, 7, at_least_one=False).incomplete
        assert not log.read(0, size, at_least_one=False).incomplete
        assert data_of(log, 0, 0, at_least_one=False) == b""

    @pytest.mark.parametrize("reopened", [False, True])
    def test_recent_batches_are_read_as_any_others(self, log: Log, reopened: bool) -> None:
        rng, size, found = random.Random(24), read_header(data_of(log, 0)).size, 0
        if reopened:
            log.close(now_ms=NOW_MS)
            log = open_log(log.directory, log.config)
            for _ in range(3):
                append(log, batch(5, size=20))
        for _ in range(800):
            first = log.active.base_offset
            offset, end = rng.randint(first - 3, log.end_offset + 2), rng.randint(first, log.end_offset + 2)
            most = rng.choice((-1, 0, size - 1, size, 3 * size, 1 << 20))
            recent = read_recent(log, offset, most, end_offset=end)
            if recent is not None:
                found += 1
                assert recent == data_of(log, offset, most, end_offset=end)
                assert offset >= first
            elif first <= offset < end <= log.end_offset and most == 1 << 20 and not reopened:
                assert data_of(log, offset, most, end_offset=end) == b""  # the batch ends above the bound
        assert found > 20

    def test_a_disk_that_fails_is_left_to_the_other_read(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        end = log.end_offset
        assert read_recent(log, end - 1, 1 << 20, end_offset=end)
        monkeypatch.setattr(OsFile, "read", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "unreadable")))
        assert read_recent(log, end - 1, 1 << 20, end_offset=end) is None
        monkeypatch.setattr(OsFile, "read", lambda *_: b"short")
        assert read_recent(log, end - 1, 1 << 20, end_offset=end) is None
        assert log.failure is None

    def test_a_range_can_be_sent_without_a_copy(self, log: Log, tmp_path: Path) -> None:
        part = log.read(0, 1000).records
        assert isinstance(part, FileRange)
        with open(tmp_path / "sent", "w+b") as sent:
            assert os.sendfile(sent.fileno(), part.fileno(), part.position, len(part)) == len(part)
            sent.seek(0)
            assert sent.read() == part.read()

    def test_a_range_survives_its_segment(self, log: Log) -> None:
        part = log.read(0, 1000).records
        assert isinstance(part, FileRange)
        before = part.read()
        log.advance_start_offset(190, high_watermark=200)
        assert log.delete_old_segments(high_watermark=200, now_ms=NOW_MS) > 0
        log.purge(NOW_MS + 60_000)
        assert part.read() == before

    def test_a_truncated_range_raises_an_error(self, log: Log) -> None:
        part = log.read(195, 1000).records
        assert isinstance(part, FileRange)
        log.truncate_to(195, now_ms=NOW_MS)
        with pytest.raises(KafkaError) as refused:
            part.read()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_gaps_between_batches_are_skipped(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "gaps", LogConfig(segment_bytes=400))
        for base in (0, 10, 20, 100, 120, 300):
            log.append_replicated(batch(2, size=50, base_offset=base, leader_epoch=1), now_ms=NOW_MS)
        assert len(log.segments) > 1
        expected = {0: 0, 2: 10, 9: 10, 12: 20, 22: 100, 102: 120, 121: 120, 122: 300, 299: 300, 301: 300}
        for reopened in (False, True):
            if reopened:
                log.close(now_ms=NOW_MS)
                log = open_log(log.directory, log.config)
            assert {offset: read_header(data_of(log, offset)).base_offset for offset in expected} == expected


class TestTimestamps:
    def test_the_first_record_not_older_is_found(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "times", LogConfig(segment_bytes=2000, index_interval_bytes=200))
        for number in range(40):
            append(log, batch(5, timestamp_ms=1000 + number * 10))
        expected = {0: 0, 1000: 0, 1003: 3, 1005: 5, 1010: 5, 1390: 195, 1394: 199}
        for timestamp_ms, offset in expected.items():
            found = log.search.offset_for_timestamp(timestamp_ms, log.start_offset)
            assert found is not None
            assert found.offset == offset
            assert found.timestamp_ms >= timestamp_ms
        assert log.search.offset_for_timestamp(1395, log.start_offset) is None
        assert log.search.offset_for_timestamp(1390, log.start_offset, end_offset=195) is None
        log.advance_start_offset(7, high_watermark=200)
        found = log.search.offset_for_timestamp(0, log.start_offset)
        assert found is not None
        assert found.offset == 7

    def test_the_latest_record_is_found_at_any_position(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "times", LogConfig(segment_bytes=1000))
        assert log.search.max_timestamp() is None
        for timestamp_ms in (5000, 9000, 1000, 2000, 9000, 3000, 100, 200):
            append(log, batch(3, size=100, timestamp_ms=timestamp_ms), leader_epoch=4)
        assert log.search.max_timestamp() == (5, 9002, 4)
        log.close(now_ms=NOW_MS)
        assert open_log(log.directory, log.config).search.max_timestamp() == (5, 9002, 4)


class TestRoll:
    def bases(self, log: Log) -> list[int]:
        return [segment.base_offset for segment in log.segments]

    def test_by_size(self, tmp_path: Path) -> None:
        size = len(batch(1, size=100))
        log = open_log(tmp_path / "a", LogConfig(segment_bytes=size * 3))
        for _ in range(7):
            append(log, batch(1, size=100))
        assert self.bases(log) == [0, 3, 6]

    def test_by_the_age_of_the_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "a", LogConfig(segment_ms=1000))
        for timestamp_ms in (0, 999, 1000, 1001, 1500, 2002):
            append(log, batch(1, timestamp_ms=timestamp_ms))
        assert self.bases(log) == [0, 3, 5]

    def test_by_the_clock_where_records_have_no_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "a", LogConfig(segment_ms=1000))
        for wait_ms in (0, 1000, 1001):
            append(log, batch(1, timestamp_ms=-1), now_ms=NOW_MS + wait_ms)
        assert self.bases(log) == [0, 2]

    def test_by_age_also_after_a_restart(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "a", LogConfig(segment_ms=1000))
        append(log, batch(1, timestamp_ms=5000))
        log.close(now_ms=NOW_MS)
        log = open_log(log.directory, log.config)
        append(log, batch(1, timestamp_ms=6001))
        assert self.bases(log) == [0, 1]

    def test_by_a_full_index(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "a", LogConfig(segment_index_bytes=48, index_interval_bytes=0))
        for number in range(9):
            append(log, batch(1, timestamp_ms=number))
        assert self.bases(log) == [0, 4, 8]

    def test_by_an_offset_too_far_off(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "a")
        for base in (0, 2**31 - 1, 2**31, 2**32 + 5):
            log.append_replicated(batch(1, base_offset=base, leader_epoch=0), now_ms=NOW_MS)
        assert self.bases(log) == [0, 2**31, 2**31 + 6]  # as far back as a segment reaches
        assert [header.base_offset for header in all_headers(log)] == [0, 2**31 - 1, 2**31, 2**32 + 5]

    def test_on_request_but_never_twice_at_one_offset(self, log: Log) -> None:
        log.roll(NOW_MS)
        append(log, batch(2))
        log.roll(NOW_MS)
        log.roll(NOW_MS)
        assert self.bases(log) == [0, 2]
        assert log.producers.snapshots == [2]


class TestReplication:
    def test_a_follower_ends_with_the_leaders_bytes(self, tmp_path: Path) -> None:
        config = LogConfig(segment_bytes=3000, index_interval_bytes=500)
        leader = open_log(tmp_path / "leader", config)
        for number in range(60):
            append(leader, batch(1 + number % 4, size=37), leader_epoch=number // 20)
        follower = open_log(tmp_path / "follower", config)
        while follower.end_offset < leader.end_offset:
            follower.append_replicated(data_of(leader, follower.end_offset, 1777), now_ms=NOW_MS)
        assert all_bytes(follower) == all_bytes(leader)
        assert follower.epochs.entries() == leader.epochs.entries() == [(0, 0), (1, 50), (2, 100)]
        for log in (leader, follower):
            log.close(now_ms=NOW_MS)
        assert files(leader.directory) == files(follower.directory)

    def test_one_write_may_span_segments(self, tmp_path: Path) -> None:
        data = b"".join(bytes(batch(1, size=100, base_offset=base, leader_epoch=0)) for base in range(10))
        log = open_log(tmp_path / "a", LogConfig(segment_bytes=len(data) // 10 * 3))
        log.append_replicated(data, now_ms=NOW_MS)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        assert all_bytes(log) == data

    def test_batches_that_do_not_follow_are_refused(self, log: Log) -> None:
        log.append_replicated(batch(5, base_offset=0, leader_epoch=0), now_ms=NOW_MS)
        for base in (0, 4):
            with pytest.raises(KafkaError) as refused:
                log.append_replicated(batch(5, base_offset=base, leader_epoch=0), now_ms=NOW_MS)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        backwards = bytes(batch(1, base_offset=9)) + bytes(batch(1, base_offset=9))
        with pytest.raises(KafkaError):
            log.append_replicated(backwards, now_ms=NOW_MS)
        assert log.end_offset == 5

    def test_a_damaged_batch_is_refused_and_nothing_of_the_response_written(self, log: Log) -> None:
        data = bytearray(b"".join(bytes(batch(1, base_offset=base, leader_epoch=0)) for base in range(2)))
        data[-1] ^= 1
        with pytest.raises(KafkaError) as refused:
            log.append_replicated(data, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert log.end_offset == 0

    def test_a_control_batch_that_is_no_marker_is_refused_before_anything_is_written(self, log: Log) -> None:
        marker = [Record(0, NOW_MS, b"x", b"y")]
        bad = bytes(build(marker, producer_id=1, producer_epoch=0, transactional=True, control=True))
        for call in (
            lambda: log.append_replicated(bad, now_ms=NOW_MS),
            lambda: append(log, bad, origin=AppendOrigin.COORDINATOR),
        ):
            with pytest.raises(KafkaError) as refused:
                call()
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
            assert (log.end_offset, log.size) == (0, 0)

    def test_batches_of_later_epochs_wait_for_the_next_fetch(self, log: Log) -> None:
        data = b"".join(bytes(batch(1, base_offset=base, leader_epoch=base)) for base in range(3))
        appended = log.append_replicated(data, now_ms=NOW_MS, leader_epoch=1)
        assert appended is not None
        assert (appended.last_offset, log.end_offset, log.epochs.latest) == (1, 2, 1)
        assert (
            log.append_replicated(bytes(batch(1, base_offset=2, leader_epoch=2)), now_ms=NOW_MS, leader_epoch=1) is None
        )

    def test_an_empty_log_may_begin_within_the_leaders_first_batch(self, log: Log) -> None:
        log.truncate_fully(7, now_ms=NOW_MS)
        log.append_replicated(batch(5, base_offset=5, leader_epoch=0), now_ms=NOW_MS)
        assert (log.start_offset, log.end_offset) == (7, 10)
        assert [header.base_offset for header in all_headers(log)] == [5]


class TestTruncate:
    @pytest.mark.parametrize("reopened", [False, True])
    @pytest.mark.parametrize("offset", [0, 1, 4, 5, 37, 40, 100, 199])
    def test_everything_from_there_on_is_gone(self, tmp_path: Path, offset: int, reopened: bool) -> None:
        log = open_log(tmp_path / "a", LogConfig(segment_bytes=2000, index_interval_bytes=200))
        for number in range(40):
            append(
                log,
                batch(5, size=20, timestamp_ms=NOW_MS + number * 10, producer=(1, 0, number * 5)),
                leader_epoch=number // 10,
            )
        kept = all_headers(log)[: offset // 5]
        assert log.truncate_to(offset, now_ms=NOW_MS)
        assert log.end_offset == offset
        if reopened:
            log.close(now_ms=NOW_MS)
            log = open_log(log.directory, log.config, clean=False)
            assert log.end_offset == offset // 5 * 5
        assert all_headers(log) == kept
        assert all(start < max(offset, 1) for _, start in log.epochs.entries())
        producer = log.producers.get(1)
        assert (producer.last_sequence if producer else -1) == offset // 5 * 5 - 1
        latest = log.search.max_timestamp()
        assert (latest.timestamp_ms if latest else -1) == (kept[-1].max_timestamp if kept else -1)
        assert append(log, batch(2)) == log.end_offset - 2

    def test_nothing_to_truncate(self, log: Log) -> None:
        append(log, batch(3))
        log.begin_epoch(4)
        assert not log.truncate_to(3, now_ms=NOW_MS)
        assert log.epochs.entries() == [(0, 0)]
        assert log.end_offset == 3

    def test_below_the_start_everything_goes(self, log: Log) -> None:
        log.truncate_fully(100, now_ms=NOW_MS)
        append(log, batch(3))
        log.truncate_to(50, now_ms=NOW_MS)
        assert (log.start_offset, log.end_offset, log.size) == (50, 50, 0)
        assert append(log, batch(1)) == 50


class TestFlush:
    def test_by_the_number_of_messages(self, log: Log) -> None:
        log.config = LogConfig(flush_messages=5)
        append(log, batch(4))
        assert not log.flush_due(NOW_MS)
        append(log, batch(1))
        assert log.flush_due(NOW_MS)
        log.flush(now_ms=NOW_MS)
        assert not log.flush_due(NOW_MS)
        assert log.recovery_point == 5

    def test_by_time(self, log: Log) -> None:
        log.config = LogConfig(flush_ms=1000)
        assert not log.flush_due(NOW_MS + 5000)
        append(log, batch(4))
        assert not log.flush_due(NOW_MS + 999)
        assert log.flush_due(NOW_MS + 1000)

    def test_one_flush_covers_earlier_appends_and_no_later_ones(self, log: Log) -> None:
        append(log, batch(4))
        append(log, batch(2))
        flush = log.start_flush()
        append(log, batch(1))
        flush.run()
        log.finish_flush(flush, None, now_ms=NOW_MS)
        assert log.recovery_point == 6

    def test_a_flush_that_a_truncation_overtook_does_not_count(self, log: Log) -> None:
        append(log, batch(4))
        flush = log.start_flush()
        log.truncate_to(0, now_ms=NOW_MS)
        append(log, batch(9))
        flush.run()
        log.finish_flush(flush, None, now_ms=NOW_MS)
        assert log.recovery_point == 0

    def test_after_a_roll_the_full_segments_alone(self, log: Log) -> None:
        append(log, batch(4))
        log.roll(NOW_MS)
        append(log, batch(4))
        flush = log.start_flush(rolled_only=True)
        flush.run()
        log.finish_flush(flush, None, now_ms=NOW_MS)
        assert log.recovery_point == 4


class TestProducers:
    def test_a_retry_is_answered_with_the_offsets_of_its_first_attempt(self, log: Log) -> None:
        for sequence in range(0, 14, 2):
            append(log, batch(2, producer=(9, 0, sequence)))
        size = log.size
        retried = log.append(batch(2, producer=(9, 0, 4)), leader_epoch=0, now_ms=NOW_MS)
        assert retried == (4, 5, NOW_MS + 1, NOW_MS + 1, 0, True)
        assert log.size == size
        with pytest.raises(KafkaError) as refused:
            append(log, batch(2, producer=(9, 0, 2)))
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_gap_in_the_sequence_is_refused_and_an_old_epoch_too(self, log: Log) -> None:
        append(log, batch(2, producer=(9, 1, 0)))
        for producer, code in (
            ((9, 1, 3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            ((9, 2, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            ((9, 0, 2), ErrorCode.INVALID_PRODUCER_EPOCH),
        ):
            with pytest.raises(KafkaError) as refused:
                append(log, batch(1, producer=producer))
            assert refused.value.code is code
        assert append(log, batch(1, producer=(9, 2, 0))) == 2
        assert append(log, batch(1, producer=(10, 0, 77))) == 3

    def test_the_producer_state_survives_a_restart_either_way(self, tmp_path: Path) -> None:
        for clean in (True, False):
            log = open_log(tmp_path / str(clean))
            append(log, batch(2, producer=(9, 0, 0)))
            append(log, batch(2, producer=(9, 0, 2)))
            if clean:
                log.close(now_ms=NOW_MS)
            log = open_log(log.directory, clean=clean)
            assert log.append(batch(2, producer=(9, 0, 2)), leader_epoch=0, now_ms=NOW_MS).duplicate
            assert append(log, batch(1, producer=(9, 0, 4))) == 4


class TestRetention:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        log = open_log(tmp_path / "a", LogConfig(segment_bytes=3 * len(batch(1, size=100)), retention_ms=-1))
        for number in range(10):
            append(log, batch(1, size=100, timestamp_ms=NOW_MS + number))
        return log

    def left(self, log: Log) -> list[int]:
        return [segment.base_offset for segment in log.segments]

    def test_by_time(self, log: Log) -> None:
        log.config = replace(log.config, retention_ms=1000)
        assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS + 1005) == 1
        assert (self.left(log), log.start_offset) == ([3, 6, 9], 3)

    def test_by_size(self, log: Log) -> None:
        log.config = replace(log.config, retention_bytes=log.size - 2 * log.config.segment_bytes)
        assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS) == 2
        assert self.left(log) == [6, 9]

    def test_never_at_the_high_watermark_or_beyond(self, log: Log) -> None:
        log.config = replace(log.config, retention_bytes=0)
        assert log.delete_old_segments(high_watermark=7, now_ms=NOW_MS) == 2
        assert self.left(log) == [6, 9]

    def test_the_active_segment_goes_when_another_one_replaces_it(self, log: Log) -> None:
        log.config = replace(log.config, retention_ms=0)
        assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS + 5000) == 4
        assert (self.left(log), log.start_offset, log.end_offset) == ([10], 10, 10)
        assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS + 5000) == 0

    def test_below_the_start_offset_also_on_a_compacted_topic(self, log: Log) -> None:
        log.config = replace(log.config, cleanup_policy=("compact",), retention_bytes=0)
        assert log.advance_start_offset(7, high_watermark=10)
        assert not log.advance_start_offset(7, high_watermark=10)
        assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS) == 2
        assert (self.left(log), log.start_offset) == ([6, 9], 7)
        with pytest.raises(KafkaError) as refused:
            log.advance_start_offset(11, high_watermark=10)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_files_are_renamed_at_once_and_removed_later(self, log: Log) -> None:
        log.config = replace(log.config, retention_ms=0, file_delete_delay_ms=500)
        log.delete_old_segments(high_watermark=10, now_ms=NOW_MS + 5000)
        names = files(log.directory)
        assert f"{0:020d}.log.deleted" in names
        assert f"{3:020d}.snapshot.deleted" in names
        assert f"{0:020d}.log" not in names
        log.purge(NOW_MS + 5499)
        assert files(log.directory) == names
        log.purge(NOW_MS + 5500)
        assert not [name for name in files(log.directory) if name.endswith(".deleted")]
