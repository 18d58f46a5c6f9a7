"""The offset map of compaction in C and in Python gives equal results; it keeps the records that a dict would keep."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import offset_map
from odradek.protocol.batch import Record
from odradek.protocol.chain import Fault
from odradek.protocol.offset_map import (
    APPEND_TIME,
    FORCE_HORIZON,
    HAS_HORIZON,
    SET_HORIZON,
    OffsetMapInPython,
    Retained,
)
from odradek.protocol.records import Chain, read_records, write_records
from tests.protocol.batch_mutations import mutated

try:
    from odradek.protocol import _offset_map
except ImportError:
    MapInC = None
else:
    MapInC = _offset_map.OffsetMap

needs_c = pytest.mark.skipif(MapInC is None, reason="built without a C compiler: there is only the twin in Python")

HASH_KEY = bytes(range(16))
INT64 = st.integers(-(2**63), 2**63 - 1)
BASE = st.integers(0, 2**50)
KEY = st.none() | st.sampled_from([b"", b"a", b"b", b"a key of seventeen", bytes(300)]) | st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.integers(1, 3),  # the difference to the previous offset
        timestamp_ms=st.one_of(st.integers(-1, 300), INT64),
        key=KEY,
        value=st.none() | st.binary(max_size=150),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def placed(records: list[Record], base_offset: int) -> list[Record]:
    """The records at ascending offsets from `base_offset` on."""
    offset = base_offset - 1
    found = []
    for record in records:
        offset += record.offset
        found.append(record._replace(offset=offset))
    return found


class Implementations:
    """Both maps with the same calls; they must return the same results."""

    def __init__(self) -> None:
        self.python = OffsetMapInPython(20, 10, HASH_KEY)
        self.c = MapInC(20, 10, HASH_KEY) if MapInC is not None else None

    def note(self, *arguments: Any) -> tuple[int, int, int]:
        found = self.python.note(*arguments)
        if self.c is not None:
            assert self.c.note(*arguments) == found
            assert len(self.c) == len(self.python)
        return found

    def retain(self, *arguments: Any) -> Retained:
        found = self.python.retain(*arguments)
        if self.c is not None:
            assert self.c.retain(*arguments) == found
        return found


@given(
    st.lists(st.binary(max_size=60), max_size=3),
    st.binary(max_size=80),
    st.integers(-2, 9),
    BASE,
    INT64,
    st.integers(0, 15),
)
def test_both_implementations_agree_on_any_bytes(
    noted: list[bytes], data: bytes, count: int, base: int, time: int, flags: int
) -> None:
    implementations = Implementations()
    for each in noted:
        implementations.note(each, 0, len(each), count, base, base)
    implementations.retain(data, 0, len(data), count, base, time, 17, flags, base, base + 2, 99)


@given(RECORDS, RECORDS, BASE, BASE, INT64, INT64, st.integers(0, 15), st.integers(-2, 20), st.randoms())
def test_both_implementations_agree_on_valid_and_mutated_records(
    before: list[Record],
    batch: list[Record],
    first: int,
    second: int,
    time: int,
    horizon: int,
    flags: int,
    latest: int,
    randomness: random.Random,
) -> None:
    implementations = Implementations()
    dirty = write_records(placed(before, first), first, time)
    implementations.note(dirty, 0, len(dirty), len(before), first, first + 1)
    payload = write_records(placed(batch, second), second, time)
    for data in (payload, mutated(bytes(payload), randomness)):
        implementations.retain(
            b"x" + data, 1, 1 + len(data), len(batch), second, time, 5, flags, second + latest, second, horizon
        )


@given(RECORDS, BASE, INT64, st.integers(0, 3), st.integers(-1, 25), st.integers(0, 25), st.integers(0, 2**40))
def test_the_map_keeps_the_records_that_a_dict_would_keep(
    batch: list[Record], base: int, time: int, flags: int, latest: int, tombstones: int, horizon: int
) -> None:
    """Flags here: whether there is a horizon already, and whether one may be set."""
    records = placed(batch, base)
    implementations = Implementations()
    payload = write_records(records, base, time)
    assert implementations.note(payload, 0, len(payload), len(batch), base, base) == (
        Fault.SOUND,
        len(batch),
        len(payload),
    )
    chosen = (HAS_HORIZON if flags & 1 else 0) | (SET_HORIZON if flags & 2 else 0)
    fault, _, _, kept, max_timestamp, max_offset, base_time, has_horizon, data = implementations.retain(
        payload, 0, len(payload), len(batch), base, time, 0, chosen, base + latest, base + tombstones, horizon
    )
    assert fault == Fault.SOUND
    offsets = {record.key: record.offset for record in records}
    stays = [
        record
        for record in records
        if record.offset > base + latest
        or (
            record.key is not None
            and offsets[record.key] == record.offset
            and (record.value is not None or record.offset >= base + tombstones)
        )
    ]
    assert kept == len(stays)
    sets = bool(flags & 2 and not flags & 1 and any(record.value is None for record in stays))
    assert (data is None) == (not stays or (len(stays) == len(records) and not sets))
    assert has_horizon == bool(flags & 1 or sets)
    if stays:
        assert max_timestamp == max(record.timestamp_ms for record in stays)
        assert max_offset == next(each.offset for each in stays if each.timestamp_ms == max_timestamp)
    if data is not None:
        found = read_records(Chain(data, 0, len(data), kept, base, base_time, None))
        assert [each._replace(headers=list(each.headers)) for each in found] == stays
        if sets:
            assert base_time == horizon
        elif not flags & 1:
            assert base_time == stays[0].timestamp_ms


def test_a_marker_is_given_a_horizon_and_append_time_applies_to_every_record() -> None:
    payload = write_records([Record(7, 100, b"k", b"v")], 7, 100)
    implementations = Implementations()
    found = implementations.retain(payload, 0, len(payload), 1, 7, 100, 500, APPEND_TIME | FORCE_HORIZON, -1, 0, 900)
    assert found[3:8] == (1, 500, 7, 900, 1)
    data = found[8]
    assert data is not None
    assert [each.timestamp_ms for each in read_records(Chain(data, 0, len(data), 1, 7, 900, None))] == [500]


@needs_c
@pytest.mark.parametrize("slots", [2, 1000, 100_001, 1 << 20])
def test_many_keys_find_their_slots(slots: int) -> None:
    """Also where one batch has more records than the table may hold."""
    assert MapInC is not None
    table = MapInC(slots, slots - 1, HASH_KEY)
    records = [Record(number, 0, b"%d" % number, b"") for number in range(100_000)]
    payload = write_records(records, 0, 0)
    table.note(payload, 0, len(payload), len(records), 0, 0)
    table.note(payload, 0, len(payload), len(records), 1_000_000, 0)
    assert len(table) == len(records)
    assert table.capacity == slots - 1
    assert table.retain(payload, 0, len(payload), len(records), 999_999, 0, 0, 0, 2**40, 0, 0)[3] == 0
    assert table.retain(payload, 0, len(payload), len(records), 1_000_000, 0, 0, 0, 2**40, 0, 0)[3] == len(records)


@needs_c
def test_wrong_arguments_are_refused_in_c() -> None:
    assert MapInC is not None
    for wrong in ((1, 0, HASH_KEY), (2, 2, HASH_KEY), (2, 0, HASH_KEY), (2, 1, b"short")):
        with pytest.raises(ValueError, match="fewer keys than slots, and a hash key of 16"):
            MapInC(*wrong)
        with pytest.raises(ValueError, match="fewer keys than slots, and a hash key of 16"):
            OffsetMapInPython(*wrong)
    table = MapInC(2, 1, HASH_KEY)
    for arguments in ((), (b"", 0, None, 1, 0, 0), ("text", 0, 0, 1, 0, 0)):
        with pytest.raises(TypeError):
            table.note(*arguments)
    with pytest.raises(ValueError, match="within the buffer"):
        table.note(b"", 0, 1, 1, 0, 0)


@needs_c
def test_the_c_map_is_used_where_it_was_built() -> None:
    assert offset_map.OffsetMap is MapInC


def test_c_and_python_have_the_same_numbers() -> None:
    source = (Path(offset_map.__file__).parent / "_offset_map.c").read_text()
    flags = f"APPEND_TIME = {APPEND_TIME}, HAS_HORIZON = {HAS_HORIZON}, SET_HORIZON = {SET_HORIZON}"
    assert f"enum retain_flag {{ {flags}, FORCE_HORIZON = {FORCE_HORIZON} }};" in source
