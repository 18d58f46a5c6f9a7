"""PostgreSQL sink: inserts or updates a row for each record, exactly once.

Each batch is one transaction, which also stores the next offset of each partition in the table of offsets, if this
still has the offset that the sink has stored before. A process whose partition has moved to another one finds another
offset there: its transaction is rolled back, and it is fenced.

    CREATE TABLE connector_offsets (connector_group text, topic text, partition int, next_offset bigint, PRIMARY KEY …)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import FencedError
from odradek.streams.connectors.interface import Sink, SinkRecord
from odradek.streams.connectors.postgres_connection import PostgresConnection
from odradek.streams.extras import extra_module

if TYPE_CHECKING:
    import psycopg

_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS {offsets} (connector_group text NOT NULL, topic text NOT NULL, partition int NOT NULL, "
    "next_offset bigint NOT NULL, PRIMARY KEY (connector_group, topic, partition))"
)
_SELECT: Final = "SELECT topic, partition, next_offset FROM {offsets} WHERE connector_group = %s"
_INSERT: Final = "INSERT INTO {offsets} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_UPDATE: Final = (
    "UPDATE {offsets} SET next_offset = %s WHERE connector_group = %s AND topic = %s AND partition = %s "
    "AND next_offset = %s"
)
_LOCK: Final = 0x0DAD_EC01
"""The advisory lock under which the table of offsets is created: two sessions must not do so at the same time."""


class PostgresSink(Sink):
    """Writes to one table. A value is a mapping of column names (JSON, or what the serde makes), or null: then the row
    with the record's key is deleted.
    """

    stores_offsets = True

    def __init__(
        self,
        conninfo: str,
        table: str,
        *,
        key_columns: Sequence[str] = ("id",),
        offsets_table: str = "connector_offsets",
        stall_timeout_s: float = 10.0,
    ) -> None:
        """The table exists and has a primary key or unique index of `key_columns`; without key columns each record is
        inserted, and null values are errors. Tables may have a schema, as in shop.orders. The server ends the
        transaction of a process that is paused for `stall_timeout_s`, so that another one can take over. Raises
        MissingExtraError.
        """
        self._connection = PostgresConnection(conninfo, "PostgresSink", stall_timeout_s)
        self._sql: Any = extra_module("psycopg.sql", "postgres", "PostgresSink")
        self._jsonb: Any = extra_module("psycopg.types.json", "postgres", "PostgresSink").Jsonb
        self._table = self._sql.Identifier(*table.split("."))
        self._offsets_table = self._sql.Identifier(*offsets_table.split("."))
        self._keys = tuple(key_columns)
        self._group = ""
        self._stored: dict[TopicPartition, int | None] = {}
        """The offset of each partition that the table of offsets should have."""

    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Sink. Creates the table of offsets where it is missing."""
        self._group = group
        with self._connection.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            cursor.execute(self._statement(_CREATE))
            cursor.execute(self._statement(_SELECT), (group,))
            found = {(topic, partition): offset for topic, partition, offset in cursor.fetchall()}
        self._stored = {place: found.get(place) for place in partitions}
        return {place: offset for place, offset in self._stored.items() if offset is not None}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See Sink."""
        rows = [self._row(each) for each in records]
        latest = {each.topic_partition: each.offset + 1 for each in records}
        with self._connection.transaction() as cursor:
            for place, offset in latest.items():
                self._store(cursor, place, offset)
            # Rows with the same columns in a row are one statement, which the client sends for all of them at once.
            for (is_upsert, names), run in groupby(rows, lambda row: (row[0], tuple(row[1]))):
                statement = self._upsert(names) if is_upsert else self._delete()
                cursor.executemany(statement, [tuple(row[1].values()) for row in run])
        self._stored.update(latest)

    def flush(self) -> None:
        """See Sink: each batch was committed."""

    def close(self) -> None:
        """See Sink."""
        self._stored.clear()
        self._connection.close()

    # ---- internals

    def _store(self, cursor: psycopg.Cursor[tuple[Any, ...]], place: TopicPartition, offset: int) -> None:
        """Store a next offset in place of the one that was stored before. Raises FencedError where another is there."""
        before = self._stored[place]
        if before is None:
            cursor.execute(self._statement(_INSERT), (self._group, *place, offset))
        else:
            cursor.execute(self._statement(_UPDATE), (offset, self._group, *place, before))
        if cursor.rowcount != 1:
            raise FencedError(f"another process has stored an offset of {place[0]}-{place[1]}: expected {before}")

    def _row(self, record: SinkRecord) -> tuple[bool, dict[str, Any]]:
        """Whether to insert or update, or to delete, and the values by column. Raises ValueError."""
        if record.value is None:
            return False, self._key(record)
        value = _mapping(record.value)
        if value is None:
            raise ValueError(f"the value is {record.value!r:.100}; expected an object whose names are columns")
        missing = [each for each in self._keys if value.get(each) is None]
        if missing:
            raise ValueError(f"the value has no {missing[0]}, a key column")
        return True, {name: self._adapted(each) for name, each in value.items()}

    def _key(self, record: SinkRecord) -> dict[str, Any]:
        """The key columns of a record that deletes a row."""
        key = _mapping(record.key)
        if key is None and len(self._keys) == 1 and record.key is not None:
            key = {self._keys[0]: record.key.decode() if isinstance(record.key, bytes) else record.key}
        if key is None or not self._keys or any(key.get(each) is None for each in self._keys):
            raise ValueError(
                f"a null value deletes a row, but the key is {record.key!r:.100}; key columns: {self._keys}"
            )
        return {name: key[name] for name in self._keys}

    def _adapted(self, value: Any) -> Any:
        return self._jsonb(value) if isinstance(value, dict) else value

    def _upsert(self, names: Sequence[str]) -> Any:
        sql = self._sql
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        made = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            self._table, columns, sql.SQL(", ").join([sql.Placeholder()] * len(names))
        )
        if not self._keys:
            return made
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        others = [name for name in names if name not in self._keys]
        if not others:
            return made + sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(keys)
        changes = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        return made + sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(keys, changes)

    def _delete(self) -> Any:
        sql = self._sql
        same = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in self._keys)
        return sql.SQL("DELETE FROM {} WHERE {}").format(self._table, same)

    def _statement(self, text: str) -> Any:
        return self._sql.SQL(text).format(offsets=self._offsets_table)


def _mapping(value: Any) -> dict[str, Any] | None:
    """An object, or the JSON of one; None for anything else."""
    if isinstance(value, bytes | str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return dict(value) if isinstance(value, Mapping) else None
