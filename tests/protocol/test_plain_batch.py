"""Plain batches are recognized alike in C and in Python, and a leader accepts each without a change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, Record, build
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import KafkaError
from odradek.protocol.plain_batch import plain_header, plain_header_in_python
from odradek.storage import validation
from odradek.storage.config import AppendOrigin, LogConfig


def random_batch(rng: random.Random) -> bytearray:
    """A batch of a client, in half of the cases with some wrong bytes, most of them in the header."""
    records = [
        Record(
            number,
            1_700_000_000_000 + rng.randint(-5, 5),
            rng.choice((None, b"", b"k")),
            rng.randbytes(rng.randint(0, 80)),
        )
        for number in range(rng.randint(1, 4))
    ]
    batch = build(records, producer_id=rng.choice((-1, 7)), producer_epoch=0, base_sequence=rng.choice((-1, 0, 9)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(HEADER_SIZE) if rng.random() < 0.7 else rng.randrange(len(batch))
        batch[at] = rng.choice((0, 1, 2, 0x10, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    if rng.random() < 0.2:
        batch = batch[: rng.randrange(len(batch))] if rng.random() < 0.5 else batch + b"more"
    return batch


def test_both_recognize_the_same_batches() -> None:
    rng, plain = random.Random(71), 0
    for _ in range(3000):
        batch = random_batch(rng)
        found, expected = plain_header(memoryview(batch)), plain_header_in_python(memoryview(batch))
        assert found == expected, batch.hex()
        assert type(found) is type(expected)
        plain += found is not None
    assert 1000 < plain < 2500


def test_a_leader_has_the_same_result_for_a_batch_whether_it_is_recognized_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, config, plain = random.Random(72), LogConfig(), 0
    for _ in range(1500):
        batch = random_batch(rng)
        if len(batch) > HEADER_SIZE and rng.random() < 0.9:
            checked = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
            batch[CRC_POSITION:ATTRIBUTES_POSITION] = checked.to_bytes(4, "big")
        outcomes: list[Any] = []
        for recognize in (plain_header, lambda _: None):
            monkeypatch.setattr(validation, "plain_header", recognize)
            try:
                view, header = validation.admit(memoryview(bytearray(batch)), config, AppendOrigin.CLIENT, 9, 5)
                outcomes.append((bytes(view), header))
            except KafkaError as error:
                outcomes.append((type(error), error.code, error.message))
        assert outcomes[0] == outcomes[1], batch.hex()
        plain += plain_header(batch) is not None
    assert plain > 500
