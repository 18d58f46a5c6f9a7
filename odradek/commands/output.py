"""Output of the commands: a table for readers, with more columns as `wide`, and JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

FORMATS: Final = ("table", "wide", "json", "yaml")
Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column: its title, the key of its value in a row, and whether only `wide` has it."""

    title: str
    key: str
    wide: bool = False
    shown: Callable[[Any], str] | None = None
    """Makes the text of a value; None for `cell`."""


class TextTable(NamedTuple):
    """Rows under titles. A table without rows is not printed, unless it is the only one."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    heading: str = ""
    """A line above the table."""


def render(output: str, data: Any, tables: Sequence[TextTable]) -> str:
    """The text of a result in a format of `FORMATS`, without the last newline: `data` for programs, `tables` for
    readers.
    """
    if output == "json":
        return json.dumps(data, indent=2, ensure_ascii=False)
    if output == "yaml":
        import yaml  # imported late: few commands print YAML

        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip("\n")
    sections = []
    for table in tables:
        lines = [table.heading] if table.heading else []
        if table.rows or not table.heading:
            lines += table_lines(table.columns, table.rows, wide=output == "wide")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def table_lines(columns: Sequence[Column], rows: Iterable[Row], *, wide: bool = False) -> list[str]:
    """The lines of a table: the titles, and a line for each row."""
    used = [column for column in columns if wide or not column.wide]
    cells = [[column.title for column in used]]
    cells += [[(column.shown or cell)(row.get(column.key)) for column in used] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def cell(value: Any) -> str:
    """A value as the text of a cell: `-` for none, lists with commas, dictionaries as key=value."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell(each)}" for key, each in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value)) or "-"
    return str(value)


def byte_size(value: Any) -> str:
    """A number of bytes for a reader: 1.5 MiB."""
    if value is None or value < 0:
        return "-"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(value: Any) -> str:
    """Milliseconds since the epoch as a time in UTC; `-` for none."""
    if value is None or value < 0:
        return "-"
    from datetime import UTC, datetime

    return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
