"""docs/streams.md: its code runs, and its tables match the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams import config, examples
from tests.streams import counting, guide
from tests.streams.forced_client import FORCED

TEXT: Final = guide.PAGE.read_text()
SCENARIOS: Final = guide.scenarios(TEXT)
TOPICS: Final = ("text", "counts", "lines", "loud-lines", "numbers", "parsed", "query-words", "in", "out")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("guide"), counting.BROKER) as running:
        counting.make_topics(running.bootstrap, dict.fromkeys(TOPICS, 2))
        yield running


def test_there_is_code_to_run() -> None:
    assert len(SCENARIOS) >= 12
    assert sum(len(scenario.blocks) for scenario in SCENARIOS) == TEXT.count("```python")


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.needs_broker], ids=lambda each: each.title)
def test_code_without_a_broker_runs(scenario: guide.Scenario) -> None:
    scenario.run("none")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.needs_broker], ids=lambda each: each.title)
def test_code_with_a_broker_runs(
    scenario: guide.Scenario, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row._replace(default=str(tmp_path)) if row.name == "state.dir" else row for row in config.TABLE]
    monkeypatch.setattr(config, "TABLE", tuple(rows))  # state is not kept where other applications keep theirs
    names: dict[str, Any] = scenario.run(broker.bootstrap)
    assert names["streams"].state.name in ("NOT_RUNNING", "PENDING_SHUTDOWN")


@pytest.mark.skipif(FORCED is not None, reason="the table has the default of client.implementation")
def test_the_table_is_that_of_the_code() -> None:
    assert guide.with_table(TEXT) == TEXT, "python -m tests.streams.guide"


def test_the_picture_is_that_of_the_code() -> None:
    assert guide.PICTURE.read_text() == guide.picture(), "python -m tests.streams.guide"


def test_its_links_have_targets() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, anchor = target.partition("#")
        page = guide.DOCS / path if path else guide.PAGE
        assert page.exists(), target
        titles = re.findall(r"^##+ (.*)$", page.read_text(), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, target


def test_all_examples_are_named() -> None:
    there = {path.stem for path in Path(str(examples.__file__)).parent.glob("*.py")} - {"__init__", "running"}
    assert there == set(re.findall(r"odradek\.streams\.examples\.(\w+) {2,}", TEXT))
    assert there == set(re.findall(r"^    (\w+) {2,}", str(examples.__doc__), re.MULTILINE))
