"""Fixtures for all tests. `odradek_broker` is not here: it comes from the pytest plugin that users get too."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pytest_asyncio import is_async_test

from tests import parts, searches, selection, temporary_folders
from tests.first_import import after_the_first
from tests.jvm.kafka import Kafka, running_kafka
from tests.scheduling import arrange
from tests.support.connections import closing_connections
from tests.support.ignored_signals import handle_ignored_signals

if TYPE_CHECKING:
    from tests.security.authorization_oracle import RunningPair

searches.load()
temporary_folders.use_memory()
handle_ignored_signals()
# pytest-asyncio asks for the loop before its first test. Where none was ever set, Python makes one, which stays open.
asyncio.set_event_loop(None)
gc.disable()  # until all tests are collected: what is imported and collected stays


def pytest_addoption(parser: pytest.Parser) -> None:
    parts.add_option(parser)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which `-m` can select no test, and those of other parts; None leaves the decision to other
    plugins.
    """
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    marks, part = config.option.markexpr, config.option.part
    is_here = selection.can_select(marks, collection_path) and (
        not part or parts.includes(part, marks, collection_path)
    )
    return None if is_here else True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Workers of pytest-xdist import the same files, and wait until one of them has compiled these."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with after_the_first():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before pytest-xdist's hook, which reads the marks of the groups, and before the deselection by marks."""
    selection.check(items)
    arrange(items)
    if searches.FACTOR:
        items[:] = [item for item in items if searches.is_search(item)]
        searches.enlarge(items)
    else:
        searches.shorten(items)


def pytest_runtest_setup() -> None:
    searches.seed_random()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The present objects stay to the end; the collector need not traverse them again and again, as in a broker."""
    if getattr(session.config.option, "loadgroup", False) and session.items:
        assert "@" in session.items[0].nodeid, "pytest-xdist ignores the groups with this pytest"
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture
async def closed_connections() -> AsyncIterator[None]:
    """Closes the connections that the test leaves open."""
    async with closing_connections():
        yield


@pytest.fixture(autouse=True)
def closed_connections_of_asynchronous_tests(request: pytest.FixtureRequest) -> None:
    """`closed_connections` for each test that has a loop; the others would start one for it alone."""
    if is_async_test(request.node):
        request.getfixturevalue("closed_connections")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Apache Kafka 3.9.2 with its ZooKeeper, one for the whole run: tests use topics and groups of their own."""
    with running_kafka(tmp_path_factory.mktemp("apache-kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it: one of each for all processes of a run."""
    from tests.release.shared import shared_release  # few tests need its modules

    return shared_release(tmp_path_factory, is_worker=hasattr(request.config, "workerinput"))


@pytest.fixture(scope="session")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPair]:
    """Apache Kafka 3.9.2 and Odradek, both with an authorizer."""
    from tests.security.authorization_oracle import running_authorized_pair  # few tests need its modules

    with running_authorized_pair(tmp_path_factory.mktemp("authorized")) as pair:
        yield pair
