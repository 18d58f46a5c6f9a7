"""Kafka's own classes read batches of Odradek, write batches for it, and validate produced batches beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from odradek.protocol import batch, chain
from odradek.protocol.batch import Codec, Record
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.protocol.batch_mutations import mutants, sealed
from tests.protocol.batch_witness import as_text, ask

pytestmark = pytest.mark.jvm

NOW_MS = 1_700_000_000_000
LEVELS: list[tuple[Codec, int]] = [
    (Codec.GZIP, 1),
    (Codec.GZIP, 9),
    (Codec.LZ4, 1),
    (Codec.LZ4, 9),
    (Codec.LZ4, 17),
    (Codec.ZSTD, -5),
    (Codec.ZSTD, 19),
    (Codec.ZSTD, 22),
]


def _noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


SHAPES: dict[str, list[Record]] = {
    "one empty record": [Record(0, NOW_MS, b"", b"")],
    "nulls": [Record(0, -1, None, None), Record(1, -1, None, None)],
    "headers": [
        Record(0, NOW_MS, b"k", b"v", [("name", b"value"), ("", b""), ("käfer", None), ("name", b"again")]),
        Record(1, NOW_MS - 5, None, b"v", [("x", _noise(300))]),
    ],
    "times up and down": [Record(i, NOW_MS + (i * 7919) % 100_000 - 50_000, b"%d" % i, b"v" * i) for i in range(300)],
    "times far apart": [Record(0, 0, None, b"a"), Record(1, 2**62, None, b"b"), Record(2, 1, None, b"c")],
    "text over many blocks": [Record(i, NOW_MS, b"key", b"a line of text, number %d; " % i * 9) for i in range(800)],
    "noise over many blocks": [Record(i, NOW_MS, None, _noise(50_000 + i)) for i in range(3)],
    "zeros": [Record(0, NOW_MS, None, bytes(300_000))],
}

CASES: list[tuple[str, Codec, int | None]] = [(shape, codec, None) for shape in SHAPES for codec in Codec]
CASES += [("text over many blocks", codec, level) for codec, level in LEVELS]


def test_kafka_reads_batches_of_odradek() -> None:
    batches = [batch.build(SHAPES[shape], codec=codec, level=level) for shape, codec, level in CASES]
    answers = ask([f"read {each.hex()}" for each in batches])
    for (shape, codec, level), answer in zip(CASES, answers, strict=True):
        words = answer.split(" ")
        assert words[0] == "true", f"Kafka finds the checksum of {shape}, {codec.name} {level}, wrong"
        assert int(words[4]) == codec
        assert words[14:] == [as_text(record) for record in SHAPES[shape]], f"{shape}, {codec.name} {level}"


def test_odradek_reads_batches_of_kafka() -> None:
    answers = ask(
        [
            f"write {codec.name.lower()} {'-' if level is None else level} 0 - 7 2 40 true "
            + " ".join(map(as_text, SHAPES[shape]))
            for shape, codec, level in CASES
        ]
    )
    for (shape, codec, level), answer in zip(CASES, answers, strict=True):
        written = bytes.fromhex(answer)
        (position, header), *others = batch.headers(written)
        assert (position, others, header.size) == (0, [], len(written))
        assert batch.crc_ok(written, 0, header)
        assert header.codec == codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
        assert header.is_transactional
        assert not header.is_control
        read = [record._replace(headers=list(record.headers)) for record in batch.records(written)]
        wanted = [record._replace(headers=list(record.headers)) for record in SHAPES[shape]]
        assert read == wanted, f"{shape}, {codec.name} {level}"
        max_timestamp = batch.check_records(written, 0, header, require_keys=False, timestamps=None)
        assert max_timestamp == header.max_timestamp == max(record.timestamp_ms for record in wanted)


def test_uncompressed_batches_are_the_same_bytes() -> None:
    cases = [(shape, append_time) for shape in SHAPES.values() for append_time in (None, NOW_MS + 17)]
    answers = ask(
        [
            f"write none - 0 {'-' if append_time is None else append_time} 9 1 5 false " + " ".join(map(as_text, shape))
            for shape, append_time in cases
        ]
    )
    ours = [
        batch.build(shape, producer_id=9, producer_epoch=1, base_sequence=5, log_append_time_ms=append_time).hex()
        for shape, append_time in cases
    ]
    assert ours == answers


def test_transaction_markers_are_the_same_bytes() -> None:
    outcomes = (True, False)
    answers = ask([f"marker {str(commit).lower()} 1234 {NOW_MS} 6 77 3 11" for commit in outcomes])
    ours = [
        batch.control_batch(
            commit=commit,
            coordinator_epoch=11,
            producer_id=77,
            producer_epoch=3,
            timestamp_ms=NOW_MS,
            base_offset=1234,
            leader_epoch=6,
        ).hex()
        for commit in outcomes
    ]
    assert ours == answers


def test_kafka_reads_a_compacted_batch() -> None:
    kept = [Record(103, NOW_MS, b"a", None), Record(107, NOW_MS + 1, b"b", b"v")]
    compacted = batch.build(
        kept,
        base_offset=100,
        last_offset=109,
        producer_id=5,
        producer_epoch=0,
        base_sequence=2**31 - 5,
        leader_epoch=4,
        delete_horizon_ms=NOW_MS - 1000,
    )
    emptied = batch.build([], base_offset=200, last_offset=209, producer_id=5, producer_epoch=0, base_sequence=10)
    answers = ask([f"read {compacted.hex()}", f"read {emptied.hex()}"])
    assert answers == [
        f"true 100 109 4 0 {NOW_MS + 1} 5 0 2147483643 4 false false false {NOW_MS - 1000} "
        + " ".join(map(as_text, kept)),
        "true 200 209 -1 0 -1 5 0 10 19 false false false -",
    ]
    assert list(batch.records(compacted)) == kept
    assert batch.read_header(compacted).last_sequence == 4


class Case(NamedTuple):
    """A produced batch and its topic."""

    produced: bytes
    api_version: int
    require_keys: bool
    timestamps: tuple[int, int, int] | None

    def question(self) -> str:
        kind = "LogAppendTime" if self.timestamps is None else "CreateTime"
        now, before, after = self.timestamps or (NOW_MS, 0, 0)
        compacted = str(self.require_keys).lower()
        return f"validate {self.api_version} {compacted} {kind} {before} {after} {now} 12 {self.produced.hex()}"


class Verdict(NamedTuple):
    """The result of a produced batch: the bytes to append, or a code and the bad records; `reason` is Odradek's
    message.
    """

    appended: bytes | None
    code: int
    bad: list[int]
    reason: str = ""


def _ours(case: Case) -> Verdict:
    copy = bytearray(case.produced)
    try:
        header = batch.check_produce_shape(copy, case.api_version)
        if not batch.crc_ok(copy, 0, header):
            return Verdict(None, ErrorCode.CORRUPT_MESSAGE, [])
        max_timestamp = batch.check_records(copy, 0, header, require_keys=case.require_keys, timestamps=case.timestamps)
    except KafkaError as problem:
        bad = [index for index, _ in problem.record_errors] if isinstance(problem, batch.InvalidRecords) else []
        return Verdict(None, problem.code, bad, problem.message)
    batch.stamp(copy, 0, 1000, 12)
    if case.timestamps is None:
        batch.stamp_log_append_time(copy, 0, header, NOW_MS)
    else:
        batch.stamp_max_timestamp(copy, 0, header, max_timestamp)
    return Verdict(bytes(copy), 0, [])


def _kafkas(answer: str) -> Verdict:
    kind, *words = answer.split(" # ")[0].split()
    if kind == "ok":
        return Verdict(bytes.fromhex(words[0]), 0, [])
    return Verdict(None, int(words[0]), [int(word) for word in words[1:]])


def _cases() -> Iterator[Case]:
    chance = random.Random(20)
    window = (NOW_MS, 10_000, 5_000)
    plain = [Record(i, NOW_MS + 1 + i, b"k%d" % i, b"value", [("h", b"1")]) for i in range(5)]
    keyless = [record._replace(key=None if index % 2 else b"k") for index, record in enumerate(plain)]
    untimely = [record._replace(timestamp_ms=NOW_MS + 4_998 + index) for index, record in enumerate(plain)]
    timeless = [record._replace(timestamp_ms=-1) for record in plain]
    for codec in Codec:
        for records in (plain, keyless, untimely, timeless):
            for require_keys in (False, True):
                for timestamps in (window, None):
                    for append_time in (None, NOW_MS + 3, NOW_MS + 9_000):
                        built = bytes(batch.build(records, codec=codec, log_append_time_ms=append_time))
                        yield Case(built, chance.choice((3, 6, 7, 9)), require_keys, timestamps)
        idempotent = batch.build(plain, codec=codec, producer_id=4, producer_epoch=0, base_sequence=8)
        for mutant in mutants(bytes(idempotent), chance, 250):
            yield Case(mutant, 9, False, (NOW_MS, 2**63 - 1, 3_600_000))


LAXER = (chain.FAULTS[chain.Fault.OFFSET], "bytes after the batch")
LAXER_WHEN_COMPRESSED = (
    chain.FAULTS[chain.Fault.RECORD_SIZE],
    chain.FAULTS[chain.Fault.TRUNCATED],
    chain.FAULTS[chain.Fault.HEADERS],
    "malformed",
)
"""Reasons why Odradek may refuse what Kafka accepts; the head of batch.py lists them too."""


def test_produced_batches_are_validated_as_by_kafka() -> None:
    cases = list(_cases())
    answers = ask([case.question() for case in cases])
    agreed_refusals, agreed_bytes = 0, 0
    for case, answer in zip(cases, answers, strict=True):
        ours, kafkas = _ours(case), _kafkas(answer)
        notified = f"{case.question()}\nKafka: {answer}\nours: {ours}"
        if kafkas.appended is None:
            assert ours.appended is None, f"Odradek accepts a batch that Kafka refuses\n{notified}"
            if kafkas.code == ErrorCode.UNKNOWN_SERVER_ERROR:  # an unexpected exception in Kafka
                assert ours.code in (
                    ErrorCode.INVALID_RECORD,
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    ErrorCode.CORRUPT_MESSAGE,
                ), notified
            else:
                assert (ours.code, ours.bad) == (kafkas.code, kafkas.bad), notified
                agreed_refusals += 1
        elif ours.appended is None:
            compressed = batch.read_header(case.produced).codec
            reasons = LAXER + LAXER_WHEN_COMPRESSED if compressed else LAXER
            assert any(reason in ours.reason for reason in reasons), (
                f"Odradek refuses a batch that Kafka accepts\n{notified}"
            )
        else:
            assert ours.appended == kafkas.appended, notified
            agreed_bytes += 1
    assert agreed_refusals > 300
    assert agreed_bytes > 200


def test_kafka_refuses_a_batch_whose_checksum_is_wrong() -> None:
    built = batch.build([Record(0, NOW_MS, b"k", b"v")])
    built[-2] ^= 1  # the value
    wrong = Case(bytes(built), 9, False, None)
    right = wrong._replace(produced=sealed(built))
    verdicts = [_kafkas(answer).code for answer in ask([wrong.question(), right.question()])]
    assert verdicts == [_ours(wrong).code, _ours(right).code] == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
