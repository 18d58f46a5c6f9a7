"""Exactly once over crashes: processes are killed at random moments, and nothing is counted twice or not at all."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from tests.streams import counting
from tests.streams.counting import COUNTS, QUICK, WORDS


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    counting.make_topics(streams_broker.bootstrap, {WORDS: 2, COUNTS: 2})
    return streams_broker


def config(broker: BrokerProcess, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        **QUICK,
        "application.id": "once",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path / "state"),
        "processing.guarantee": "exactly_once_v2",
        **more,
    }


@pytest.mark.slow
def test_a_killed_process_counts_nothing_twice(broker: BrokerProcess, tmp_path: Path) -> None:
    chance = random.Random(9)
    vocabulary = [f"word{number}" for number in range(20)]
    words: list[str] = []
    for _ in range(3):
        fresh = chance.choices(vocabulary, k=2_000)
        words += fresh
        process = counting.start_process(config(broker, tmp_path))
        before = sum(map(len, counting.counted(broker.bootstrap).values()))
        counting.write_words(broker.bootstrap, fresh)
        moment = before + chance.randrange(1, 2_000)
        counting.await_counts(broker.bootstrap, lambda found: sum(map(len, found.values())) >= moment)  # noqa: B023
        process.kill()
    process = counting.start_process(config(broker, tmp_path))
    try:
        counting.await_counts(broker.bootstrap, counting.all_of(Counter(words)))
        counting.assert_exactly_once(broker.bootstrap, words, "once")
    finally:
        process.stop()
