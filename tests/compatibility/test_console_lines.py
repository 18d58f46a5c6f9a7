"""The check behind the console tests finds each fault that it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compatibility.console import Consumed, assert_complete, header, parse_lines, value

NUMBERS = range(20)
WHOLE = [Consumed(n % 2, n // 2, header("3.9.2", n), f"key-{n}", value("3.9.2", n)) for n in NUMBERS]


def lost(records: list[Consumed]) -> list[Consumed]:
    return records[:-1]


def lost_midway(records: list[Consumed]) -> list[Consumed]:
    return records[:6] + records[7:]


def doubled(records: list[Consumed]) -> list[Consumed]:
    return [*records, records[-1]._replace(offset=records[-1].offset + 1)]


def read_twice(records: list[Consumed]) -> list[Consumed]:
    return [*records, records[-1]]


def swapped(records: list[Consumed]) -> list[Consumed]:
    return [*records[:4], records[6]._replace(offset=2), records[5], records[4]._replace(offset=3), *records[7:]]


def under_another_key(records: list[Consumed]) -> list[Consumed]:
    return [records[0]._replace(key="key-7"), *records[1:]]


def with_other_headers(records: list[Consumed]) -> list[Consumed]:
    return [records[0]._replace(headers="NO_HEADERS"), *records[1:]]


def test_a_whole_topic_passes_and_printed_lines_are_parsed() -> None:
    assert_complete(WHOLE, "3.9.2", NUMBERS)
    printed = [f"Partition:{r.partition}\tOffset:{r.offset}\t{r.headers}\t{r.key}\t{r.value}\n" for r in WHOLE]
    assert list(parse_lines(printed)) == WHOLE


@pytest.mark.parametrize(
    "fault", [lost, lost_midway, doubled, read_twice, swapped, under_another_key, with_other_headers]
)
def test_each_fault_is_found(fault: Callable[[list[Consumed]], list[Consumed]]) -> None:
    with pytest.raises(AssertionError):
        assert_complete(fault(WHOLE), "3.9.2", NUMBERS)
