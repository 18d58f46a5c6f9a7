"""Fixtures of the connectors' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streams.connectors import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a PostgreSQL server, one for all tests of a worker; tables are a test's own."""
    reason = postgres_server.missing()
    if reason:
        pytest.skip(reason)
    with postgres_server.running() as conninfo:
        yield conninfo
