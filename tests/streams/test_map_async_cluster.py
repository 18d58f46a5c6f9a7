"""Asynchronous operators on a real broker: kills, rebalances, limits and pauses while calls are in flight."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams import STRING, Consumed, KafkaStreams, Produced, Response, StreamsBuilder, Topology
from odradek.streams.event_loop import event_loop
from tests.streams.apps.beyond import awaiting
from tests.streams.beyond import await_values, count_of, expected, process_of, write
from tests.streams.counting import read_all
from tests.streams.stage import DEADLINE_S, Stage
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(streams_broker: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(streams_broker, tmp_path)
    made.make_topics()
    return made


def some_values(count: int) -> list[str]:
    return [f"value-{number}" for number in range(count)]


def in_flight(streams: KafkaStreams) -> int:
    return sum(thread.tasks.calls.pending for thread in streams.stream_threads if thread.tasks is not None)


def buffered(streams: KafkaStreams) -> int:
    return sum(thread.tasks.buffered for thread in streams.stream_threads if thread.tasks is not None)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_kills_in_mid_flight(stage: Stage, guarantee: str) -> None:
    """Exactly once: each input once, in order. At least once: none is lost, and each run is in order."""
    once = guarantee == "exactly_once_v2"
    chance, values = random.Random(3), some_values(3_000)
    config = stage.config(processing_guarantee=guarantee, session_timeout_ms=1_000)
    write(stage, values)
    for _ in range(2 if once else 1):
        before = len(read_all(stage.bootstrap, stage.counts))
        moment = before + chance.randrange(1, 800)
        with process_of("awaiting", config, stage.words, stage.counts):
            await_values(stage, lambda found: count_of(found) >= moment)  # noqa: B023
    with process_of("awaiting", config, stage.words, stage.counts) as process:
        wanted = expected(values)
        found = await_values(stage, lambda found: all(set(found.get(n, ())) >= set(wanted[n]) for n in wanted))
        assert process.stop(DEADLINE_S) == 0
    found = await_values(stage, lambda again: count_of(again) >= count_of(found))
    if once:
        assert found == wanted
    else:
        assert count_of(found) >= len(values)
        assert {number: list(dict.fromkeys(each)) for number, each in found.items()} == wanted
    assert len(read_all(stage.bootstrap, stage.counts)) == count_of(found)


def test_rebalances_while_calls_are_in_flight(stage: Stage) -> None:
    """Exactly once: an instance comes and goes, and no record is lost, doubled or out of order."""
    values = some_values(3_000)
    topology = awaiting(stage.words, stage.counts)
    with ExitStack() as stack:
        first = stack.enter_context(stage.running(topology, processing_guarantee="exactly_once_v2"))
        write(stage, values)
        eventually(lambda: in_flight(first) > 50)
        with stage.running(topology, "b", processing_guarantee="exactly_once_v2") as second:
            # A commit waits until no call of its instance is in flight.
            eventually(lambda: in_flight(second) > 50 and in_flight(first) > 0)
        found = await_values(stage, lambda found: count_of(found) >= len(values))
    assert found == expected(values)
    assert len(read_all(stage.bootstrap, stage.counts)) == len(values)


def await_first_commit(streams: KafkaStreams) -> None:
    """The first commit is due at once, and a commit that is due stops the intake; the next is a minute away."""
    loop = streams.stream_threads[0].run_loop
    assert loop is not None
    eventually(lambda: loop.executor.last_commit > 0)


class Gate:
    """A service that responds when the test opens it; with `stuck`, never to that value."""

    def __init__(self, stuck: str = "") -> None:
        self.asked: list[str] = []
        self._open = asyncio.Event()
        self._stuck = stuck

    async def __call__(self, value: str) -> str:
        self.asked.append(value)
        await (asyncio.Event() if value == self._stuck else self._open).wait()
        return value.upper()

    def open(self) -> None:
        event_loop().call(self._open.set)

    def topology(self, stage: Stage, **more: Any) -> Topology:
        builder = StreamsBuilder()
        mapped = builder.stream(stage.words, Consumed(STRING, STRING)).map_values_async(self, **more)
        mapped.to(stage.counts, Produced(STRING, STRING))
        return builder.build()


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_slow_service_stops_the_intake(stage: Stage, partitions: int) -> None:
    """A bounded number of records is in memory, and the thread stays in its group.

    Where all partitions have records, the thread reads none; where one has none, it goes on reading it and pauses the
    other.
    """
    gate, values = Gate(), some_values(2_000 * partitions)
    limits: dict[str, Any] = {
        "commit_interval_ms": 60_000,
        "buffered_records_per_partition": 50,
        "max_poll_records": 100,
        "max_poll_interval_ms": 1_000,
        "session_timeout_ms": 1_000,
    }
    with stage.running(gate.topology(stage, concurrency=10, timeout=100_000), **limits) as streams:
        await_first_commit(streams)
        write(stage, values, partitions)
        eventually(lambda: len(gate.asked) == 10 * partitions)
        thread = streams.stream_threads[0]
        assert thread.run_loop is not None
        loop, generation = thread.run_loop, thread.generation
        if partitions == 1:
            eventually(lambda: loop._reader.is_paused((stage.words, 0)))
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 2 * limits["max_poll_interval_ms"] / 1000)
        assert buffered(streams) <= partitions * (4 * 50 + 100)
        assert (len(gate.asked), in_flight(streams)) == (10 * partitions, 10 * partitions)
        assert thread.generation == generation
        gate.open()
        found = await_values(stage, lambda found: count_of(found) >= len(values))
        assert found == expected(values, partitions)
        eventually(lambda: not loop._reader.is_paused((stage.words, 0)))
        assert thread.generation == generation


def test_a_call_that_hangs_hits_its_timeout(stage: Stage) -> None:
    """Its record goes to the handler, and the others, which were waiting behind it, are forwarded and committed."""
    gate, failed = Gate("value-3"), []

    def handler(context: Any, record: Any, error: Exception) -> Response:
        failed.append((context.node, context.source.partition, context.source.offset, record.value, type(error)))
        return Response.CONTINUE

    values = some_values(50)
    gate.open()
    topology = gate.topology(stage, timeout=500, name="hangs")
    more: dict[str, Any] = {"processing_exception_handler": handler, "processing_guarantee": "exactly_once_v2"}
    with stage.running(topology, **more):
        write(stage, values)
        wanted = expected(values)
        wanted[1].remove(b"VALUE-3")
        assert await_values(stage, lambda found: count_of(found) >= 49) == wanted
    assert failed == [("hangs", 1, 1, "value-3", TimeoutError)]


def test_a_rebalance_does_not_wait_for_calls_without_end(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """After half of max.poll.interval.ms the thread gives its tasks up; their records are read again, each once."""
    gate, values = Gate(), some_values(200)
    more: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "producer_transaction_timeout_ms": 300_000}
    short = {**more, "max_poll_interval_ms": 1_000, "session_timeout_ms": 1_000}
    topology = gate.topology(stage, timeout=100_000)
    with stage.running(topology, **short) as first:
        write(stage, values)
        eventually(lambda: in_flight(first) > 0)
        with stage.running(topology, "b", **more) as second:
            eventually(lambda: in_flight(first) > 0 and in_flight(second) > 0)
            gate.open()
            found = await_values(stage, lambda found: count_of(found) >= len(values))
    assert found == expected(values)
    assert len(read_all(stage.bootstrap, stage.counts)) == len(values)
    assert "did not end in time for a commit" in caplog.text


def test_calls_in_flight_are_completed_when_the_client_pauses(stage: Stage) -> None:
    gate = Gate()
    with stage.running(gate.topology(stage, concurrency=10, timeout=100_000), commit_interval_ms=60_000) as streams:
        await_first_commit(streams)
        write(stage, some_values(30))
        eventually(lambda: len(gate.asked) == 20)
        streams.pause()
        eventually(lambda: streams.stream_threads[0].idles)
        gate.open()
        paused = await_values(stage, lambda found: count_of(found) >= 20)
        assert count_of(paused) == len(gate.asked) == 20
        streams.resume()
        await_values(stage, lambda found: count_of(found) >= 30)
    assert len(read_all(stage.bootstrap, stage.counts)) == 30


def test_a_close_waits_for_calls_in_flight(stage: Stage) -> None:
    """What was processed is committed: the next start repeats nothing."""
    gate = Gate()
    with stage.running(gate.topology(stage, timeout=100_000), commit_interval_ms=60_000) as streams:
        await_first_commit(streams)
        write(stage, some_values(30))
        eventually(lambda: len(gate.asked) == 30)
        closer = threading.Thread(target=streams.close)
        closer.start()
        eventually(lambda: streams.state.name == "PENDING_SHUTDOWN")
        gate.open()
        closer.join(DEADLINE_S)
    assert len(read_all(stage.bootstrap, stage.counts)) == 30
    with stage.running(gate.topology(stage)) as streams:
        write(stage, ["last"] * 2)
        await_values(stage, lambda found: count_of(found) >= 32)
    assert len(gate.asked) == 32
