"""The measured applications on odradek.streams; StreamsLoad.java, streams_quix.py and streams_faust.py are the same.

    stateless   keep 15 of 16 records, change the value, change the key
    wordcount   count records by their key, which is a word; a store with a changelog
    tumbling    the same in windows of one minute
    hopping     the same in windows of one minute, one every 20 seconds
    join        each record with the row of its key in a table
    stores      keep the latest value of each key in 100 stores, without changelogs, and pass the record on

Keys and values are texts; a value begins with a hexadecimal digit. Counts of windows have the window's start in their
key.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Joined, Materialized, Produced
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import Topology
from odradek.streams.windows import TimeWindows

Kind = Literal["stateless", "wordcount", "tumbling", "hopping", "join", "stores"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
COUNTS: Final[tuple[Kind, ...]] = ("wordcount", "tumbling", "hopping")
"""The kinds whose output are counts; the others write a record for each that they keep."""

INPUT: Final = "input"
TABLE: Final = "table"
OUTPUT: Final = "output"
STORE: Final = "counts"
STORES: Final = 100
WINDOW_MS: Final = 60_000
ADVANCE_MS: Final = 20_000
GRACE_MS: Final = 60_000


def build(kind: Kind, source: str = INPUT, output: str = OUTPUT, table: str = TABLE) -> Topology:
    """The topology of a kind; `source`, `output` and `table` are topics."""
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed(STRING, STRING))
    if kind == "stateless":
        (
            stream.filter(lambda value: value[0] != "0")
            .map_values(lambda value: value.upper())
            .map(lambda key, value: (value[:4], value))
            .to(output, Produced(STRING, STRING))
        )
    elif kind == "wordcount":
        counts = stream.group_by_key(Grouped(STRING, STRING)).count(Materialized(STORE, STRING, LONG))
        counts.to_stream().to(output, Produced(STRING, LONG))
    elif kind == "join":
        rows = builder.table(table, Consumed(STRING, STRING), Materialized(STORE, STRING, STRING))
        joined = stream.join(rows, lambda value, row: value[:40] + row, joined=Joined(STRING, STRING, STRING))
        joined.to(output, Produced(STRING, STRING))
    elif kind == "stores":
        grouped = stream.group_by_key(Grouped(STRING, STRING))
        for number in range(STORES):
            grouped.reduce(lambda old, new: new, Materialized(f"latest-{number}", STRING, STRING, logging=False))
        stream.to(output, Produced(STRING, STRING))
    else:
        windows = TimeWindows.of_size_and_grace(WINDOW_MS, GRACE_MS)
        if kind == "hopping":
            windows = windows.advance_by(ADVANCE_MS)
        windowed = stream.group_by_key(Grouped(STRING, STRING)).windowed_by(windows)
        counts_by_window = windowed.count(Materialized(STORE, STRING, LONG))
        counts_by_window.to_stream().map(with_start).to(output, Produced(STRING, LONG))
    return builder.build()


def with_start(windowed: Any, count: int) -> tuple[str, int]:
    """The key of a window's count on the output: the word, @ and the start of the window."""
    return f"{windowed.key}@{windowed.window.start}", count
