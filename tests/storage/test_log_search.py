"""The search for a timestamp within a batch: the walk in C finds what the records show."""

from __future__ import annotations

import random

import pytest

from odradek.protocol.batch import Record, build, records
from odradek.protocol.compression import Codec
from odradek.storage.log_search import QUICK_RECORDS, _first_record

COUNT = QUICK_RECORDS + 1500


def expected(batch: bytes, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """The result from the records themselves."""
    late = (each for each in records(batch) if each.timestamp_ms >= timestamp_ms and each.offset >= start_offset)
    return next(((each.offset, each.timestamp_ms) for each in late), None)


@pytest.mark.parametrize("codec", [Codec.NONE, pytest.param(Codec.LZ4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gaps", [False, True])
def test_the_first_record_that_is_late_enough(codec: Codec, gaps: bool) -> None:
    noise = random.Random(5)
    written = [
        Record(1000 + number, noise.choice([-1, 0, 5, number, 3 * number]), None, b"v", [])
        for number in range(COUNT)
        if not gaps or number in (0, COUNT - 1) or noise.random() < 0.9
    ]
    batch = bytes(build(written, base_offset=1000, codec=codec))
    results = set()
    for timestamp_ms in (0, 1, 6, 500, COUNT, 2 * COUNT, 3 * COUNT, 4 * COUNT):
        for start_offset in (0, 1000, 1001, 1000 + COUNT // 2, 1000 + COUNT - 1, 1000 + COUNT):
            found = _first_record(batch, timestamp_ms, start_offset)
            assert found == expected(batch, timestamp_ms, start_offset), (timestamp_ms, start_offset)
            results.add(found)
    assert None in results
    assert len(results) > 8
