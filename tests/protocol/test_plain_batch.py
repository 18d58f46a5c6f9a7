"""Plain batches are recognized alike in C and in Python, and a leader accepts each without a change."""

from __future__ import annotations

import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace
from typing import Any

import pytest

from odradek import protocol
from odradek.protocol import plain_batch
from odradek.protocol.errors import KafkaError
from odradek.protocol.plain_batch import plain_header, plain_header_in_python
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


def test_an_older_build_that_verifies_no_checksum_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    older = SimpleNamespace(plain_header=lambda batch: tuple(plain_header_in_python(batch) or ()))
    monkeypatch.setattr(protocol, "_chain", older, raising=False)
    monkeypatch.setitem(sys.modules, "odradek.protocol._chain", older)
    spec = spec_from_file_location("plain_batch_of_an_older_build", str(plain_batch.__file__))
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.plain_header is loaded.plain_header_in_python
