"""Fixtures for all tests. `odradek_broker` is not here: it comes from the pytest plugin that users get too."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from xdist.remote import Producer

from tests import searches
from tests.jvm.kafka import Kafka, running_kafka
from tests.scheduling import Together, place

searches.load()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.path))
    if searches.FACTOR:
        items[:] = [item for item in items if searches.is_search(item)]
        searches.enlarge(items)


def pytest_runtest_setup() -> None:
    searches.seed_random()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    """Put files that share an oracle on one worker, where xdist distributes by files."""
    return Together(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """The present objects stay to the end; the collector need not traverse them again and again, as in a broker."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Apache Kafka 3.9.2 with its ZooKeeper, one for the whole run: tests use topics and groups of their own."""
    with running_kafka(tmp_path_factory.mktemp("apache-kafka")) as running:
        yield running
