"""docs/streams-parity.md: a row for each public class, method and property of Kafka Streams 3.9.2, and no row that the
code contradicts.
"""

from __future__ import annotations

from typing import Final

import pytest

from odradek.streams.config import PROPERTIES
from tests.streams import parity
from tests.streams.oracle.java import Java

TEXT: Final = parity.PAGE.read_text()
CODE: Final = parity.rows(TEXT, "Classes and methods")
CONFIG: Final = parity.rows(TEXT, "Properties")


@pytest.mark.slow
@pytest.mark.jvm
def test_every_public_name_of_java_has_a_row(java: Java) -> None:
    assert sorted(row.java for row in CODE) == sorted(parity.java_names())


@pytest.mark.jvm
def test_every_property_of_java_has_a_row(java: Java) -> None:
    assert sorted(row.java for row in CONFIG) == sorted(parity.java_properties())


def test_every_python_name_exists() -> None:
    assert [row for row in CODE if row.python and not parity.exists(row.python)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert not parity.exists("KStream.no_such_operator")
    assert parity.exists("records.TaskId.subtopology")


def test_every_row_is_complete() -> None:
    """What is there has a name; what differs has its difference; what is missing has its reason."""
    for row in (*CODE, *CONFIG):
        assert bool(row.python) == (row.state != "not"), row
        assert bool(row.why) == (row.state != "there"), row


def test_the_properties_are_those_of_the_code() -> None:
    for row in CONFIG:
        assert (row.java in PROPERTIES) == (row.state == "there" and row.java == row.python), row
        assert row.state == "not" or row.python in PROPERTIES, row
