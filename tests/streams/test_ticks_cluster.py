"""Sources of ticks on a real broker: kills, failovers and rebalances; each tick once for the whole application."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from tests.jvm.process import BackgroundProcess
from tests.streams.apps.beyond import ticking
from tests.streams.apps.storm import BROKER
from tests.streams.beyond import await_values, count_of, process_of
from tests.streams.counting import read_all
from tests.streams.stage import DEADLINE_S, Stage

pytestmark = pytest.mark.slow
INTERVAL_MS = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that aborts the transaction of a killed instance soon."""
    with BrokerProcess(tmp_path_factory.mktemp("ticks"), BROKER) as running:
        yield running


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(broker, tmp_path)
    made.make_topics(1)
    return made


def moments(stage: Stage) -> list[int]:
    """The ticks so far, in the order of the output."""
    return [int.from_bytes(value or b"", "big") for _, value in read_all(stage.bootstrap, stage.counts)]


def await_more(stage: Stage, count: int) -> None:
    """Until there are so many ticks more."""
    wanted = len(read_all(stage.bootstrap, stage.counts)) + count
    await_values(stage, lambda found: count_of(found) >= wanted)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_kills_and_failovers(stage: Stage, guarantee: str) -> None:
    """Exactly once: every moment since the first start, once and in order. At least once: none is missing."""
    more: dict[str, Any] = {"processing_guarantee": guarantee, "session_timeout_ms": 1_000}
    if guarantee == "exactly_once_v2":
        more["producer_transaction_timeout_ms"] = 1_000
    with ExitStack() as stack:

        def start(instance: str) -> BackgroundProcess:
            config = stage.config(instance, **more)
            return stack.enter_context(process_of("ticking", config, stage.counts, str(INTERVAL_MS)))

        first, second = start("a"), start("b")
        await_more(stage, 20)
        first.kill()
        await_more(stage, 20)
        third = start("a")
        await_more(stage, 10)
        second.kill()
        await_more(stage, 10)
        third.kill()  # all of them; the next makes up for the time without any
        last = start("b")
        await_more(stage, 20)
        assert last.stop(DEADLINE_S) == 0
    found = moments(stage)
    every = list(range(found[0], found[-1] + 1, INTERVAL_MS))
    assert len(every) > 80
    if guarantee == "exactly_once_v2":
        assert found == every
    else:
        assert sorted(set(found)) == every


def test_rebalances(stage: Stage) -> None:
    """Instances that come and go move the task; with exactly-once processing, each tick comes once."""
    topology = ticking(stage.counts, INTERVAL_MS)
    with stage.running(topology, "a", processing_guarantee="exactly_once_v2"):
        await_more(stage, 5)
        with stage.running(topology, "b", processing_guarantee="exactly_once_v2"):
            await_more(stage, 5)
    with stage.running(topology, "b", processing_guarantee="exactly_once_v2"):
        await_more(stage, 5)
    found = moments(stage)
    assert found == list(range(found[0], found[-1] + 1, INTERVAL_MS))
    assert read_all(stage.bootstrap, f"{stage.application_id}-ticks-ticks-repartition") == []
