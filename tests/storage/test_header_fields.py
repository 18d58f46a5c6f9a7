"""A batch that a leader accepts is accepted by all code that stores or reads it afterwards.

Every field of the header is drawn, at its extremes and at random. The leader's treatment of each of them is compared
with Kafka's in `tests/broker/test_header_fields_oracle.py`; here the followers, recovery, compaction, the conversion to
old formats, fetches, the library of readers, `verify` and the reimplementation of kafka-dump-log have to accept it.
"""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from odradek.dump_log import DumpLogOptions, dump
from odradek.protocol import batch
from odradek.protocol.batch import Codec, is_framed, is_sound, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.legacy import down_convert_batches
from odradek.storage.compaction import clean
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from odradek.storage.reading import Partition
from odradek.storage.recovery import LoadRequest, recover
from odradek.storage.verify import verify
from tests.storage.batches import NOW_MS, all_bytes, open_log
from tests.storage.compaction_pass import a_pass
from tests.storage.header_fields import Case, drawn, of_producer, single_fields

KEEPS: Final[dict[str, Any]] = {"segment_bytes": 6000, "index_interval_bytes": 200, "segment_ms": 2**63 - 1}
CONFIGS: Final = {
    "plain": LogConfig(**KEEPS),
    "compacted": LogConfig(**KEEPS, cleanup_policy=("compact",), delete_retention_ms=0),
    "stamped": LogConfig(**KEEPS, message_timestamp_type="LogAppendTime"),
    "zstd": LogConfig(**KEEPS, compression_type="zstd"),
    "uncompressed": LogConfig(**KEEPS, compression_type="uncompressed"),
}


class Admitted(NamedTuple):
    """A batch that the leader accepted, and its stored form."""

    text: str
    stored: bytes


def cases(config: str) -> list[Case]:
    chance = random.Random(f"readers of {config}")
    chosen = [*single_fields(), *drawn(chance, 1500)]
    return [case._replace(data=of_producer(case.data, 1000 + number)) for number, case in enumerate(chosen)]


def write(log: Log, config: str) -> list[Admitted]:
    """Append every case as a leader; the refused ones are left out. A transaction is never verified."""
    admitted = []
    for case in cases(config):
        verification = WAIVED if read_header(case.data).producer_id < 0 else None
        try:
            made = log.append(
                memoryview(bytearray(case.data)), leader_epoch=3, now_ms=NOW_MS, verification=verification
            )
        except KafkaError as refused:
            if refused.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            continue
        if not made.duplicate:
            admitted.append(Admitted(case.text, one_batch(log, made.first_offset)))
    return admitted


def one_batch(log: Log, offset: int) -> bytes:
    part = log.read(offset, 1)
    assert not isinstance(part.records, bytes)
    return part.records.read()


def copy_of(log: Log, path: Path, stored: list[Admitted]) -> Log:
    """A follower that fetches one batch at a time."""
    follower = open_log(path, log.config)
    for text, data in stored:
        try:
            assert follower.append_replicated(data, now_ms=NOW_MS, leader_epoch=3), text
        except KafkaError as error:
            pytest.fail(f"the leader admitted what a follower refuses: {text}: {error.message}")
    return follower


def state(log: Log) -> list[tuple[object, ...]]:
    """The state of a log's producers."""
    return [
        (each.producer_id, each.epoch, each.last_sequence, each.transaction_start, each.last_timestamp)
        for each in sorted(log.producers.active(), key=lambda each: each.producer_id)
    ]


def read_as_library(path: str, end_offset: int) -> None:
    """Every reader of the files; each raises where it finds damage."""
    for file in sorted(Path(path).glob("*.log")):
        verify(str(file))
        complaints = io.StringIO()
        dump([str(file)], DumpLogOptions(deep=True), io.StringIO(), complaints)
    *_, last = Partition(path).batches()
    assert last.header.next_offset == end_offset
    for each in Partition(path).batches():
        list(each.records())


@pytest.mark.parametrize("config", CONFIGS)
def test_batches_that_a_leader_accepts_are_accepted_by_all_readers(tmp_path: Path, config: str) -> None:
    log = open_log(tmp_path / "leader", CONFIGS[config])
    admitted = write(log, config)
    assert len(admitted) > 500
    assert {read_header(each.stored).producer_id < -1 for each in admitted} == {True, False}
    for text, stored in admitted:
        header = read_header(stored)
        assert is_framed(header), text
        assert is_sound(stored, 0, header), text
        assert len(list(batch.records(stored))) == header.record_count, text
        for magic in (0, 1):
            if header.codec != Codec.ZSTD:
                assert down_convert_batches(stored, magic, header.base_offset), text
    follower = copy_of(log, tmp_path / "follower", admitted)
    assert all_bytes(follower) == all_bytes(log) == b"".join(each.stored for each in admitted)
    assert state(follower) == state(log)
    whole = open_log(tmp_path / "whole", CONFIGS[config])  # a fetch returns many batches at once
    whole.append_replicated(all_bytes(log), now_ms=NOW_MS, leader_epoch=3)
    assert all_bytes(whole) == all_bytes(log)
    for timestamp_ms in (-(2**63), -1, 0, NOW_MS, 2**63 - 1):
        log.search.offset_for_timestamp(timestamp_ms, log.start_offset)
    log.search.max_timestamp()
    before, end_offset, known = all_bytes(log), log.end_offset, state(log)
    log.close_files()  # and nothing more: the broker was killed
    folder = Folder(OsDisk(), str(tmp_path / "leader"))
    recovered = recover(folder, LoadRequest(config=CONFIGS[config], clean=False, now_ms=NOW_MS))
    assert (recovered.truncated_bytes, recovered.damaged_at) == (0, None)
    log = open_log(tmp_path / "leader", CONFIGS[config])
    assert (all_bytes(log), log.end_offset, state(log)) == (before, end_offset, known)
    read_as_library(str(tmp_path / "leader"), end_offset)


def test_batches_that_a_leader_accepts_can_be_compacted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "leader", CONFIGS["compacted"])
    write(log, "compacted")
    log.roll(NOW_MS)
    end_offset = log.end_offset
    request = a_pass(log, NOW_MS)
    assert request is not None
    assert log.swap_in(clean(OsDisk(), request), now_ms=NOW_MS)
    assert log.cleaned_to == end_offset
    kept = all_bytes(log)
    keys = [record.key for position, _ in batch.headers(kept) for record in batch.records(kept, position)]
    assert sorted(keys, key=str) == sorted({b"k", b"key", b"\0\0\0\1"}, key=str)  # the last: a former marker
    follower = open_log(tmp_path / "follower", CONFIGS["compacted"])
    follower.append_replicated(kept, now_ms=NOW_MS, leader_epoch=3)
    assert all_bytes(follower) == kept
    log.close(now_ms=NOW_MS)
    log = open_log(tmp_path / "leader", CONFIGS["compacted"], clean=False, cleaned_to=end_offset)
    assert (all_bytes(log), log.end_offset) == (kept, end_offset)
    for file in sorted((tmp_path / "leader").glob("*.log")):
        verify(str(file))
