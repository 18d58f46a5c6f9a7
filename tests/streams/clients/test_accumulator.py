"""Batches of produced records: the implementation in C beside the one in Python, and both beside the codec of logs."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import batch as batches
from odradek.protocol.records import Record
from odradek.streams.clients import accumulator
from odradek.streams.clients.accumulator import AccumulatorInPython
from odradek.streams.murmur2 import partition_of

COUNTS = {"a": 3, "b": 1}
parts = st.none() | st.binary(max_size=300) | st.text(max_size=9)
names = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2)
records = st.tuples(
    st.sampled_from(sorted(COUNTS)),
    parts,
    parts,
    st.integers(-1, 3),
    st.integers(1, 2**41),
    st.none() | names | names.map(dict),
)


class RefusedError(Exception):
    """A record that is not accepted."""


def refuse(code: int, reason: str, number: int) -> NoReturn:
    raise RefusedError(code, reason, number)


class Origin(NamedTuple):
    """A callback, by the number of its record."""

    number: int

    def __call__(self, source: str) -> tuple[int, str]:
        return self.number, source


def make(kind: Any, batch_bytes: int = 1000, record_bytes: int = 400, most: int = 1 << 30, records: int = 1000) -> Any:
    return kind(batch_bytes, record_bytes, most, records, 1, COUNTS.__getitem__, refuse)


def outcome(made: Any, row: tuple[Any, ...], origin: int) -> Any:
    topic, key, value, partition, timestamp, headers = row
    try:
        source = None if origin % 2 else "source"  # where there is one, the callback is a method of it
        return made.produce(topic, value, key, partition, Origin(origin), source, timestamp, headers)
    except RefusedError as error:
        return error.args


@given(st.lists(records, max_size=12))
def test_both_implementations_write_what_the_codec_of_logs_reads(rows: list[tuple[Any, ...]]) -> None:
    native, reference = make(accumulator.Accumulator), make(AccumulatorInPython)
    outcomes = [outcome(native, row, index) for index, row in enumerate(rows)]
    assert outcomes == [outcome(reference, row, index) for index, row in enumerate(rows)]
    assert (native.bytes, native.records, native.full) == (reference.bytes, reference.records, reference.full)
    written = [made.due(float("inf")) for made in (native, reference)]
    for batch in (*written[0], *written[1]):
        batch.seal(7, 1, 2, 0x10)
    order = {id(batch): (batch.topic, batch.partition) for each in written for batch in each}
    key = lambda batch: order[id(batch)]  # noqa: E731 - open batches come in any order, those of a partition in theirs
    one, two = (
        [
            (each.topic, each.partition, each.count, each.origins(), bytes(each.view()))
            for each in sorted(found, key=key)
        ]
        for found in written
    )
    assert one == two
    found = {
        number_of(origin): (topic, partition, record)
        for topic, partition, _, origins, data in one
        for origin, record in zip(origins, batches.records(data), strict=True)
    }
    for index, row in enumerate(rows):
        if outcomes[index] is None:
            check(row, *found.pop(index))
    assert not found


def number_of(origin: Any) -> int:
    if isinstance(origin, Origin):
        assert origin.number % 2
        return origin.number
    number, source = origin()
    assert (number % 2, source) == (0, "source")
    return int(number)


@given(st.text() | st.text(st.characters(categories=["Cs", "L"]), max_size=3) | st.integers() | st.binary())
def test_a_checked_text_is_written_as_str_encode_writes_it(text: Any) -> None:
    try:
        expected: Any = str.encode(text)
    except (TypeError, UnicodeEncodeError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            accumulator.checked_text(text)
        return
    assert accumulator.checked_text(text) in (text, expected)
    made = make(accumulator.Accumulator)
    made.produce("b", accumulator.checked_text(text), None, 0, None, None, 1, None)
    assert next(iter(batches.records(sealed(made)))).value == expected


def sealed(made: Any) -> bytes:
    (batch,) = made.due(float("inf"))
    batch.seal(7, 1, 2, 0)
    return bytes(batch.view())


def check(row: tuple[Any, ...], topic: str, partition: int, record: Record) -> None:
    key, value = (part.encode() if isinstance(part, str) else part for part in row[1:3])
    assert (topic, record.key, record.value, record.timestamp_ms) == (row[0], key, value, row[4])
    assert list(record.headers) == list(row[5].items() if isinstance(row[5], dict) else row[5] or ())
    if row[3] >= 0:
        assert partition == row[3]
    elif key is not None:
        assert partition == partition_of(key, COUNTS[topic])


@pytest.mark.parametrize("kind", [accumulator.Accumulator, AccumulatorInPython])
def test_the_bounds_count_the_batches_that_exist(kind: Any) -> None:
    made = make(kind, records=2)
    row = ("b", "k", "v", 0, 1, None)
    assert [outcome(made, row, 0) for _ in range(2)] == [None, None]
    with pytest.raises(BufferError):
        outcome(made, row, 0)
    taken = made.due(float("inf"))
    with pytest.raises(BufferError):
        outcome(made, row, 0)
    del taken
    assert (made.records, made.bytes) == (0, 0)
    outcome(made, row, 0)
    assert made.due(0.0) == []
    made.set_partitions("b", 5)
    assert outcome(made, ("b", None, None, 4, 1, None), 0) is None
