"""Every source and every sink passes its contract, with a broker in memory: a process may end at any call, and the next
one continues without a loss, and without a duplicate where exactly once is claimed.

The sinks of PostgreSQL and of a real object store are in test_postgres.py and test_s3.py.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors import file_sink
from odradek.streams.connectors.file_formats import FileFormat, JsonLinesFormat, ParquetFormat
from odradek.streams.connectors.file_sink import FileSink
from odradek.streams.connectors.file_source import FileSource
from odradek.streams.connectors.http_sink import HttpSink
from odradek.streams.connectors.http_source import HttpSource
from odradek.streams.connectors.interface import Sink
from odradek.streams.connectors.s3_sink import S3Sink
from tests.streams.connectors.contract import Course, check_sink, check_source, courses, logs
from tests.streams.connectors.http_server import State, serving
from tests.streams.connectors.memory import Countdown, Crashing
from tests.streams.connectors.memory_s3 import MemoryS3
from tests.streams.connectors.stored import offsets_in_folder, offsets_of_objects


@pytest.fixture(scope="module")
def server() -> Iterator[State]:
    with serving() as state:
        yield state


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4)
"""How many records each source partition has."""


@given(sizes, courses)
def test_file_source(sizes: list[int], course: Course) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for number, size in enumerate(sizes):
            values = [f"{number}-{each}".encode() for each in range(size)]
            Path(folder, f"{number}.log").write_bytes(b"".join(value + b"\n" for value in values) + b"no end yet")
            expected[str(number)] = values
        check_source(
            lambda: FileSource(folder, "lines"), expected, lambda value: value.decode().partition("-")[0], course
        )


@given(st.integers(0, 11), st.integers(1, 4), courses)
@settings(max_examples=50)
def test_http_source_of_pages(server: State, count: int, page_items: int, course: Course) -> None:
    server.items = [{"id": number} for number in range(count)]
    server.page_items = page_items
    values = [json.dumps(each, separators=(",", ":")).encode() for each in server.items]
    check_source(
        lambda: HttpSource(f"{server.url}/pages", "items", cursor="after", interval_s=0),
        {"pages": values},
        lambda value: "pages",
        course,
    )


def check_file_sink(
    format: FileFormat, wanted: Mapping[TopicPartition, Sequence[int]], course: Course, roll_records: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:

        def make(countdown: Countdown) -> Sink:
            patch.setattr(file_sink, "os", Crashing(os, countdown))  # also between the calls of the system
            return FileSink(folder, format=format, roll_records=roll_records)

        check_sink(make, lambda: offsets_in_folder(Path(folder), format), wanted, course)


@given(logs, courses, st.integers(1, 6))
@example(  # the process ends between the link of a file and the commit
    {("orders", 0): [0, 1], ("orders", 1): [], ("clicks", 0): []}, Course([13], 2, 1.0, 0), 2
)
def test_file_sink(wanted: Mapping[TopicPartition, Sequence[int]], course: Course, roll_records: int) -> None:
    check_file_sink(JsonLinesFormat(), wanted, course, roll_records)


@pytest.mark.slow
@given(logs, courses)
@settings(max_examples=20)
def test_file_sink_of_parquet(wanted: Mapping[TopicPartition, Sequence[int]], course: Course) -> None:
    check_file_sink(ParquetFormat(), wanted, course, 5)


@given(logs, courses, st.integers(1, 6))
def test_s3_sink(wanted: Mapping[TopicPartition, Sequence[int]], course: Course, roll_records: int) -> None:
    store = MemoryS3()

    def make(countdown: Countdown) -> Sink:
        return S3Sink("bucket", "archive/", roll_records=roll_records, client=Crashing(store, countdown))

    def stored() -> Mapping[TopicPartition, Sequence[int]]:
        return offsets_of_objects({name: body for name, (body, _) in store.objects.items()}, "archive/")

    check_sink(make, stored, wanted, course)


@pytest.mark.slow
@given(logs, courses)
@settings(max_examples=50)
def test_http_sink(server: State, wanted: Mapping[TopicPartition, Sequence[int]], course: Course) -> None:
    server.posts.clear()

    def stored() -> Mapping[TopicPartition, Sequence[int]]:
        found: dict[TopicPartition, list[int]] = {}
        for key, elements in server.posts:
            place = elements[0]["topic"], elements[0]["partition"]
            offsets = [each["offset"] for each in elements]
            assert key == f"connect-test/{place[0]}/{place[1]}/{offsets[0]}-{offsets[-1]}"
            found.setdefault(place, []).extend(offsets)
        return found

    check_sink(lambda countdown: HttpSink(f"{server.url}/orders", batch_records=2), stored, wanted, course)
