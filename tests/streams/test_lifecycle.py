"""How a program runs a client: run(), context managers of both kinds, and programs that end without a close."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams.errors import ProcessingError
from odradek.streams.running.stop_signals import STOPPING, StopSignals
from odradek.streams.runtime import KafkaStreams, State
from tests.jvm.process import BackgroundProcess
from tests.streams.counting import read_all
from tests.streams.stage import DEADLINE_S, Forward, Stage, passing
from tests.support.eventually import eventually


@pytest.fixture
def stage(streams_broker: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(streams_broker, tmp_path)
    made.make_topics(1)
    return made


@contextmanager
def program(stage: Stage, how: str) -> Iterator[BackgroundProcess]:
    arguments = (how, json.dumps(stage.config()), stage.words, stage.counts)
    process = BackgroundProcess([sys.executable, "-m", "tests.streams.apps.life", *arguments])
    try:
        yield process
    finally:
        process.kill()


def values(stage: Stage) -> list[bytes | None]:
    return [value for _, value in read_all(stage.bootstrap, stage.counts)]


@pytest.mark.slow
@pytest.mark.parametrize("number", STOPPING)
def test_a_program_runs_until_it_is_stopped_and_commits(stage: Stage, number: signal.Signals) -> None:
    with program(stage, "run") as process:
        process.stdout.wait_for("RUNNING", DEADLINE_S)
        stage.write(["a"])
        eventually(lambda: values(stage) == [b"a"])
        os.kill(process.pid, number)
        assert process.stdout.wait_for_end(DEADLINE_S)[-1] == "NOT_RUNNING"
        assert process.stop() == 0, process.stderr.lines()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "asyncio"])
def test_a_program_raises_what_failed(stage: Stage, how: str) -> None:
    stage.write(["bad"])
    with program(stage, how) as process:
        assert process.stdout.wait_for_end(DEADLINE_S)[-1] == "ERROR"
        process.stderr.wait_for_end(DEADLINE_S)
        assert process.stop() == 1
        assert "ProcessingError" in "".join(process.stderr.lines())


@pytest.mark.slow
def test_a_program_that_ends_without_a_close_closes_with_a_warning(stage: Stage) -> None:
    with program(stage, "start") as process:
        assert process.stdout.wait_for_end(DEADLINE_S)[-1] == "NOT_RUNNING"
        process.stderr.wait_for_end(DEADLINE_S)
        assert process.stop() == 7
        assert "KafkaStreams.run() keeps a program running until it is stopped" in "".join(process.stderr.lines())


@pytest.mark.slow
def test_run_in_this_process(stage: Stage) -> None:
    before = [signal.getsignal(each) for each in STOPPING]
    started: list[State] = []
    streams = KafkaStreams(passing(Forward, stage=stage), stage.config())
    assert streams.run(0.01, on_start=lambda: started.append(streams.state)) == 0
    assert streams.state is State.NOT_RUNNING
    assert started == [State.REBALANCING]
    again = KafkaStreams(passing(Forward, stage=stage), stage.config())
    with again:
        closer = threading.Timer(0.1, again.close)
        closer.start()
        assert again.run() == 0
        closer.join()
    assert [signal.getsignal(each) for each in STOPPING] == before


@pytest.mark.slow
def test_a_client_on_an_event_loop(stage: Stage) -> None:
    async def closed() -> KafkaStreams:
        async with KafkaStreams(passing(Forward, stage=stage), stage.config()) as streams:
            waiting = asyncio.create_task(streams.failed())
            await asyncio.to_thread(streams.wait_until, State.RUNNING, DEADLINE_S)
            assert not waiting.done()
        await waiting
        await streams.failed()
        return streams

    assert asyncio.run(closed()).state is State.NOT_RUNNING

    class Picky(Forward):
        def process(self, record: object) -> None:
            raise ZeroDivisionError("on purpose")

    async def failed() -> None:
        async with KafkaStreams(passing(Picky, stage=stage), stage.config()) as streams:
            await streams.failed()

    stage.write(["bad"])
    with pytest.raises(ProcessingError, match="on purpose"):
        asyncio.run(failed())


@pytest.mark.slow
def test_run_raises_what_failed(stage: Stage) -> None:
    class Unwilling(Forward):
        def init(self, context: object) -> None:
            raise ZeroDivisionError("on purpose")

    streams = KafkaStreams(passing(Unwilling, stage=stage), stage.config())
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        streams.run()
    assert caught.value is streams.failure
    assert streams.state is State.ERROR


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    notified: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals(lambda: notified.append(1)) as signals:
        other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
        other.start()
        signals.wait(lambda: False, 30.0)
        other.join()
        assert signals.received is signal.SIGTERM
        assert notified == [1]
        assert signal.getsignal(signal.SIGTERM) is before  # a second one ends the process as usual


def test_a_wait_ends_at_its_time_or_with_the_client() -> None:
    with StopSignals(lambda: None) as signals:
        signals.wait(lambda: False, 0.0)
        ended: list[int] = []
        timer = threading.Timer(0.05, lambda: (ended.append(1), signals.wake()))
        timer.start()
        signals.wait(lambda: bool(ended), 30.0)
        assert ended
        timer.join()
    signals.wake()  # has no effect any more


def test_signals_are_left_alone_in_another_thread() -> None:
    before = [signal.getsignal(each) for each in STOPPING]
    seen: list[object] = []

    def elsewhere() -> None:
        with StopSignals(lambda: None) as signals:
            seen.extend(signal.getsignal(each) for each in STOPPING)
            signals.wait(lambda: True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == before
