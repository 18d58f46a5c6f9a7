"""The connectors of HTTP by examples: documents by ETag, pages, statuses, batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.streams.connectors import http_source
from odradek.streams.connectors.errors import ConnectError, RetriableError
from odradek.streams.connectors.http_sink import HttpSink, RejectedRequestError
from odradek.streams.connectors.http_source import HttpSource
from odradek.streams.extras import MissingExtraError
from tests.streams.connectors.http_server import State, serving
from tests.streams.connectors.memory import log_of

RECORDS = [*log_of(("a", 0), [0, 1, 2], lambda offset: b"x"), *log_of(("a", 1), [7], lambda offset: b"y")]


@pytest.fixture
def server() -> Iterator[State]:
    with serving() as state:
        yield state


def test_a_document_is_a_record_each_time_its_etag_changes(server: State) -> None:
    server.document = b"one"
    source = HttpSource(f"{server.url}/document", "t", interval_s=0)
    (partition,) = source.partitions()
    source.open(partition, None)
    (first,) = source.poll(10, 0)
    assert (first.key, first.value, first.source_offset) == (f"{server.url}/document", b"one", {"etag": '"0"'})
    assert source.poll(10, 0) == ()
    server.document, server.etag = b"two", '"1"'
    (second,) = source.poll(10, 0)
    assert second.value == b"two"
    source.close()
    source.open(partition, first.source_offset)
    assert [each.value for each in source.poll(10, 0)] == [b"two"]
    source.close()


def test_a_url_without_news_waits_for_its_interval_and_others_do_not(server: State) -> None:
    now = [0.0]
    server.items = [{"id": 1}]
    urls = [f"{server.url}/pages?a", f"{server.url}/document"]
    source = HttpSource(urls[0], "t", cursor="after", interval_s=5, clock=lambda: now[0])
    source.open({"url": urls[0]}, None)
    assert len(source.poll(10, 0)) == 1
    assert source.poll(10, 0) == ()
    count = len(server.requests)
    now[0] = 4.9
    assert source.poll(10, 0) == ()
    assert len(server.requests) == count
    server.items.append({"id": 2})
    now[0] = 5
    assert [each.value for each in source.poll(10, 0)] == [{"id": 2}]
    source.close()


def test_statuses_of_a_source(server: State) -> None:
    source = HttpSource(f"{server.url}/document", "t")
    source.open({"url": f"{server.url}/document"}, None)
    for status, kind in [(500, RetriableError), (429, RetriableError), (404, ConnectError)]:
        server.statuses = [status]
        with pytest.raises(kind, match=f"returned status {status}"):
            source.poll(10, 0)
    source.close()
    pages = HttpSource(f"{server.url}/document", "t", cursor="after")
    pages.open({"url": f"{server.url}/document"}, None)
    with pytest.raises(ConnectError, match="sends no page of items"):
        pages.poll(10, 0)
    pages.close()
    away = HttpSource("http://127.0.0.1:1/", "t")
    away.open({"url": "http://127.0.0.1:1/"}, None)
    with pytest.raises(RetriableError, match=r"GET http://127\.0\.0\.1:1/ failed"):
        away.poll(10, 0)
    away.close()


def test_batches_are_of_one_partition_and_have_a_key(server: State) -> None:
    sink = HttpSink(server.url, batch_records=2)
    assert sink.open("g", [("a", 0), ("a", 1)]) == {}
    sink.put(RECORDS)
    assert [key for key, _ in server.posts] == ["g/a/0/0-1", "g/a/0/2-2", "g/a/1/7-7"]
    assert server.posts[2][1] == [
        {"topic": "a", "partition": 1, "offset": 7, "timestamp": 1007, "key": "7", "value": "y"}
    ]
    for status, kind in [(503, RetriableError), (422, RejectedRequestError), (401, ConnectError)]:
        server.statuses = [status]
        with pytest.raises(kind, match=f"status {status}"):
            sink.put(RECORDS)
    sink.close()


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr("odradek.streams.extras.importlib.import_module", missing)
    with pytest.raises(MissingExtraError, match=r"HttpSource needs a package .* install odradek with its extra 'http'"):
        http_source.HttpSource("http://127.0.0.1:1", "t")
