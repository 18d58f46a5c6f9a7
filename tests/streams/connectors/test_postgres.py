"""Connectors of PostgreSQL with Debian's server: the contract, upserts and deletes, fencing, and rows in order."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import FencedError, RetriableError
from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.connectors.postgres_sink import PostgresSink
from odradek.streams.connectors.postgres_source import PostgresSource
from tests.streams.connectors.contract import Course, check_sink, check_source, courses, logs
from tests.streams.connectors.memory import Countdown, Crashing, log_of, sink_settings, sink_worker
from tests.streams.connectors.memory import MemoryBroker as Broker
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

_numbers = itertools.count()
PLACE = ("orders", 0)


def query(postgres: str, text: str) -> list[tuple[Any, ...]]:
    """Run statements; the rows of the last one."""
    with psycopg.connect(postgres) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def table(postgres: str, columns: str) -> str:
    """A new table."""
    name = f"t{next(_numbers)}"
    query(postgres, f"CREATE TABLE {name} ({columns})")
    return name


def record(offset: int, value: Any, key: Any = None) -> SinkRecord:
    body = value if value is None else json.dumps(value).encode()
    return SinkRecord(*PLACE, offset, key, body, 1_000)


@given(wanted=logs, course=courses)
@settings(max_examples=25, deadline=None)
def test_the_sink_passes_the_contract(
    postgres: str, wanted: Mapping[TopicPartition, Sequence[int]], course: Course
) -> None:
    # Without key columns each record is a row, so that a record that is put twice is two rows.
    name = table(postgres, "number bigserial, topic text, part int, id int")

    def value(offset: int) -> bytes:
        return b'{"id": %d}' % offset

    def stored() -> Mapping[TopicPartition, Sequence[int]]:
        found: dict[TopicPartition, list[int]] = {}
        for topic, part, offset in query(postgres, f"SELECT topic, part, id FROM {name} ORDER BY number"):
            found.setdefault((topic, part), []).append(offset)
        return found

    class Sink(PostgresSink):
        def put(self, records: Sequence[SinkRecord]) -> None:
            super().put(
                [
                    SinkRecord(
                        each.topic,
                        each.partition,
                        each.offset,
                        each.key,
                        {"topic": each.topic, "part": each.partition, **json.loads(each.value)},
                        each.timestamp,
                    )
                    for each in records
                ]
            )

    def make(countdown: Countdown) -> Sink:
        sink = Sink(postgres, name, key_columns=(), offsets_table=f"{name}_offsets")
        sink._connection = _CrashingConnection(sink._connection, countdown)  # type: ignore[assignment]
        return sink

    check_sink(make, stored, wanted, course, value)


class _CrashingConnection:
    """A connection whose statements count, so that a process also ends within a transaction."""

    def __init__(self, connection: Any, countdown: Countdown) -> None:
        self._connection = connection
        self._countdown = countdown

    def transaction(self) -> Any:
        return _CrashingTransaction(self._connection.transaction(), self._countdown)

    def close(self) -> None:
        self._connection.close()


class _CrashingTransaction:
    def __init__(self, transaction: Any, countdown: Countdown) -> None:
        self._transaction = transaction
        self._countdown = countdown

    def __enter__(self) -> Any:
        return Crashing(self._transaction.__enter__(), self._countdown)

    def __exit__(self, *error: Any) -> Any:
        return self._transaction.__exit__(*error)


@given(course=courses)
@settings(max_examples=15, deadline=None)
def test_the_source_passes_the_contract(postgres: str, course: Course) -> None:
    name = table(postgres, "id bigint PRIMARY KEY, item text")
    query(postgres, f"INSERT INTO {name} SELECT 2 * i, 'item ' || i FROM generate_series(1, 11) i")
    values = [json.dumps({"id": 2 * i, "item": f"item {i}"}, separators=(",", ":")).encode() for i in range(1, 12)]
    check_source(lambda: PostgresSource(postgres, name, "items", key="id"), {name: values}, lambda value: name, course)


def test_the_sink_updates_and_deletes_rows_by_key(postgres: str) -> None:
    name = table(postgres, "id int PRIMARY KEY, item text, more jsonb, tags text[]")
    sink = PostgresSink(postgres, name, offsets_table=f"{name}_offsets")
    assert sink.open("group", [PLACE]) == {}
    sink.put(
        [
            record(0, {"id": 1, "item": "a", "more": {"deep": [1]}, "tags": ["x", "y"]}),
            record(1, {"id": 2, "item": "b"}),
            record(2, {"id": 1, "item": "c"}),
            record(3, {"id": 3, "item": "d"}),
            record(4, None, b"2"),
            record(5, None, b'{"id": 3}'),
        ]
    )
    sink.close()
    assert query(postgres, f"SELECT * FROM {name}") == [(1, "c", {"deep": [1]}, ["x", "y"])]
    assert query(postgres, f"SELECT * FROM {name}_offsets") == [("group", "orders", 0, 6)]


def test_a_process_whose_partition_moved_is_fenced(postgres: str) -> None:
    name = table(postgres, "id int")
    late, owner = (PostgresSink(postgres, name, key_columns=(), offsets_table=f"{name}_offsets") for _ in range(2))
    late.open("group", [PLACE])
    assert owner.open("group", [PLACE]) == {}
    owner.put([record(0, {"id": 0})])
    with pytest.raises(FencedError, match="another process has stored an offset of orders-0"):
        late.put([record(0, {"id": 0}), record(1, {"id": 1})])
    assert late.open("group", [PLACE]) == {PLACE: 1}
    late.put([record(1, {"id": 1})])
    with pytest.raises(FencedError):
        owner.put([record(1, {"id": 1})])
    late.close()
    owner.close()
    assert query(postgres, f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,)]


def test_a_wrong_record_goes_to_the_dead_letters_alone(postgres: str) -> None:
    name = table(postgres, "id int PRIMARY KEY, price int CHECK (price > 0)")
    sink = PostgresSink(postgres, name, offsets_table=f"{name}_offsets")
    broker = Broker()
    prices = {0: b"1", 1: b"2", 2: b"-3", 3: b'"four"', 4: b"5", 5: b"6"}
    broker.logs = {PLACE: log_of(PLACE, prices, lambda offset: b'{"id": %d, "price": %s}' % (offset, prices[offset]))}
    worker = sink_worker(broker, sink, sink_settings(10, tolerant=True, dead_letter_topic="dead"))
    worker.step()
    worker.commit()
    worker.close()
    assert query(postgres, f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,), (4,), (5,)]
    assert [letter.key for letter in broker.dead_letters] == [b"2", b"3"]
    assert query(postgres, f"SELECT next_offset FROM {name}_offsets") == [(6,)]


def test_a_server_that_ends_the_connection_is_retried(postgres: str) -> None:
    name = table(postgres, "id int PRIMARY KEY")
    sink = PostgresSink(postgres, name, offsets_table=f"{name}_offsets")
    sink.open("group", [PLACE])
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    query(postgres, others)
    with pytest.raises(RetriableError):
        sink.put([record(0, {"id": 0})])
    sink.put([record(0, {"id": 0})])
    sink.close()
    assert query(postgres, f"SELECT id FROM {name}") == [(0,)]


def test_a_locking_source_waits_for_open_writes(postgres: str) -> None:
    """Number 1 is taken before 2, and committed after it: a source without the lock would skip it."""
    name = table(postgres, "id bigserial PRIMARY KEY")
    source = PostgresSource(postgres, name, "items", lock=True)
    source.open({"table": name}, None)
    found: list[Any] = []
    with psycopg.connect(postgres) as first, psycopg.connect(postgres) as second:
        first.execute(f"INSERT INTO {name} DEFAULT VALUES")
        second.execute(f"INSERT INTO {name} DEFAULT VALUES")
        second.commit()
        reader = threading.Thread(target=lambda: found.extend(source.poll(10, 0)))
        reader.start()
        waiting = f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '{name}'::regclass"
        eventually(lambda: query(postgres, waiting))
        assert not found
        first.commit()
        reader.join()
    source.close()
    assert [each.value for each in found] == [{"id": 1}, {"id": 2}]


def test_a_process_that_is_paused_in_a_transaction_does_not_stop_the_one_that_takes_over(postgres: str) -> None:
    name = table(postgres, "id int")
    late, owner = (
        PostgresSink(postgres, name, key_columns=(), offsets_table=f"{name}_offsets", stall_timeout_s=0.3)
        for _ in range(2)
    )
    late.open("group", [PLACE])
    late.put([record(0, {"id": 0})])
    assert owner.open("group", [PLACE]) == {PLACE: 1}

    def pause() -> None:
        """The late process continues only after the other one has written."""
        with late._connection.transaction() as cursor:
            late._store(cursor, PLACE, 2)  # holds the lock on the row of the offset
            owner.put([record(1, {"id": 1})])
            cursor.execute("SELECT 1")

    with pytest.raises(RetriableError, match="idle-in-transaction timeout"):
        pause()
    with pytest.raises(FencedError):
        late.put([record(1, {"id": 1})])
    late.close()
    owner.close()
    assert query(postgres, f"SELECT id FROM {name} ORDER BY id") == [(0,), (1,)]
