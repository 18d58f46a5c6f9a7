"""Connectors for processes of the tests: `odradek streams connect tests.streams.connectors.apps:NAME`.

Their settings come from the environment, as a supervisor would set them.
"""

from __future__ import annotations

import os

from odradek.streams.connectors import FileSink, FileSource, PostgresSink, PostgresSource


def lines_source() -> FileSource:
    """The files of a folder, into a topic."""
    return FileSource(os.environ["CONNECT_INPUT"], os.environ["CONNECT_TOPIC"], pattern="*.log")


def objects_source() -> FileSource:
    """The same for files of JSON lines."""
    return FileSource(os.environ["CONNECT_INPUT"], os.environ["CONNECT_TOPIC"], pattern="*.log", format="json")


def lines_sink() -> FileSink:
    """A topic, into the files of a folder."""
    return FileSink(os.environ["CONNECT_OUTPUT"], roll_records=100)


def rows_source() -> PostgresSource:
    """A table, into a topic."""
    return PostgresSource(
        os.environ["CONNECT_POSTGRES"], "source_rows", os.environ["CONNECT_TOPIC"], key="id", lock=True
    )


def rows_sink() -> PostgresSink:
    """A topic, into a table without a key: a record that is written twice is two rows."""
    return PostgresSink(os.environ["CONNECT_POSTGRES"], "sink_rows", key_columns=(), stall_timeout_s=1)


not_a_connector = 1
