"""Sources of ticks on a real broker: kills, failovers and rebalances; each tick once for the whole application."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.streams import LONG, STRING, Consumed, Produced, StreamsBuilder
from tests.jvm.process import BackgroundProcess
from tests.streams.apps.beyond import ticking
from tests.streams.apps.storm import BROKER
from tests.streams.beyond import await_values, count_of, process_of, write
from tests.streams.counting import read_all
from tests.streams.stage import DEADLINE_S, Stage
from tests.support.slow_service import respond

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
    once = guarantee == "exactly_once_v2"
    more: dict[str, Any] = {"processing_guarantee": guarantee, "session_timeout_ms": 1_000}
    if once:
        more["producer_transaction_timeout_ms"] = 1_000
    with ExitStack() as stack:

        def start(instance: str) -> BackgroundProcess:
            config = stage.config(instance, **more)
            return stack.enter_context(process_of("ticking", config, stage.counts, str(INTERVAL_MS)))

        first = start("a")
        if once:  # the other one takes over, whichever has the task
            second = start("b")
            await_more(stage, 20)
            first.kill()
            await_more(stage, 20)
            first = start("a")
            await_more(stage, 10)
            second.kill()
        await_more(stage, 10)
        first.kill()  # no instance is left; the next makes up for the time without any
        last = start("b")
        await_more(stage, 20)
        assert last.stop(DEADLINE_S) == 0
    found = moments(stage)
    every = list(range(found[0], found[-1] + 1, INTERVAL_MS))
    assert len(every) > 30
    if once:
        assert found == every
    else:
        assert sorted(set(found)) == every


def test_ticks_beside_other_records(broker: BrokerProcess, tmp_path: Path) -> None:
    """A sub-topology that also reads a topic of two partitions has two tasks, of which one makes the ticks."""
    stage = Stage(broker, tmp_path)
    stage.make_topics(2)
    builder = StreamsBuilder()
    records = builder.stream(stage.words, Consumed(STRING, STRING))
    ticks = builder.interval(INTERVAL_MS, name="ticks", catch_up="all").map_values(lambda moment: f"tick {moment}")
    ticks.merge(records).to(stage.counts, Produced(STRING, STRING))
    with stage.running(builder.build(), processing_guarantee="exactly_once_v2") as streams:
        assert len(streams.metadata_for_local_threads()[0].active_tasks) == 2
        values = [f"value-{number}" for number in range(100)]
        write(stage, values)
        await_more(stage, 110)
    found = [value.decode() for _, value in read_all(stage.bootstrap, stage.counts) if value is not None]
    assert sorted(each for each in found if each[:5] == "value") == sorted(values)
    made = [int(each.split()[1]) for each in found if each[:4] == "tick"]
    assert made == list(range(made[0], made[-1] + 1, INTERVAL_MS))


def test_ticks_that_come_while_others_are_awaited_do_not_delay_the_commit(stage: Stage) -> None:
    """A commit waits for the calls in flight; the ticks meanwhile wait for the commit."""

    async def report(moment: int) -> int:
        return await respond(moment, 0.1, 0.2)

    builder = StreamsBuilder()
    ticks = builder.interval(20, name="ticks", catch_up="all").map_values_async(report)
    ticks.to(stage.counts, Produced(STRING, LONG))
    with stage.running(builder.build(), processing_guarantee="exactly_once_v2"):
        await_more(stage, 50)
    found = moments(stage)
    assert found == list(range(found[0], found[-1] + 1, 20))


def test_a_reset_forgets_the_last_tick(stage: Stage) -> None:
    """The topic is deleted, and with it its committed offset: the next start makes up for nothing."""
    topology = ticking(stage.counts, INTERVAL_MS)
    with stage.running(topology):
        await_more(stage, 3)
    arguments = ["--application-id", stage.application_id, "--bootstrap-server", stage.bootstrap]
    result = CliRunner().invoke(main, ["streams", "reset", *arguments])
    assert result.exit_code == 0, result.output
    assert f"{stage.application_id}-ticks-ticks-repartition" in result.output
    before, began_ms = len(moments(stage)), time.time_ns() // 1_000_000
    with stage.running(topology):
        await_more(stage, 1)
    assert moments(stage)[before] > began_ms


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
