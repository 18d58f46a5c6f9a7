"""The C function that walks along the records and its pure-Python fallback give equal results for any bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.protocol import chain
from odradek.protocol.batch import Record
from odradek.protocol.chain import Fault, Scan, Violation, scan_in_python
from odradek.protocol.records import write_records, write_records_in_python
from tests.protocol.batch_mutations import mutated

try:
    from odradek.protocol import _chain
except ImportError:
    scan_in_c = None
else:
    scan_in_c = _chain.scan

needs_c = pytest.mark.skipif(scan_in_c is None, reason="built without a C compiler: there is only the twin in Python")

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.binary(max_size=150)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.one_of(st.integers(-1, 300), INT64),
        key=st.none() | TEXT,
        value=st.none() | TEXT,
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | TEXT), max_size=3),
    ),
    min_size=1,
    max_size=8,
).map(lambda records: [record._replace(offset=index) for index, record in enumerate(records)])
BOUND = st.one_of(st.integers(-2, 400), INT64, st.sampled_from([-(2**70), 2**70]))


@pytest.fixture(params=[pytest.param(scan_in_c, id="C", marks=needs_c), pytest.param(scan_in_python, id="Python")])
def scan(request: pytest.FixtureRequest) -> Callable[..., Scan]:
    found: Callable[..., Scan] = request.param
    return found


def _same_answer(*arguments: object) -> Scan:
    assert scan_in_c is not None
    in_python = scan_in_python(*arguments)  # type: ignore[arg-type]
    in_c = scan_in_c(*arguments)  # type: ignore[arg-type]
    assert in_c == in_python
    return in_c


@needs_c
@given(st.binary(max_size=80), st.integers(-2, 9), INT64, st.integers(0, 7), BOUND, BOUND)
@example(b"\x0c\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, 0, 0, 0, 0)
@example(b"\xff\xff\xff\xff\xff\x0f", 1, 0, 0, 0, 0)
def test_both_implementations_agree_on_any_bytes(
    data: bytes, count: int, base_timestamp: int, flags: int, earliest: int, latest: int
) -> None:
    _same_answer(data, 0, len(data), count, base_timestamp, flags, earliest, latest)


@needs_c
@given(RECORDS, INT64, st.integers(0, 7), BOUND, BOUND, st.integers(0, 3), st.integers(0, 3), st.randoms())
def test_both_implementations_agree_on_valid_and_mutated_chains(
    records: list[Record],
    base_timestamp: int,
    flags: int,
    earliest: int,
    latest: int,
    before: int,
    after: int,
    chance: random.Random,
) -> None:
    payload = bytes(write_records(records, 0, base_timestamp))
    rules = (base_timestamp, flags, earliest, latest)
    around = bytearray(before) + payload + bytes(after)
    answer = _same_answer(memoryview(around), before, before + len(payload), len(records), *rules)
    assert answer[0] == Fault.SOUND
    for _ in range(10):
        damaged = mutated(payload, chance)
        _same_answer(damaged, 0, len(damaged), len(records) + chance.randint(-1, 1), *rules)


@needs_c
@given(RECORDS, st.integers(-(2**31), 0), INT64)
def test_both_implementations_write_the_same_records(
    records: list[Record], base_offset: int, base_timestamp: int
) -> None:
    written = _chain.write_records(records, base_offset, base_timestamp)
    assert written == write_records_in_python(records, base_offset, base_timestamp)
    assert type(written) is bytearray
    assert write_records is _chain.write_records


@needs_c
def test_both_implementations_write_long_records_and_records_of_a_generator() -> None:
    long = bytes(range(256)) * 300
    for size in (0, 1, 57, 58, 63, 64, 8_185, 8_192, len(long)):
        found = Record(2**31 - 1, 7, long[:size], long, [("h" * size, long[:size])])
        assert _chain.write_records(iter([found, found]), 0, 0) == write_records_in_python([found, found], 0, 0)


@needs_c
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((None, 0, 0), TypeError),
        (([], "0", 0), TypeError),
        (([], 2**63, 0), OverflowError),
        (([(0, 0, None, None)], 0, 0), TypeError),
        (([[0, 0, None, None, ()]], 0, 0), TypeError),
        (([Record(0, 2**63, None, None)], 0, 0), OverflowError),
        (([Record(0, 0, "text", None)], 0, 0), TypeError),  # type: ignore[arg-type]
        (([Record(0, 0, None, None, [("\ud800", None)])], 0, 0), UnicodeEncodeError),
        (([Record(0, 0, None, None, [("h",)])], 0, 0), IndexError),  # type: ignore[list-item]
        (([Record(0, 0, None, None, [(b"h", None)])], 0, 0), TypeError),  # type: ignore[list-item]
        (([Record(0, 0, None, None, None)], 0, 0), TypeError),  # type: ignore[arg-type]
        ((iter([Record(0, 0, b"k", b"v"), 5]), 0, 0), TypeError),
    ],
)
def test_arguments_that_are_no_records_are_errors_in_c(arguments: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        _chain.write_records(*arguments)  # type: ignore[arg-type]


def _record(*body: int) -> bytes:
    return bytes([len(body) * 2, *body])


# attributes, timestamp delta, offset delta, null key, null value, no headers
PLAIN = (0, 0, 0, 1, 1, 0)


@pytest.mark.parametrize(
    ("payload", "fault", "index", "position"),
    [
        (_record(*PLAIN), Fault.SOUND, 1, 7),
        (b"", Fault.TRUNCATED, 0, 0),
        (_record(*PLAIN)[:-1], Fault.TRUNCATED, 0, 0),
        (b"\x80\x80\x80\x80\x80\x00", Fault.VARINT, 0, 0),
        (b"\x00", Fault.RECORD_SIZE, 0, 0),
        (b"\x01", Fault.RECORD_SIZE, 0, 0),
        (_record(0, 0, 0, 1, 1), Fault.RECORD_SIZE, 0, 0),
        (_record(*PLAIN, 0), Fault.RECORD_SIZE, 0, 0),
        (_record(0, 0, 0, 4, 1, 0), Fault.RECORD_SIZE, 0, 0),
        (_record(0, 0, 0, 1, 4, 0), Fault.RECORD_SIZE, 0, 0),
        (_record(0, 0, 2, 1, 1, 0), Fault.OFFSET, 0, 0),
        (_record(0, 0, 0, 1, 1, 1), Fault.HEADERS, 0, 0),
        (_record(0, 0, 0, 1, 1, 2), Fault.HEADERS, 0, 0),
        (_record(0, 0, 0, 1, 1, 2, 1, 1), Fault.HEADER_KEY, 0, 0),
        (_record(*PLAIN) + b"x", Fault.TRAILING, 1, 7),
        (_record(0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 1, 0), Fault.RECORD_SIZE, 0, 0),
    ],
)
def test_each_fault_is_named(
    scan: Callable[..., Scan], payload: bytes, fault: Fault, index: int, position: int
) -> None:
    assert scan(payload, 0, len(payload), 1, 5, 0, 0, 0)[:3] == (fault, index, position)


def test_the_second_record_is_found_where_it_starts(scan: Callable[..., Scan]) -> None:
    payload = b"\xaa" + _record(*PLAIN) + _record(*PLAIN)
    assert scan(payload, 1, len(payload), 2, 5, 0, 0, 0) == (Fault.OFFSET, 1, 8, 5, 0, ())


def test_violations_are_listed_with_the_first_rule_that_each_record_breaks(scan: Callable[..., Scan]) -> None:
    records = [
        Record(0, 10, b"k", b""),
        Record(1, 21, None, b""),
        Record(2, 21, b"k", b""),
        Record(3, -1, b"k", b""),
        Record(4, 9, b"k", b""),
        Record(5, 20, b"k", b""),
    ]
    payload = write_records(records, 0, 10)
    rules = chain.REQUIRE_KEYS | chain.CHECK_TIMESTAMPS
    fault, index, position, max_timestamp, max_index, violations = scan(payload, 0, len(payload), 6, 10, rules, 10, 20)
    assert (fault, index, position, max_timestamp, max_index) == (Fault.SOUND, 6, len(payload), 21, 1)
    assert violations == ((1, Violation.NULL_KEY, 21), (2, Violation.TIMESTAMP, 21), (4, Violation.TIMESTAMP, 9))


def test_no_more_than_a_thousand_violations_are_listed(scan: Callable[..., Scan]) -> None:
    payload = write_records([Record(i, 0, None, None) for i in range(1500)], 0, 0)
    answer = scan(payload, 0, len(payload), 1500, 0, chain.REQUIRE_KEYS, 0, 0)
    assert answer[:2] == (Fault.SOUND, 1500)
    assert [index for index, _, _ in answer[5]] == list(range(chain.MAX_VIOLATIONS))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 8), (5, 4), (2**63 - 1, 2**63 - 1)])
def test_bounds_outside_the_buffer_are_refused(scan: Callable[..., Scan], start: int, end: int) -> None:
    with pytest.raises(ValueError, match="within the buffer"):
        scan(_record(*PLAIN), start, end, 1, 0, 0, 0, 0)


@needs_c
def test_both_implementations_agree_on_many_records() -> None:
    """The walk releases the interpreter, and takes it again to list violations."""
    payload = bytes(write_records([Record(offset, 5, None, b"", []) for offset in range(60_000)], 0, 0))
    arguments = (payload, 0, len(payload), 60_000, 0, chain.CHECK_TIMESTAMPS, 10, 20)
    assert len(_same_answer(*arguments)[5]) == chain.MAX_VIOLATIONS


@needs_c
def test_wrong_arguments_are_type_errors_in_c() -> None:
    assert scan_in_c is not None
    for arguments in [
        (),
        (b"",),
        ("text", 0, 0, 1, 0, 0, 0, 0),
        (b"", 0, None, 1, 0, 0, 0, 0),
        (b"", 0, 0, 1, 0, 0, 0, ""),
    ]:
        with pytest.raises(TypeError):
            scan_in_c(*arguments)  # type: ignore[arg-type]


@needs_c
def test_the_c_map_is_used_where_it_was_built() -> None:
    assert chain.scan is scan_in_c


def test_c_and_python_have_the_same_numbers() -> None:
    folder = Path(chain.__file__).parent
    assert f"enum fault {{ {', '.join(fault.name for fault in Fault)} }};" in (folder / "_records.h").read_text()
    source = (folder / "_chain.c").read_text()
    assert f"enum violation {{ NULL_KEY = {Violation.NULL_KEY}, TIMESTAMP = {Violation.TIMESTAMP} }};" in source
    flags = f"REQUIRE_KEYS = {chain.REQUIRE_KEYS}, ONE_TIMESTAMP = {chain.ONE_TIMESTAMP}"
    assert f"enum flag {{ {flags}, CHECK_TIMESTAMPS = {chain.CHECK_TIMESTAMPS} }};" in source
    assert f"#define MAX_VIOLATIONS {chain.MAX_VIOLATIONS}\n" in source
