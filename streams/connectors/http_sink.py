"""HTTP sink: posts batches of records as JSON arrays; at least once.

A batch has records of one partition. After a restart a record may be posted again, in another batch. The header
Idempotency-Key (group, topic, partition, first and last offset) identifies a batch for the server, and topic, partition
and offset in each element identify a record. With batches of one record both are the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import RetriableError
from odradek.streams.connectors.file_formats import JsonLinesFormat
from odradek.streams.connectors.http_source import check_status
from odradek.streams.connectors.interface import Sink, SinkRecord
from odradek.streams.extras import extra_module

_OF_A_RECORD: Final = (400, 409, 413, 422)
"""Statuses that mean that a record is wrong; other errors mean the same for all records."""


class RejectedRequestError(Exception):
    """The server has rejected a batch: one of its records is wrong."""


class HttpSink(Sink):
    """Posts to one URL. An element has the fields of a line of `JsonLinesFormat`."""

    def __init__(
        self,
        url: str,
        *,
        batch_records: int = 100,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """`timeout_s` bounds a request. Raises MissingExtraError without the extra `http`."""
        urllib3 = extra_module("urllib3", "http", "HttpSink")
        self._http = urllib3.PoolManager(timeout=timeout_s, retries=False)
        self._failures = urllib3.exceptions.HTTPError
        self._url = url
        self._batch_records = batch_records
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._group = ""
        self._format = JsonLinesFormat()

    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Sink."""
        self._group = group
        return {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See Sink. Raises RejectedRequestError where one of the records is wrong."""
        for batch in self._batches(records):
            first, last = batch[0], batch[-1]
            key = f"{self._group}/{first.topic}/{first.partition}/{first.offset}-{last.offset}"
            body = json.dumps([json.loads(self._format.row(each)) for each in batch]).encode()
            try:
                response = self._http.request(
                    "POST", self._url, body=body, headers={**self._headers, "Idempotency-Key": key}
                )
            except self._failures as error:
                raise RetriableError(f"POST {self._url} failed: {error}") from error
            if response.status in _OF_A_RECORD:
                raise RejectedRequestError(f"status {response.status}: {response.data[:200]!r}")
            check_status("POST", self._url, response)

    def flush(self) -> None:
        """See Sink."""

    def close(self) -> None:
        """See Sink."""
        self._http.clear()

    def _batches(self, records: Sequence[SinkRecord]) -> Iterator[list[SinkRecord]]:
        """Runs of one partition."""
        for _, run in groupby(records, attrgetter("topic_partition")):
            found = list(run)
            for start in range(0, len(found), self._batch_records):
                yield found[start : start + self._batch_records]
