"""Searches of hypothesis: always the same ones in the tests, others with each seed in `make explore`."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from pathlib import Path

import kazoo.protocol.connection
import pytest

from tests import explore, searches

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
DRAW = """
from tests import searches
searches.load()
import {module}
from hypothesis import given, settings, strategies as st
drawn = []
@settings(max_examples=30)
@given(st.text(), st.integers(), st.floats(allow_nan=False), st.sampled_from(sorted({{"a", "b", "c"}})))
def test(a, b, c, d):
    drawn.append((a, b, c, d))
test()
print(drawn)
"""
NUMBERS = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

class Machine(RuleBasedStateMachine):
    @rule()
    def step(self): pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50)

@given(st.integers())
def test_default(number): pass

@settings(max_examples=5)
@given(st.integers())
def test_few(number): pass

@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers())
def test_slow(number): pass
"""
PLANTED = """
from hypothesis import given, strategies as st


@given(number=st.integers(0, 100_000))
def test_planted(number: int) -> None:
    assert number != {wrong}


def test_that_draws_nothing() -> None:
    raise AssertionError("no search")
"""


def drawn(module: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    command = [sys.executable, "-c", DRAW.format(module=module)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_search_does_not_depend_on_the_modules_that_are_imported() -> None:
    assert drawn("json") == drawn("odradek.broker.group.coordinator")


@pytest.fixture
def planted() -> Path:
    """A test file in a folder with the conftest of the tests; its failure is planted."""
    return ROOT / "tests" / f"test_planted_{os.getpid()}.py"


@pytest.mark.slow
def test_exploring_finds_a_planted_failure_and_prints_how_to_replay_it(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(planted.relative_to(ROOT))
    try:
        planted.write_text(PLANTED.format(wrong="number or number < 50"))
        assert explore.main(["--minutes", "5", "--seed", "3", "--factor", "2", name]) == 1
    finally:
        planted.unlink()
    printed = capsys.readouterr().out
    assert "number=50," in printed, "the smallest failing example"
    assert f"replay: python -m tests explore --seed 3 --rounds 1 --factor 2 {name}::test_planted" in printed


@pytest.mark.slow
def test_exploring_tests_that_hold_is_clean(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        planted.write_text(PLANTED.format(wrong="-1"))
        options = ["--seed", "3", "--rounds", "2", "--factor", "1", str(planted.relative_to(ROOT))]
        assert explore.main(options) == 0
    finally:
        planted.unlink()
    assert "seed 3: clean\nseed 4: clean" in capsys.readouterr().out


@pytest.mark.slow
def test_exploring_ends_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert explore.main(["--minutes", "0.01", "--seed", "3"]) == 0
    assert "seed 3: stopped, the time is over" in capsys.readouterr().out


def test_a_quick_search_draws_a_share_of_its_examples(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers = slow")
    items, _ = pytester.inline_genitems(pytester.makepyfile(NUMBERS))
    searches.shorten(items)
    drawn = {owner: own.max_examples for owner, _, own in searches._settings_of(items)}
    assert sorted(drawn.values()) == [5, 20, 40, 60]


def test_threads_of_clients_do_not_draw_from_the_numbers_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kazoo's thread draws a number before each ping: Hypothesis would report a strategy that uses `random`."""
    connection = kazoo.protocol.connection
    monkeypatch.setattr(connection, "random", random)
    searches.separate_clients()
    before = random.getstate()
    connection.random.randint(1, 40)
    assert random.getstate() == before
    names = ("kafka.cluster", "kafka.net.manager", "aiokafka.client", "aiokafka.conn", "kazoo.retry")
    clients = [importlib.import_module(name) for name in names]
    searches.seed_random()
    assert [client.__name__ for client in clients if client.random is random] == []
