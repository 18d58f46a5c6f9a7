"""Records of a Fetch response: the implementation in C beside the one in Python, and both beside what was written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import batch as batches
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Codec
from odradek.protocol.records import Record
from odradek.streams.clients import received
from odradek.streams.clients.received import ReceivedRecordsInPython, inflate

KINDS = [received.ReceivedRecords, ReceivedRecordsInPython]
parts = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), parts), max_size=2).map(tuple)


class Written(NamedTuple):
    """One batch of a log."""

    data: bytes
    records: list[Record]
    producer_id: int
    aborts: bool | None
    """Whether it is a marker that aborts; None for records."""


@st.composite
def logs(draw: st.DrawFn) -> list[Written]:
    """Batches with gaps, of two transactional producers and others, with markers."""
    offset, log = draw(st.integers(0, 1000)), []
    for _ in range(draw(st.integers(0, 6))):
        producer_id = draw(st.sampled_from([-1, 7, 8]))
        if producer_id >= 0 and draw(st.integers(0, 3)) == 0:
            commit = draw(st.booleans())
            data = batches.control_batch(
                commit=commit,
                coordinator_epoch=0,
                base_offset=offset,
                timestamp_ms=0,
                producer_id=producer_id,
                producer_epoch=0,
            )
            log.append(Written(bytes(data), [], producer_id, not commit))
            offset += 1
            continue
        deltas = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4)))
        records = [
            Record(offset + each, draw(st.integers(0, 2**40)), draw(parts), draw(parts), draw(headers))
            for each in deltas
        ]
        last = offset + deltas[-1] + draw(st.integers(0, 2))  # compaction may have removed the last records
        data = batches.build(
            records,
            base_offset=offset,
            last_offset=last,
            codec=draw(st.sampled_from(list(Codec))),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
            leader_epoch=draw(st.integers(0, 5)),
        )
        log.append(Written(bytes(data), records, producer_id, None))
        offset = last + 1
    return log


def fields(record: Any) -> tuple[Any, ...]:
    """All that a record returns."""
    return (
        record.topic(),
        record.partition(),
        record.offset(),
        record.timestamp(),
        record.key(),
        record.value(),
        record.headers(),
        record.error(),
    )


def aborted_of(log: list[Written]) -> tuple[list[tuple[int, int]], list[Record]]:
    """The aborted transactions as a broker returns them, and the committed records."""
    aborted, committed, open_ = [], [], {}
    for each in log:
        if each.aborts is None and each.producer_id >= 0:
            open_.setdefault(each.producer_id, []).append(each)
        elif each.aborts is not None:
            mine = open_.pop(each.producer_id, [])
            if each.aborts and mine:
                aborted.append((mine[0].records[0].offset, each.producer_id))
            committed += [] if each.aborts else [record for one in mine for record in one.records]
        else:
            committed += each.records
    committed += [record for mine in open_.values() for one in mine for record in one.records]
    return sorted(aborted), sorted(committed)


def steps(kind: Any, data: bytes, start: int, aborted: list[tuple[int, int]], most: int) -> Iterator[Any]:
    reader = kind(data, "t", 3, start, aborted, inflate)
    yield reader.next_offset, reader.leader_epoch
    while True:
        found = reader.take(most)
        yield [fields(each) for each in found], reader.position
        if not found:
            return


@given(logs(), st.integers(0, 30), st.integers(1, 5), st.integers(0, 60))
def test_both_implementations_return_the_committed_records(
    log: list[Written], ahead: int, most: int, missing: int
) -> None:
    aborted, committed = aborted_of(log)
    data = b"".join(each.data for each in log)
    start = (batches.read_header(data).base_offset if log else 0) + ahead
    runs = [list(steps(kind, data, start, aborted, most)) for kind in KINDS]
    assert runs[0] == runs[1]
    found = [row for rows, _ in runs[0][1:] for row in rows]
    expected = [
        ("t", 3, each.offset, (1, each.timestamp_ms), each.key, each.value, list(each.headers) or None, None)
        for each in committed
        if each.offset >= start
    ]
    assert found == expected
    assert all(one[2] < two[2] for one, two in pairwise(found))
    assert runs[0][-1][1] == max(start, batches.read_header(log[-1].data).next_offset if log else start)
    part = data[: max(0, len(data) - missing)]  # the last batch of a response may be incomplete
    assert list(steps(KINDS[0], part, start, aborted, most)) == list(steps(KINDS[1], part, start, aborted, most))


@given(logs(), st.booleans(), st.booleans())
def test_both_implementations_make_the_same_rows(log: list[Written], key_text: bool, value_text: bool) -> None:
    data = b"".join(each.data for each in log)
    start = batches.read_header(data).base_offset if log else 0
    made = []
    for kind in KINDS:
        found = kind(data, "t", 3, start, (), inflate).take(100)
        rows = list(type(found[0]).rows(found, key_text, value_text)) if found else []
        assert [row[0] for row in rows] == found
        made.append([row[1:] for row in rows])
        for record, offset, timestamp, headers_, key, value in rows:
            assert (offset, timestamp, headers_) == (record.offset(), record.timestamp()[1], record.headers())
            for text, part, raw in ((key_text, key, record.key()), (value_text, value, record.value())):
                assert part == (raw.decode("utf-8", "replace") if text and raw is not None else raw)
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", KINDS)
def test_records_outlive_their_response(kind: Any) -> None:
    records = [Record(5, 1, b"key", b"value", [("name", b"content")]), Record(6, 1, None, None)]
    found = []
    for codec in Codec:
        reader = kind(bytes(batches.build(records, base_offset=5, codec=codec)), "t", 0, 5, (), inflate)
        found += reader.take(5)
        del reader
    assert [(each.key(), each.value(), each.headers()) for each in found] == [
        (b"key", b"value", [("name", b"content")]),
        (None, None, None),
    ] * len(Codec)


@given(st.lists(st.tuples(st.integers(61, 140), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 60))
def test_malformed_records_under_a_valid_checksum_are_the_same_to_both(
    changes: list[tuple[int, int]], cut: int
) -> None:
    records = [Record(offset, 1, b"key", b"value", [("name", b"content"), ("empty", None)]) for offset in range(3)]
    data = bytearray(batches.build(records, base_offset=0))
    for at, byte in changes:
        data[min(at, len(data) - 1)] = byte
    data = data[: max(batches.HEADER_SIZE, len(data) - cut)]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    found: list[Any] = []
    for kind in KINDS:
        reader = kind(bytes(data), "t", 0, 0, (), inflate)
        try:
            taken = reader.take(10)
        except ValueError:
            found.append(None)
            continue
        rows = type(taken[0]).rows(taken, True, True) if taken else ()
        found.append([(fields(each), row[1:]) for each, row in zip(taken, rows, strict=True)])
    assert found[0] == found[1]


def test_rows_are_made_of_received_records_only() -> None:
    kind = received.ReceivedRecord
    with pytest.raises(TypeError):
        kind.rows((), False, False)
    with pytest.raises(TypeError):
        next(iter(kind.rows([object()], False, False)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_batch_is_an_error(kind: Any) -> None:
    data = bytearray(batches.build([Record(5, 1, b"k", b"v")], base_offset=5))
    data[-1] ^= 1
    with pytest.raises(ValueError, match="batch at offset 5"):
        kind(data, "t", 0, 5, (), inflate).take(1)
