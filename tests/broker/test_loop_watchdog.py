"""A broker whose event loop stands still: it gives up its session, and continues with another one.

The tests block the loop themselves, with a condition that only another thread can fulfill.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from odradek.broker.runtime import loop_watchdog
from odradek.broker.runtime.loop_watchdog import LoopWatchdog
from odradek.broker.runtime.timers import LoopTimers, SystemClock
from odradek.protocol import messages as m
from tests.broker.wire import Client, running_broker
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually, eventually_async

TIMEOUT_S = 60
RUNS_AGAIN = "event loop runs again"


class Watched:
    """A watchdog of the running loop; `given_up` counts its calls."""

    def __init__(self, timeout_ms: int, fails: bool = False) -> None:
        self.given_up = 0
        self.happened = threading.Event()
        self._fails = fails
        clock = SystemClock()
        self.watchdog = LoopWatchdog(clock, LoopTimers(clock, asyncio.get_running_loop()), timeout_ms, self._give_up)
        self.watchdog.start()

    def _give_up(self) -> None:
        self.given_up += 1
        self.happened.set()
        if self._fails:
            raise OSError("no server")

    def block(self) -> bool:
        """Block the loop until the watchdog acts."""
        self.happened.clear()
        return self.happened.wait(TIMEOUT_S)


async def test_each_stall_is_noticed_once(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(timeout_ms=200)
    for number in (1, 2):
        assert watched.block()
        assert watched.given_up == number
        again = [RUNS_AGAIN] * number

        async def seen() -> list[str]:
            return [text for text in await _messages(caplog) if text == RUNS_AGAIN]

        await eventually_async(seen, again.__eq__)
    assert (await _messages(caplog)).count("event loop stalled") == 2
    watched.watchdog.close()


async def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines without their values."""
    return [record.message.partition(" stalled_ms")[0].partition(",")[0] for record in caplog.records]


async def test_a_loop_that_runs_is_left_alone() -> None:
    watched = Watched(timeout_ms=20_000)
    await asyncio.to_thread(lambda: None)
    assert not watched.given_up
    watched.watchdog.close()


async def test_a_failure_to_give_up_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(timeout_ms=200, fails=True)
    assert watched.block()
    await eventually_async(lambda: _messages(caplog), lambda found: RUNS_AGAIN in found)
    assert watched.block()
    watched.watchdog.close()


class SteppedClock:
    """A clock that the test sets; each reading of the thread is counted."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


class NoTimers:
    """Timers that never fire: the loop stands still."""

    class Timer:
        def cancel(self) -> None:
            """Nothing to cancel."""

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> NoTimers.Timer:
        return NoTimers.Timer()

    after = at


class Steps:
    """The pauses of the watchdog's thread: each moves the clock, and the last one ends the thread."""

    def __init__(self, clock: SteppedClock, steps_ms: list[int]) -> None:
        self._clock = clock
        self._steps = iter(steps_ms)

    def wait(self, _: float) -> bool:
        step = next(self._steps, None)
        self._clock.ms += step or 0
        return step is None

    def set(self) -> None:
        """The thread has ended."""


@pytest.mark.parametrize(
    ("steps_ms", "expected"),
    [
        ([100] * 12, 1),
        ([100] * 10, 0),
        ([100, 5000, 100, 100], 0),  # the process was stopped; the metadata store has noticed that itself
        ([100, 5000, *[100] * 12], 1),
    ],
)
def test_time_in_which_the_process_was_stopped_does_not_count(steps_ms: list[int], expected: int) -> None:
    given_up: list[int] = []
    clock = SteppedClock()
    watchdog = LoopWatchdog(clock, NoTimers(), 1000, lambda: given_up.append(clock.ms))
    watchdog._closing = Steps(clock, steps_ms)  # type: ignore[assignment]
    watchdog.start()
    watchdog._thread.join(TIMEOUT_S)
    assert len(given_up) == expected
    assert loop_watchdog.CHECKS_IN_A_TIMEOUT == 10


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.jvm
async def test_a_stalled_broker_leaves_the_cluster_and_comes_back(
    tmp_path: Path, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    witness = KazooClient(zookeeper.connect)
    await asyncio.to_thread(witness.start, TIMEOUT_S)
    properties = {
        "zookeeper.connect": zookeeper.connect,
        "zookeeper.session.timeout.ms": "18000",
        "odradek.event.loop.stall.timeout.ms": "1000",
    }
    async with running_broker(tmp_path / "data", properties) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        registered = witness.exists("/brokers/ids/0").czxid
        # this blocks the loop of the broker: its session would last for 18 s more
        eventually(lambda: witness.exists("/brokers/ids/0"), lambda stat: stat is None, timeout_s=15)
        assert "event loop stalled, ending the metadata store session" in caplog.text

        async def again() -> int:
            stat = await asyncio.to_thread(witness.exists, "/brokers/ids/0")
            return stat.czxid if stat is not None else 0

        await eventually_async(again, lambda czxid: czxid > registered)
        assert "metadata store session expired, opening another" in caplog.text

        async def leader() -> int:
            answer = await client.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]), 7)
            return int(answer.topics[0].partitions[0].leader_id)

        await eventually_async(leader, lambda leader_id: leader_id == 0)
        client.close()
    await asyncio.to_thread(witness.stop)
    await asyncio.to_thread(witness.close)
