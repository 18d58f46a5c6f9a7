"""Headers, stamps, records and the rules of a produced batch. The comparison with Kafka is in test_batch_jvm.py."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import batch, chain
from odradek.protocol.batch import Codec, InvalidRecords, Record
from odradek.protocol.compression import compress
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from tests.protocol.batch_mutations import mutants, mutated, sealed, with_payload

NOW_MS = 1_700_000_000_000
WINDOW = (NOW_MS, 1_000, 500)
THREE = [Record(i, NOW_MS + i, b"k%d" % i, b"value") for i in range(3)]

# One record with key k and value v, as Kafka 3.9.2 wrote it.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "0000003a"  # batch length
    "ffffffff"  # leader epoch
    "02"  # magic
    "e99b8dd8"  # checksum
    "0000"  # attributes
    "00000000"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56800"  # max timestamp
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # record count
    "10000000026b027600"
)


def _built(**settings: object) -> bytearray:
    return batch.build(THREE, **settings)  # type: ignore[arg-type]


# --- headers ------------------------------------------------------------------------------------------------------


def test_a_batch_of_kafka_is_read_and_built() -> None:
    header = batch.read_header(GOLDEN)
    assert header == (0, 58, -1, 2, 0xE99B8DD8, 0, 0, NOW_MS, NOW_MS, -1, -1, -1, 1)
    assert (header.size, header.last_offset, header.next_offset) == (70, 0, 1)
    assert (header.codec, header.last_sequence, header.delete_horizon_ms) == (0, -1, None)
    assert batch.crc_ok(GOLDEN, 0, header)
    assert list(batch.records(GOLDEN)) == [Record(0, NOW_MS, b"k", b"v")]
    assert batch.build([Record(0, NOW_MS, b"k", b"v")]) == GOLDEN


def test_attributes_are_decoded_separately() -> None:
    plain = batch.read_header(_built())
    assert (plain.is_control, plain.is_transactional, plain.is_log_append_time) == (False, False, False)
    assert batch.read_header(_built(transactional=True)).is_transactional
    assert batch.read_header(_built(control=True)).is_control
    stamped = batch.read_header(_built(log_append_time_ms=NOW_MS + 9))
    assert stamped.is_log_append_time
    assert stamped.max_timestamp == NOW_MS + 9
    assert batch.read_header(_built(delete_horizon_ms=77)).delete_horizon_ms == 77
    assert [batch.read_header(_built(codec=codec)).codec for codec in Codec] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("base", "last"), [(0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1), (-1, -1)])
def test_sequences_wrap_to_zero(base: int, last: int) -> None:
    assert batch.read_header(_built(base_sequence=base)).last_sequence == last


def test_a_truncated_header_is_a_protocol_error() -> None:
    for size in range(batch.HEADER_SIZE):
        with pytest.raises(ProtocolError) as problem:
            batch.read_header(b"__" + GOLDEN[:size], 2)
        assert problem.value.position == 2
    assert batch.read_header(b"__" + GOLDEN[: batch.HEADER_SIZE], 2) == batch.read_header(GOLDEN)


def test_the_checksum_covers_every_byte_behind_it_and_none_before() -> None:
    for position in range(len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[position] ^= 0x10
        in_length = 8 <= position < 12
        covered = position >= 17
        assert batch.crc_ok(damaged, 0, batch.read_header(damaged)) is not (covered or in_length), position


def test_an_incomplete_batch_has_no_valid_checksum() -> None:
    header = batch.read_header(GOLDEN)
    assert not batch.crc_ok(GOLDEN[:-1], 0, header)
    for length in (-(2**31), -13, 0, 48):
        assert not batch.crc_ok(GOLDEN, 0, header._replace(batch_length=length))


def test_batches_are_iterated() -> None:
    log = b"??" + GOLDEN + _built(base_offset=0) + GOLDEN
    walked = list(batch.headers(log, 2))
    assert [position for position, _ in walked] == [2, 72, 72 + len(_built())]
    assert [header.record_count for _, header in walked] == [1, 3, 1]
    assert list(batch.headers(b"")) == []


@pytest.mark.parametrize(
    ("tail", "field", "position"),
    [
        (GOLDEN[:20], "RecordBatch", 70),
        (GOLDEN[:-1], "RecordBatch.batchLength", 78),
        (GOLDEN[:8] + b"\0\0\0\x30" + GOLDEN[12:], "RecordBatch.batchLength", 78),
        (GOLDEN[:8] + b"\x80\0\0\0" + GOLDEN[12:], "RecordBatch.batchLength", 78),
        (GOLDEN[:8] + b"\x7f\xff\xff\xff" + GOLDEN[12:], "RecordBatch.batchLength", 78),
        (GOLDEN[:16] + b"\x01" + GOLDEN[17:], "RecordBatch.magic", 86),
    ],
)
def test_a_torn_or_absurd_batch_ends_the_iteration(tail: bytes, field: str, position: int) -> None:
    walk = batch.headers(GOLDEN + tail)
    assert next(walk)[0] == 0
    with pytest.raises(ProtocolError) as problem:
        next(walk)
    assert (problem.value.field, problem.value.position) == (field, position)


# --- stamps -------------------------------------------------------------------------------------------------------


def test_offset_and_epoch_are_stamped_beside_the_checksum() -> None:
    log = bytearray(b"__" + GOLDEN)
    batch.stamp(memoryview(log), 2, 2**40, 7)
    header = batch.read_header(log, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)
    assert batch.crc_ok(log, 2, header)
    assert log[:2] == b"__"
    assert list(batch.records(log, 2)) == [Record(2**40, NOW_MS, b"k", b"v")]


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_applies_to_every_record(codec: Codec) -> None:
    log = bytearray(b"__") + _built(codec=codec, transactional=True)
    batch.stamp_log_append_time(memoryview(log), 2, batch.read_header(log, 2), NOW_MS + 50)
    header = batch.read_header(log, 2)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW_MS + 50)
    assert (header.is_transactional, header.codec) == (True, codec)
    assert batch.crc_ok(log, 2, header)
    assert [record.timestamp_ms for record in batch.records(log, 2)] == [NOW_MS + 50] * 3


def test_a_wrong_max_timestamp_is_corrected() -> None:
    produced = _built()
    produced[35:43] = (5).to_bytes(8, "big")
    sealed(produced)
    header = batch.read_header(produced)
    found = batch.check_records(produced, 0, header, require_keys=False, timestamps=None)
    assert found == NOW_MS + 2
    batch.stamp_max_timestamp(produced, 0, header, found)
    assert produced == _built()


# --- records ------------------------------------------------------------------------------------------------------

TEXT = st.none() | st.binary(max_size=40)
ITEMS = st.lists(
    st.tuples(
        st.integers(1, 1_000),
        st.integers(-(2**63), 2**63 - 1),
        TEXT,
        TEXT,
        st.lists(st.tuples(st.text(max_size=5), TEXT), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(ITEMS, st.integers(0, 2**62), st.sampled_from(Codec))
def test_built_batches_are_read(
    items: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], base: int, codec: Codec
) -> None:
    offset = base - 1
    records = []
    for gap, timestamp_ms, key, value, headers in items:
        offset += gap
        records.append(Record(offset, timestamp_ms, key, value, headers or ()))
    built = batch.build(iter(records), base_offset=base, codec=codec)
    header = batch.read_header(built)
    assert (header.size, header.last_offset, header.record_count) == (len(built), offset, len(records))
    assert header.max_timestamp == max(-1, *(record.timestamp_ms for record in records))
    assert batch.crc_ok(built, 0, header)
    assert list(batch.records(built)) == records


@pytest.mark.parametrize(
    ("offsets", "base", "last"),
    [
        ([5, 5], 5, None),
        ([6, 5], 5, None),
        ([4], 5, None),
        ([5, 9], 5, 8),
        ([], 5, None),
        ([], 5, 4),
        ([5], 5, 2**31 + 5),
    ],
)
def test_offsets_that_no_batch_can_hold_are_refused(offsets: list[int], base: int, last: int | None) -> None:
    with pytest.raises(ValueError, match="offset"):
        batch.build([Record(offset, 0, None, None) for offset in offsets], base_offset=base, last_offset=last)


def test_a_control_batch_is_a_marker() -> None:
    built = batch.control_batch(
        commit=False, coordinator_epoch=3, producer_id=9, producer_epoch=2, timestamp_ms=NOW_MS, base_offset=40
    )
    header = batch.read_header(built)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.last_offset) == (9, 2, 40)
    assert list(batch.records(built)) == [Record(40, NOW_MS, b"\0\0\0\0", b"\0\0\0\0\0\3")]


def test_header_keys_that_are_not_text_are_read_as_java_reads_them() -> None:
    payload = b"\x12\0\0\0\1\1\2\2\xff\1"
    built = with_payload(bytes(batch.build([Record(0, 5, None, None)])), payload)
    assert list(batch.records(built)) == [Record(0, 5, None, None, [("\ufffd", None)])]


@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_batches_are_read_or_are_protocol_errors(codec: Codec) -> None:
    chance = random.Random(3)
    original = bytes(_built(codec=codec))
    fields = []
    for damaged in [*mutants(original, chance, 200), *(mutated(original, chance) for _ in range(200))]:
        try:
            list(batch.records(damaged))
        except ProtocolError as problem:
            fields.append(problem.field.split("[")[0])
    named = ("magic", "batchLength", "lastOffsetDelta", "records")
    assert set(fields) <= {"RecordBatch", *(f"RecordBatch.{name}" for name in named)}
    assert len(fields) > 150


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_protocol_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(batch.records(data[:16] + b"\x02" + data[16:]))


def test_records_of_one_batch_only() -> None:
    assert len(list(batch.records(bytes(_built()) + GOLDEN))) == 3
    with pytest.raises(ProtocolError):
        next(batch.records(b""))


def test_records_that_decompress_to_too_much_are_a_protocol_error() -> None:
    packed = batch.build([Record(0, 0, None, bytes(10_000))], codec=Codec.GZIP)
    with pytest.raises(ProtocolError, match="9000 bytes"):
        next(batch.records(packed, max_decompressed=9_000))


# --- the leader's rules -------------------------------------------------------------------------------------------


@pytest.fixture(params=["C", "Python"])
def _each_implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(chain, "scan", chain.scan_in_python)


def _check(
    produced: bytes | bytearray, *, require_keys: bool = False, timestamps: tuple[int, int, int] | None = WINDOW
) -> int:
    header = batch.read_header(produced)
    return batch.check_records(produced, 0, header, require_keys=require_keys, timestamps=timestamps)


def _refusal(action: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as refusal:
        action()
    return refusal.value


@pytest.mark.usefixtures("_each_implementation")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_valid_batch_passes_and_returns_its_last_time(codec: Codec) -> None:
    assert _check(_built(codec=codec)) == NOW_MS + 2
    assert _check(_built(codec=codec), require_keys=True, timestamps=None) == NOW_MS + 2
    assert (
        _check(_built(codec=codec, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)) == NOW_MS + 2
    )
    shifted = b"__" + bytes(_built(codec=codec))
    header = batch.read_header(shifted, 2)
    assert batch.check_records(memoryview(shifted), 2, header, require_keys=True, timestamps=WINDOW) == NOW_MS + 2


@pytest.mark.parametrize(
    ("position", "layout", "value", "notified"),
    [
        (0, ">q", 1, "base offset 1"),
        (23, ">i", -1, "last offset delta -1"),
        (57, ">i", 0, "0 records"),
        (57, ">i", -1, "-1 records"),
        (57, ">i", 2, "2 records but 3 offsets"),
        (23, ">i", 3, "3 records but 4 offsets"),
        (21, ">h", batch.CONTROL, "control records"),
        (43, ">q", 5, "sequence -1 with producer id 5"),
    ],
)
def test_a_header_that_a_client_may_not_write_is_refused(position: int, layout: str, value: int, notified: str) -> None:
    produced = _built()
    struct.pack_into(layout, produced, position, value)
    refusal = _refusal(lambda: _check(sealed(produced)))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert notified in refusal.message
    assert isinstance(refusal, InvalidRecords)
    assert refusal.record_errors == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 1_000, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    produced = _built()
    struct.pack_into(">i", produced, 8, length)
    assert _refusal(lambda: _check(produced)).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.usefixtures("_each_implementation")
@pytest.mark.parametrize("codec", list(Codec))
def test_bad_records_are_named_one_by_one(codec: Codec) -> None:
    records = [
        Record(0, NOW_MS, None, b""),
        Record(1, NOW_MS, b"", b""),
        Record(2, NOW_MS, None, b""),
    ]
    refusal = _refusal(lambda: _check(batch.build(records, codec=codec), require_keys=True))
    assert isinstance(refusal, InvalidRecords)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [0, 2]
    assert all("no key" in message for _, message in refusal.record_errors)

    records[1:] = [Record(1, NOW_MS - 1_001, b"", b""), Record(2, NOW_MS + 501, b"", b"")]
    refusal = _refusal(lambda: _check(batch.build(records, codec=codec), require_keys=True))
    assert isinstance(refusal, InvalidRecords)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1, 2]
    assert str(NOW_MS + 501) in refusal.record_errors[2][1]


@pytest.mark.usefixtures("_each_implementation")
def test_times_within_the_bounds_pass() -> None:
    bounds = [Record(0, NOW_MS - 1_000, None, None), Record(1, NOW_MS + 500, None, None), Record(2, -1, None, None)]
    assert _check(batch.build(bounds)) == NOW_MS + 500
    far = [Record(0, 0, None, None), Record(1, 2**63 - 1, None, None)]
    assert _check(batch.build(far), timestamps=(NOW_MS, 2**63 - 1, 2**63 - 1)) == 2**63 - 1
    assert _check(batch.build(far), timestamps=None) == 2**63 - 1
    assert _check(batch.build([Record(0, -1, None, None)])) == -1


@pytest.mark.usefixtures("_each_implementation")
def test_only_a_broker_sets_log_append_time() -> None:
    refusal = _refusal(lambda: _check(_built(log_append_time_ms=NOW_MS), timestamps=None))
    assert isinstance(refusal, InvalidRecords)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1, 2]
    assert "LogAppendTime" in refusal.message


@pytest.mark.usefixtures("_each_implementation")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_broken_chain_is_refused_with_its_position(codec: Codec) -> None:
    payload = bytes(batch.build([Record(0, 5, b"k", b"v")])[batch.HEADER_SIZE :])
    damaged = with_payload(bytes(_built(codec=codec)), bytes(compress(codec, payload + b"\x02\0")))
    refusal = _refusal(lambda: _check(damaged, timestamps=None))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert f"record 1 of 3, at byte {len(payload)}" in refusal.message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_that_cannot_be_decompressed_are_refused_for_good(codec: Codec) -> None:
    damaged = with_payload(bytes(_built(codec=codec)), b"\x01\x02\x03\x04\x05\x06\x07\x08")
    refusal = _refusal(lambda: _check(damaged))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert not refusal.code.retriable


def test_records_that_decompress_to_too_much_are_refused() -> None:
    packed = batch.build([Record(0, 0, None, bytes(10_000))], codec=Codec.LZ4)
    header = batch.read_header(packed)
    refusal = _refusal(
        lambda: batch.check_records(packed, 0, header, require_keys=False, timestamps=None, max_decompressed=9_000)
    )
    assert refusal.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_unknown_codec_is_refused() -> None:
    produced = _built()
    produced[22] |= 5
    assert _refusal(lambda: _check(sealed(produced))).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_batches_pass_or_are_refused_with_a_code(codec: Codec) -> None:
    chance = random.Random(5)
    codes = []
    for damaged in mutants(bytes(_built(codec=codec)), chance, 400):
        try:
            _check(damaged)
        except KafkaError as refusal:
            codes.append(refusal.code)
    final = {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    assert set(codes) <= final | {ErrorCode.MESSAGE_TOO_LARGE}
    assert len(codes) > 150


# --- the shape of a Produce request's records ---------------------------------------------------------------------

ZSTD = bytes(_built(codec=Codec.ZSTD))
OLD = GOLDEN[:16] + b"\x01" + GOLDEN[17:]


@pytest.mark.parametrize("version", [0, 3, 7, 11])
def test_one_batch_of_magic_2_has_the_right_shape(version: int) -> None:
    assert batch.check_produce_shape(memoryview(GOLDEN), version) == batch.read_header(GOLDEN)


@pytest.mark.parametrize("rest", [b"\0", bytes(11), GOLDEN[:12], GOLDEN[:-1]], ids=len)
def test_bytes_behind_a_batch_that_are_no_whole_one_are_ignored(rest: bytes) -> None:
    assert batch.check_produce_shape(GOLDEN + rest, 9) == batch.read_header(GOLDEN)


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (None, 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (GOLDEN[:16], 9, ErrorCode.INVALID_RECORD),
        (GOLDEN[:17], 9, ErrorCode.INVALID_RECORD),
        (GOLDEN[:-1], 9, ErrorCode.INVALID_RECORD),
        (GOLDEN + GOLDEN, 3, ErrorCode.INVALID_RECORD),
        (GOLDEN + bytes(12), 9, ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN + GOLDEN[:16] + b"\x03", 9, ErrorCode.CORRUPT_MESSAGE),
        (OLD, 3, ErrorCode.INVALID_RECORD),
        (OLD, 2, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (ZSTD, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (GOLDEN[:16] + b"\x03" + GOLDEN[17:], 9, ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:16] + b"\xff" + GOLDEN[17:], 9, ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:8] + b"\0\0\0\x0d" + GOLDEN[12:], 9, ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:8] + b"\0\0\0\x30" + GOLDEN[12:], 9, ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:8] + b"\xff\xff\xff\xff" + GOLDEN[12:], 9, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_shapes_are_refused(data: bytes | None, version: int, code: ErrorCode) -> None:
    assert _refusal(lambda: batch.check_produce_shape(data, version)).code is code


def test_zstd_is_accepted_from_version_7_on() -> None:
    assert batch.check_produce_shape(ZSTD, 7).codec == Codec.ZSTD


@given(st.binary(max_size=120), st.integers(0, 11))
def test_any_bytes_have_a_shape_or_a_code(data: bytes, version: int) -> None:
    for produced in (data, data[:8] + b"\0\0\0\x32" + data[8:12] + b"\x02" + data[12:]):
        try:
            size = batch.check_produce_shape(produced, version).size
        except KafkaError:
            size = len(produced)
        assert size == len(produced)
