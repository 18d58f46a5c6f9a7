"""The threshold of Python's garbage collector while applications run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams.running.garbage_collection import YoungObjectThreshold
from odradek.streams.runtime import KafkaStreams, State
from tests.streams.stage import DEADLINE_S, Forward, Stage, passing


@pytest.fixture(autouse=True)
def own_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield
    gc.set_threshold(*before)


def test_the_highest_of_all_applications_holds_until_the_last_has_ended() -> None:
    threshold = YoungObjectThreshold()
    threshold.hold(10_000)
    assert gc.get_threshold() == (10_000, 11, 12)
    threshold.hold(20_000)
    assert gc.get_threshold() == (20_000, 11, 12)
    threshold.release(20_000)
    assert gc.get_threshold() == (10_000, 11, 12)
    threshold.release(10_000)
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("own", [(0, 11, 12), (50_000, 11, 12)])
def test_a_program_that_collects_later_or_never_keeps_its_threshold(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    threshold = YoungObjectThreshold()
    threshold.hold(10_000)
    assert gc.get_threshold() == own
    threshold.release(10_000)
    assert gc.get_threshold() == own


def test_a_threshold_that_the_program_sets_meanwhile_stays() -> None:
    threshold = YoungObjectThreshold()
    threshold.hold(10_000)
    gc.set_threshold(5_000, 5, 5)
    threshold.hold(20_000)
    threshold.release(10_000)
    threshold.release(20_000)
    assert gc.get_threshold() == (5_000, 5, 5)


@pytest.mark.slow
def test_a_running_client_raises_the_threshold_as_configured(streams_broker: BrokerProcess, tmp_path: Path) -> None:
    stage = Stage(streams_broker, tmp_path)
    stage.make_topics(1)
    found = {}
    for objects in (30_000, 0):
        config = stage.config() | {"gc.young.objects": objects}
        with KafkaStreams(passing(Forward, stage=stage), config) as streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            found[objects] = gc.get_threshold()
        assert gc.get_threshold() == (700, 11, 12)
    assert found == {30_000: (30_000, 11, 12), 0: (700, 11, 12)}
