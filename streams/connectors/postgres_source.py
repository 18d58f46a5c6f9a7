"""PostgreSQL source: reads the rows of a table, or of a query, in the order of a column that increases.

The table is one source partition, {"table": name}; the offset is {"value": the column's value in the last row}. Rows
have to become visible in the order of the column. Numbers of a sequence do not by themselves: a transaction can take a
lower number and commit later, and its row would be skipped. With `lock=True` each read waits for open writes to the
table, and writes wait for the read, so that no row is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odradek.streams.connectors.interface import Source, SourceOffset, SourcePartition, SourceRecord
from odradek.streams.connectors.postgres_connection import PostgresConnection
from odradek.streams.extras import extra_module


class PostgresSource(Source):
    """Reads one table. A value is a dict of the row's columns."""

    def __init__(
        self,
        conninfo: str,
        table: str,
        topic: str,
        *,
        column: str = "id",
        key: str | Callable[[dict[str, Any]], Any] | None = None,
        lock: bool = False,
        stall_timeout_s: float = 10.0,
    ) -> None:
        """`table` may have a schema, as in shop.orders. `column` is unique and increases; it is a number, a text, or
        what PostgreSQL converts from its own text, such as a timestamp. `key` is the name of a column, or a function of
        the row. The server ends the read, and its lock, of a process that is paused for `stall_timeout_s`. Raises
        MissingExtraError.
        """
        self._connection = PostgresConnection(conninfo, "PostgresSource", stall_timeout_s)
        sql = extra_module("psycopg.sql", "postgres", "PostgresSource")
        self._partition = {"table": table}
        self._topic = topic
        self._column = column
        self._key = key
        names = {"table": sql.Identifier(*table.split(".")), "column": sql.Identifier(column)}
        select = "SELECT * FROM {table}{where} ORDER BY {column} LIMIT %s"
        self._first = sql.SQL(select).format(**names, where=sql.SQL(""))
        self._next = sql.SQL(select).format(**names, where=sql.SQL(" WHERE {column} > %s").format(**names))
        self._lock = sql.SQL("LOCK TABLE {table} IN SHARE MODE").format(**names) if lock else None
        self._offset: Any = None
        self._is_open = False

    def partitions(self) -> Iterable[SourcePartition]:
        """See Source."""
        return [self._partition]

    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """See Source."""
        self._offset = None if offset is None else offset["value"]
        self._is_open = True

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        """See Source."""
        if not self._is_open:
            return ()
        with self._connection.transaction() as cursor:
            if self._lock is not None:
                cursor.execute(self._lock)
            if self._offset is None:
                cursor.execute(self._first, (max_records,))
            else:
                cursor.execute(self._next, (self._offset, max_records))
            columns = [each.name for each in cursor.description or ()]
            rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        records = [self._record(row) for row in rows]
        if records:
            self._offset = records[-1].source_offset["value"]
        return records

    def close(self) -> None:
        """See Source."""
        self._is_open = False
        self._connection.close()

    def _record(self, row: dict[str, Any]) -> SourceRecord:
        key = self._key(row) if callable(self._key) else None if self._key is None else row[self._key]
        value = row[self._column]
        offset = value if isinstance(value, int | str) else str(value)
        shown = {name: _plain(each) for name, each in row.items()}
        return SourceRecord(self._topic, _plain(key), shown, self._partition, {"value": offset})


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers, texts, lists and objects stay; everything else becomes the text that PostgreSQL
    reads again.
    """
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)
