"""HTTP source: polls a URL and writes what is new.

Documents: a URL whose response is one record each time its ETag changes; the offset is {"etag": …}.
Pages: a URL with a cursor, {"items": [{"id": 1}, …], "next": "b"}: each item is a record, and the offset is the cursor
of a page and how many of its items were written. A page without a next cursor is the last one; it is requested again,
and may have more items then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.streams.connectors.errors import ConnectError, RetriableError
from odradek.streams.connectors.interface import Source, SourceOffset, SourcePartition, SourceRecord
from odradek.streams.extras import extra_module

_NOT_MODIFIED: Final = 304


class HttpSource(Source):
    """Polls URLs; each is a source partition, {"url": url}."""

    def __init__(
        self,
        urls: str | Sequence[str],
        topic: str,
        *,
        cursor: str | None = None,
        interval_s: float = 5.0,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cursor` is the name of the query parameter of pages; without it each response is a document. A URL that has
        nothing new is requested again after `interval_s`. `key` is the name of a field of an item. `timeout_s` bounds
        a request; a transaction is open meanwhile. Raises MissingExtraError without the extra `http`.
        """
        urllib3 = extra_module("urllib3", "http", "HttpSource")
        self._http = urllib3.PoolManager(timeout=timeout_s, retries=False)
        self._failures = urllib3.exceptions.HTTPError
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._topic = topic
        self._cursor = cursor
        self._interval_s = interval_s
        self._key = key
        self._headers = dict(headers or {})
        self._clock = clock
        self._open: dict[str, dict[str, Any]] = {}
        """The offset of each open URL."""
        self._due: dict[str, float] = {}

    def partitions(self) -> Iterable[SourcePartition]:
        """See Source."""
        return [{"url": each} for each in self._urls]

    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """See Source."""
        self._open[partition["url"]] = dict(offset or {})
        self._due[partition["url"]] = self._clock()

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        """See Source. The records are of one URL, and at most a page, also where `max_records` is larger."""
        for url in sorted(self._open, key=lambda each: self._due[each]):
            if self._due[url] > self._clock():
                break
            records = self._page(url, max_records) if self._cursor is not None else self._document(url)
            if records:
                self._open[url] = dict(records[-1].source_offset)
                self._due[url] = self._clock()
                return records
            self._due[url] = self._clock() + self._interval_s
        return ()

    def close(self) -> None:
        """See Source."""
        self._open.clear()
        self._due.clear()
        self._http.clear()

    def _document(self, url: str) -> list[SourceRecord]:
        known = self._open[url].get("etag")
        response = self._get(url, {}, {"If-None-Match": known} if known else {})
        etag = response.headers.get("ETag")
        if response.status == _NOT_MODIFIED or (etag is not None and etag == known):
            return []
        if etag is None:
            raise ConnectError(f"{url} sends no ETag: each poll would be a record")
        return [SourceRecord(self._topic, url, response.data, {"url": url}, {"etag": etag})]

    def _page(self, url: str, most: int) -> list[SourceRecord]:
        offset = self._open[url]
        cursor, done = offset.get("cursor"), offset.get("index", 0)
        response = self._get(url, {} if cursor is None else {str(self._cursor): cursor}, {})
        try:
            page = json.loads(response.data)
            items, following = page["items"], page.get("next")
            keys = [None if self._key is None else item[self._key] for item in items]
        except (ValueError, KeyError, TypeError) as error:
            raise ConnectError(f"{url} sends no page of items with the cursor {cursor!r}: {error!r}") from error
        if following is not None and done >= len(items):  # an empty page before the next one, or a page that was done
            self._open[url] = {"cursor": following, "index": 0}
            return []
        records = []
        for number in range(done, min(len(items), done + most)):
            at = {"cursor": cursor, "index": number + 1}
            if following is not None and number + 1 == len(items):
                at = {"cursor": following, "index": 0}
            records.append(SourceRecord(self._topic, keys[number], items[number], {"url": url}, at))
        return records

    def _get(self, url: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        """The response. Raises RetriableError, ConnectError."""
        try:
            response = self._http.request("GET", url, fields=dict(fields), headers={**self._headers, **headers})
        except self._failures as error:
            raise RetriableError(f"GET {url} failed: {error}") from error
        check_status("GET", url, response)
        return response


def check_status(method: str, url: str, response: Any) -> None:
    """Raises RetriableError for a status after which a request may be sent again, ConnectError for other errors."""
    status = response.status
    if status < 400:
        return
    kind = RetriableError if status >= 500 or status in (408, 425, 429) else ConnectError
    raise kind(f"{method} {url} returned status {status}: {response.data[:200]!r}")
