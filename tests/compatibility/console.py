"""Console producer and consumer over three releases: the options that were renamed, and numbered lines.

A line carries its own number, so that the output of a consumer shows lines that are missing, doubled or out of order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.jvm.process import Result
from tests.jvm.tools import run_tool

KEYS = 1000


class Consumed(NamedTuple):
    """One record as a console consumer printed it."""

    partition: int
    offset: int
    headers: str
    key: str
    value: str


def has_header_parser(version: str) -> bool:
    """The console producer reads headers since 3.2 (KIP-798)."""
    return version != "2.8.2"


def reader_option(version: str) -> str:
    """The option that sets a property of the console producer's reader; KIP-1147 renamed it in 4.2."""
    return "--reader-property" if version.startswith("4.") else "--property"


def formatter_option(version: str) -> str:
    """The option that sets a property of the console consumer's formatter; KIP-1147 renamed it in 4.2."""
    return "--formatter-property" if version.startswith("4.") else "--property"


def include_option(version: str) -> str:
    """The option for a pattern of topics; KIP-629 renamed it in 3.0."""
    return "--whitelist" if version == "2.8.2" else "--include"


def write_lines(path: Path, producer: str, numbers: Iterable[int]) -> None:
    """A file of lines for `produce`: headers where the release reads them, a key, a value with its number."""
    with open(path, "w") as file:
        for number in numbers:
            headers = f"{header(producer, number)}\t" if has_header_parser(producer) else ""
            file.write(f"{headers}key-{number % KEYS}\t{value(producer, number)}\n")


def header(producer: str, number: int) -> str:
    """The headers of a line as both tools write them; the 2.8.2 producer sets none."""
    return f"line:{number},by:{producer}" if has_header_parser(producer) else "NO_HEADERS"


def value(producer: str, number: int) -> str:
    return f"{producer} line {number} of the spool"


def produce(version: str, bootstrap: str, topic: str, lines: Path, *more: str) -> Result:
    """Sends the lines of a file with the console producer."""
    option = reader_option(version)
    parse = [option, "parse.key=true"]
    if has_header_parser(version):
        parse += [option, "parse.headers=true"]
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, *parse, *more]
    return run_tool(version, "kafka-console-producer", arguments, stdin=lines, timeout_s=120)


def consume(version: str, bootstrap: str, selection: list[str], count: int, scratch: Path) -> list[Consumed]:
    """Reads `count` records with the console consumer; `selection` are the options for topic or pattern, group and
    start.

    The tool gives up, and the test with it, when nothing comes for 30 s.
    """
    option = formatter_option(version)
    names = ("print.partition", "print.offset", "print.headers", "print.key")
    printing = [part for name in names for part in (option, f"{name}=true")]
    limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
    run_tool(
        version,
        "kafka-console-consumer",
        ["--bootstrap-server", bootstrap, *selection, *printing, *limits],
        stdout=scratch,
        timeout_s=180,
    )
    with open(scratch, encoding="utf-8") as file:
        return list(parse_lines(file))


_LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t([^\t]*)\t([^\t]*)\t(.*)")


def parse_lines(lines: Iterable[str]) -> Iterator[Consumed]:
    for line in lines:
        found = _LINE.fullmatch(line.rstrip("\n"))
        assert found, f"not the line of a record: {line!r}"
        partition, offset, headers, key, text = found.groups()
        yield Consumed(int(partition), int(offset), headers, key, text)


def assert_complete(records: list[Consumed], producer: str, numbers: range) -> None:
    """Each line is there once, unchanged, and in each partition offsets and lines are in the order of sending."""
    seen: list[int] = []
    latest: dict[int, tuple[int, int]] = {}  # partition -> its last offset and line number
    for record in records:
        number = int(record.value.split()[2])
        expected = (header(producer, number), f"key-{number % KEYS}", value(producer, number))
        assert (record.headers, record.key, record.value) == expected
        offset_before, number_before = latest.get(record.partition, (-1, -1))
        assert record.offset == offset_before + 1, f"offset {record.offset} came after {offset_before}: {record}"
        assert number > number_before, f"line {number} came after line {number_before}: {record}"
        latest[record.partition] = (record.offset, number)
        seen.append(number)
    assert sorted(seen) == list(numbers)
