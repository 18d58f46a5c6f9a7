"""Plain batches are recognized alike in C and in Python, and a leader accepts each without a change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.protocol.errors import KafkaError
from odradek.protocol.plain_batch import plain_header
from odradek.storage import validation
from odradek.storage.config import AppendOrigin, LogConfig
from tests.protocol.batch_differences import compare_plain, random_batch


def test_both_recognize_the_same_batches() -> None:
    rng = random.Random(71)
    assert 500 < sum(compare_plain(rng) for _ in range(3000)) < 2500


def test_a_leader_has_the_same_result_for_a_batch_whether_it_is_recognized_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, config, plain = random.Random(72), LogConfig(), 0
    for _ in range(1500):
        batch = random_batch(rng)
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
