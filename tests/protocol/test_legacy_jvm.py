"""Kafka 3.9.2's own classes convert drawn message sets beside Odradek: up as a leader, down as for a fetch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import legacy
from odradek.protocol.batch import Record, build, headers, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import MAX_INT64, AppendOrigin, LogConfig
from odradek.storage.validation import admit
from tests.broker.message_sets import APPEND_TIME, THEN_MS, damaged, message, messages_in, wrapper
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

pytestmark = pytest.mark.jvm

SOURCE = Path(__file__).parent.parent / "jvm" / "LegacyWitness.java"
CASES = 1500
HOUR_MS = 3_600_000
OURS_INSTEAD = {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
"""Odradek's error where Kafka fails with an exception that it has no code for."""


def ask(questions: list[str]) -> list[str]:
    """The responses, one for each request."""
    command = java_command("3.9.2", str(SOURCE), [], [*QUICK_START, *QUIET])
    answers = run_java(command, stdin="".join(f"{question}\n" for question in questions), timeout_s=60)
    lines = answers.stdout.splitlines()
    assert len(lines) == len(questions), answers.stderr
    return lines


def content(source: random.Random) -> bytes | None:
    return None if source.random() < 0.2 else source.choice((b"", b"key", b"word " * 20, source.randbytes(9)))


def time_ms(source: random.Random) -> int:
    return source.choice((-1, 0, THEN_MS, THEN_MS + source.randrange(-2 * HOUR_MS, 2 * HOUR_MS), THEN_MS - 5))


def some_messages(source: random.Random, magic: int, *, counted: bool) -> bytes:
    parts = []
    for number in range(source.choice((1, 1, 2, 3, 20))):
        own = 1 - magic if source.random() < 0.01 else magic
        offset = number if counted or source.random() < 0.9 else source.randrange(50)
        attributes = source.choice((0,) * 20 + (APPEND_TIME, Codec.GZIP))
        each = message(
            content(source), content(source), magic=own, offset=offset, at_ms=time_ms(source), attributes=attributes
        )
        parts.append(damaged(each, source.randrange(12, len(each))) if source.random() < 0.01 else each)
    return b"".join(parts)


def some_set(source: random.Random) -> bytes:
    """A produced set: plain or a wrapper, mostly valid."""
    magic = source.randrange(2)
    data = some_messages(source, magic, counted=True)
    if source.random() < 0.6:
        attributes = APPEND_TIME if source.random() < 0.1 else 0
        codec = source.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
        offset = source.choice((0, 0, 2, 19, 60))
        inner = data[: source.randrange(len(data))] if source.random() < 0.05 else data
        data = wrapper(
            inner, codec, magic=magic, offset=offset, at_ms=time_ms(source), attributes=attributes,
            fault=source.random() < 0.8,
        )  # fmt: skip
        if source.random() < 0.03:
            data += data
    return data[: source.randrange(len(data))] if source.random() < 0.05 else data


def stored(data: bytes) -> list[Any]:
    """Batches in comparable form: bytes where there is no codec."""
    found: list[Any] = []
    for at, header in headers(data):
        shape = header._replace(crc=0, batch_length=0, leader_epoch=0)
        found.append((shape, list(records(data, at)) if header.codec else data[at + 61 : at + header.size]))
    return found


def test_sets_are_up_converted_as_by_kafka() -> None:
    source = random.Random(7)
    cases = []
    for _ in range(CASES):
        config = LogConfig(
            compression_type=source.choice(("producer", "producer", "producer", "gzip", "zstd", "uncompressed")),
            cleanup_policy=(source.choice(("delete", "delete", "compact")),),
            message_timestamp_type=source.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            message_timestamp_before_max_ms=source.choice((MAX_INT64, HOUR_MS)),
            message_timestamp_after_max_ms=source.choice((MAX_INT64, HOUR_MS)),
            max_message_bytes=source.choice((1 << 20, 1 << 20, 200)),
        )
        cases.append((config, some_set(source)))
    answers = ask(
        [
            f"lift {'none' if config.compression_type == 'uncompressed' else config.compression_type} "
            f"{str(config.compacts).lower()} {config.message_timestamp_type} {config.message_timestamp_before_max_ms} "
            f"{min(config.message_timestamp_after_max_ms, MAX_INT64 - THEN_MS)} {THEN_MS} {config.max_message_bytes} "
            f"{data.hex()}"
            for config, data in cases
        ]
    )
    written = 0
    for (config, data), answer in zip(cases, answers, strict=True):
        verdict, _, rest = answer.partition(" ")
        try:
            view, _ = admit(memoryview(bytearray(data)), config, AppendOrigin.CLIENT, 2, THEN_MS)
        except KafkaError as error:
            _agrees(error, verdict, rest, config, answer)
        else:
            assert verdict == "ok", f"{answer} for {data.hex()}"
            assert stored(bytes(view)) == stored(bytes.fromhex(rest))
            written += 1
    assert CASES // 4 < written < CASES, "both good and bad sets were drawn"


def _agrees(error: KafkaError, verdict: str, rest: str, config: LogConfig, answer: str) -> None:
    """Whether Kafka refuses for the same reason."""
    if verdict == "ok" and rest and error.code is ErrorCode.MESSAGE_TOO_LARGE:
        assert len(rest) // 2 > config.max_message_bytes - 12  # the log checks it once more; codecs differ a little
    elif verdict == "ok":
        assert not rest
        assert error.code is ErrorCode.NONE
    elif int(rest.split(" ")[0]) == ErrorCode.UNKNOWN_SERVER_ERROR:
        assert error.code in OURS_INSTEAD, answer
    else:
        assert error.code == int(rest.split(" ")[0]), f"{error} where Kafka returns {answer}"


def test_batches_are_down_converted_as_by_kafka() -> None:
    source = random.Random(8)
    cases = []
    for _ in range(CASES // 3):
        data, offset = b"", source.randrange(1 << 40)
        first = offset + source.randrange(4)
        for _ in range(source.choice((1, 1, 2, 4))):
            rows = [
                Record(offset + n, time_ms(source), content(source), content(source), [("h", b"v")])
                for n in range(source.choice((1, 3, 9)))
            ]
            options: dict[str, Any] = {"codec": source.choice([codec for codec in Codec if codec != Codec.ZSTD])}
            if source.random() < 0.2:
                options["log_append_time_ms"] = THEN_MS
            data += bytes(build(rows, base_offset=offset, **options))
            offset += len(rows)
        cases.append((source.randrange(2), first, data))
    answers = ask([f"lower {magic} {first} {data.hex()}" for magic, first, data in cases])
    for (magic, first, data), answer in zip(cases, answers, strict=True):
        assert answer.startswith("ok "), answer
        kafkas = list(messages_in(bytes.fromhex(answer.removeprefix("ok "))))
        ours = [each for each in messages_in(legacy.down_convert_batches(data, magic, first)) if each[0] != "cut"]
        assert ours == kafkas[: len(ours)]
        assert len(ours) == len(kafkas) or sum(map(size_of, kafkas)) > len(data)


def size_of(each: tuple[Any, ...]) -> int:
    """Bytes of a message without compression, or more than it has with it."""
    magic, _, _, _, key, inside, *_ = each
    if isinstance(inside, tuple):
        return 200 + sum(map(size_of, inside))
    return 26 + 8 * int(magic) + len(key or b"") + len(inside or b"")
