"""Message sets of magic 0 and 1: the C functions equal their pure-Python fallbacks; conversions agree with Kafka's
classes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from odradek.protocol import legacy, legacy_walks
from odradek.protocol.batch import InvalidRecords, Record, build, read_header, records
from odradek.protocol.compression import Codec, break_lz4_header, mend_lz4_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import write_records
from tests.broker.message_sets import APPEND_TIME, THEN_MS, damaged, message, messages_in, wrapper

MAX_INT64 = 2**63 - 1
TIMES = st.one_of(st.integers(-3, 10), st.integers(-MAX_INT64 - 1, MAX_INT64))
CONTENT = st.none() | st.binary(max_size=40)
FLAGS = st.integers(0, 15)

MESSAGES = st.builds(
    message,
    CONTENT,
    CONTENT,
    magic=st.sampled_from((0, 1, 1, 1, 2)),
    offset=st.integers(-2, 2**40),
    at_ms=TIMES,
    attributes=st.sampled_from((0, 0, 0, APPEND_TIME, 1, 3, 7)),
)
SETS = st.lists(MESSAGES, max_size=5).map(b"".join)


@st.composite
def hurt(draw: st.DrawFn) -> bytes:
    """A set with flipped bits, truncated somewhere."""
    data = draw(SETS)
    for position in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=2)) if data else ():
        data = damaged(data, position)
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


def in_c(name: str) -> Callable[..., Any]:
    """The C function; the tests below need none where the package was installed without a compiler."""
    module = pytest.importorskip("odradek.protocol._legacy", reason="no C compiler when Odradek was installed")
    found: Callable[..., Any] = getattr(module, name)
    return found


@given(hurt(), st.sampled_from((40, 1 << 20)))
def test_both_surveys_are_equal(data: bytes, limit: int) -> None:
    assert in_c("survey")(data, limit) == legacy_walks.survey_in_python(data, limit)


@given(hurt(), st.integers(0, 1), FLAGS, TIMES, TIMES, st.one_of(TIMES, st.just(2**70)))
def test_both_up_conversions_are_equal(
    data: bytes, magic: int, flags: int, stamp: int, earliest: int, latest: int
) -> None:
    asked = data, magic, flags, stamp, earliest, latest
    assert in_c("up_convert")(*asked) == legacy_walks.up_convert_in_python(*asked)


RECORDS = st.lists(st.tuples(TIMES, CONTENT, CONTENT, st.booleans()), min_size=1, max_size=5).map(
    lambda rows: [
        Record(n, at, key, value, [("h", b"")] if more else []) for n, (at, key, value, more) in enumerate(rows)
    ]
)


@given(
    RECORDS, st.integers(0, 1), FLAGS, st.integers(0, 2**40), TIMES, st.integers(-1, 7), st.sampled_from((60, 1 << 20))
)
def test_both_down_conversions_are_equal(
    rows: list[Record], magic: int, flags: int, base: int, time: int, first: int, limit: int
) -> None:
    payload = bytes(write_records(rows, 0, 0))
    asked = payload, 0, len(payload), len(rows), magic, flags, base, time, base + first, limit
    assert in_c("down_convert")(*asked) == legacy_walks.down_convert_in_python(*asked)


@given(st.binary(max_size=60), st.integers(0, 9), st.integers(0, 1))
def test_both_down_conversions_are_equal_on_any_bytes(payload: bytes, count: int, magic: int) -> None:
    asked = payload, 0, len(payload), count, magic, 0, 5, 9, 0, 1 << 20
    assert in_c("down_convert")(*asked) == legacy_walks.down_convert_in_python(*asked)


def up_converted(data: bytes, **options: Any) -> legacy.Payload:
    wanted: dict[str, Any] = {"max_message_bytes": 1 << 20, "require_keys": False, "timestamps": None, **options}
    return legacy.up_convert_set(data, **wanted)


@given(hurt())
@example(wrapper(b"", Codec.LZ4))
@example(wrapper(b"\0" * 11, Codec.SNAPPY))
@example(message(b"\x82SNAPPY\0", None, attributes=Codec.SNAPPY))
@example(message(b"\x04\x22\x4d\x18", None, magic=0, attributes=Codec.LZ4))
def test_bad_sets_raise_only_documented_errors(data: bytes) -> None:
    with suppress(KafkaError):
        assert up_converted(data).record_count > 0


@given(RECORDS, st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)), st.integers(0, 1))
def test_down_conversion_and_up_conversion_give_the_same_batch(rows: list[Record], codec: Codec, magic: int) -> None:
    assume(all(each.timestamp_ms >= -1 for each in rows))
    batch = build(rows, codec=codec)
    data = legacy.down_convert_batches(batch, magic, 0)
    again = up_converted(data, max_message_bytes=1 << 30)
    assert again.record_count == len(rows)
    assert again.codec == codec
    plain = build([each._replace(timestamp_ms=each.timestamp_ms if magic else -1, headers=[]) for each in rows])
    assert bytes(again.records) == bytes(plain[61:])
    assert again.max_timestamp == read_header(plain).max_timestamp


@pytest.mark.parametrize("stores_size", [False, True])
def test_the_fault_of_old_lz4_headers_is_written_and_corrected(stores_size: bool) -> None:
    from lz4 import frame

    whole = frame.compress(b"some text" * 99, store_size=stores_size, block_linked=False)
    broken = break_lz4_header(whole)
    assert sum(a != b for a, b in zip(broken, whole, strict=True)) == 1
    with pytest.raises(RuntimeError, match="header"):
        frame.decompress(broken)
    assert bytes(mend_lz4_header(broken)) == whole
    assert mend_lz4_header(whole) is whole
    assert mend_lz4_header(b"") == b""


def test_a_bomb_in_a_wrapper_stops_at_the_limit() -> None:
    bomb = wrapper(bytes(50_000_000), Codec.GZIP)
    with pytest.raises(KafkaError) as refused:
        up_converted(bomb, max_decompressed=1_000_000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_response_is_as_long_as_the_batches_or_their_first_set() -> None:
    rows = [Record(n, THEN_MS, None, b"v", []) for n in range(50)]
    one = build(rows)
    data = legacy.down_convert_batches(one, 1, 0)
    assert len(data) == 50 * (12 + 22 + 1) > len(one)
    twice = bytes(one) + bytes(build([each._replace(offset=each.offset + 50) for each in rows], base_offset=50))
    longer = legacy.down_convert_batches(twice, 1, 0)
    assert len(longer) == max(len(twice), len(data))
    assert longer.startswith(data)


def test_an_invalid_batch_is_reported() -> None:
    with pytest.raises(KafkaError) as refused:
        legacy.down_convert_batches(struct.pack(">qi", 0, 3) + bytes(60), 1, 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_errors_of_single_messages_are_listed() -> None:
    data = wrapper(b"".join(message(key=None if n % 2 else b"k", offset=n) for n in range(4)), Codec.GZIP)
    with pytest.raises(InvalidRecords) as refused:
        up_converted(data, require_keys=True)
    assert [index for index, _ in refused.value.record_errors] == [1, 3]


def test_a_set_of_batches_keeps_its_offsets() -> None:
    batch = build([Record(7 + n, THEN_MS + n, b"k", b"v", []) for n in range(3)], base_offset=7, codec=Codec.GZIP)
    ((_, _, offset, time, _, inside, holds, _), *rest) = messages_in(legacy.down_convert_batches(batch, 1, 8))
    assert (offset, time, holds) == (9, THEN_MS + 2, True)
    assert [each[2] for each in inside] == [0, 1, 2]
    assert all(each[0] == "cut" for each in rest)
    assert [each.offset for each in records(batch)] == [7, 8, 9]
