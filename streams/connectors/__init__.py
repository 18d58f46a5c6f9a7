"""Connectors: sources and sinks that move records between Kafka and other systems (Kafka: Kafka Connect).

    sys.exit(run_sink(FileSink("archive"), {"application.id": "archive", "bootstrap.servers": …, "topics": "orders"}))

    interface   Source, Sink, SourceRecord, SinkRecord: what a connector of your own implements
    runner      run_source, run_sink; source_runner and sink_runner in a program that has other work
    files       FileSource, FileSink          no extra; Parquet: the extra `arrow`
    HTTP        HttpSource, HttpSink          the extra `http`
    PostgreSQL  PostgresSource, PostgresSink  the extra `postgres`
    S3          S3Sink                        the extra `s3`

docs/streams-connectors.md has the guide.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.file_formats import FileFormat, JsonLinesFormat, ParquetFormat
from odradek.streams.connectors.file_sink import FileSink
from odradek.streams.connectors.file_source import FileSource
from odradek.streams.connectors.http_sink import HttpSink
from odradek.streams.connectors.http_source import HttpSource
from odradek.streams.connectors.interface import (
    Sink,
    SinkRecord,
    Source,
    SourceOffset,
    SourcePartition,
    SourceRecord,
)
from odradek.streams.connectors.postgres_sink import PostgresSink
from odradek.streams.connectors.postgres_source import PostgresSource
from odradek.streams.connectors.s3_sink import S3Sink

if TYPE_CHECKING:
    from odradek.streams.connectors.runner import (
        ConnectorRunner,
        run_sink,
        run_source,
        sink_runner,
        source_runner,
    )

_OF_RUNNER: Final = ("ConnectorRunner", "run_sink", "run_source", "sink_runner", "source_runner")


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Imports the runner, and the client of Kafka with it, at its first use."""
        if name not in _OF_RUNNER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("odradek.streams.connectors.runner"), name)


__all__ = [
    "ConnectError",
    "ConnectorRunner",
    "FencedError",
    "FileFormat",
    "FileSink",
    "FileSource",
    "HttpSink",
    "HttpSource",
    "JsonLinesFormat",
    "ParquetFormat",
    "PostgresSink",
    "PostgresSource",
    "RetriableError",
    "S3Sink",
    "Sink",
    "SinkRecord",
    "Source",
    "SourceOffset",
    "SourcePartition",
    "SourceRecord",
    "run_sink",
    "run_source",
    "sink_runner",
    "source_runner",
]
