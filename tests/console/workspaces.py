"""Workspaces without a cluster: a history that the test fills, and records that it gives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from starlette.testclient import TestClient

from odradek.admin.client import AdminClient
from odradek.console.history import ClusterHistory
from odradek.console.messages import RecordBrowser, RecordPage, RecordQuery, filter_of
from odradek.console.web.application import Connect, application
from odradek.console.web.settings import ConsoleSettings
from odradek.records.consumed import ConsumedRecord

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


class GivenRecords:
    """The records of a topic, in place of a cluster's."""

    def __init__(self, records: Sequence[ConsumedRecord]) -> None:
        self.records = tuple(records)
        self.queries: list[RecordQuery] = []

    def browse(self, client: AdminClient, query: RecordQuery) -> RecordPage:
        self.queries.append(query)
        accepts = filter_of(query)
        found = tuple(each for each in self.records if accepts(each))
        return RecordPage(found[: query.limit], len(self.records), {0: 7}, len(found) <= query.limit)

    def record_at(
        self, client: AdminClient, place: tuple[str, int], offset: int, *, raw: bool = False
    ) -> ConsumedRecord | None:
        return next((each for each in self.records if (each.partition, each.offset) == (place[1], offset)), None)

    def close(self) -> None:
        pass


class GivenWorkspace:
    """A workspace whose client answers nothing; `closed` counts."""

    def __init__(self, history: ClusterHistory | None = None, records: Sequence[ConsumedRecord] = ()) -> None:
        self.history = history if history is not None else ClusterHistory()
        self.given = GivenRecords(records)
        self.browser = cast("RecordBrowser", self.given)
        self.closed = 0
        self.error: Exception | None = None

    @contextmanager
    def client(self) -> Iterator[AdminClient]:
        if self.error is not None:
            raise self.error
        yield cast("AdminClient", _NoCluster())

    def refresh(self) -> None:
        pass

    def ensure(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class _NoCluster:
    def metadata(self, topics: object) -> None:
        """A login is tried with this request."""

    def __getattr__(self, name: str) -> object:
        def fail(*_: object, **__: object) -> None:
            raise ConnectionError("there is no cluster")

        return fail


def browser_of(workspace: GivenWorkspace, connect: Connect | None = None, **settings: Any) -> TestClient:
    """A client of the console's pages, which follows redirects and keeps cookies."""
    app = application(
        ConsoleSettings("127.0.0.1:1", **settings), connect if connect is not None else lambda *_: workspace
    )
    return TestClient(app, base_url="http://127.0.0.1:8080")


def token_of(client: TestClient, path: str) -> str:
    """The token of the session, from a form of a page."""
    found = _TOKEN.search(client.get(path).text)
    assert found is not None, f"{path} has no form"
    return found[1]
