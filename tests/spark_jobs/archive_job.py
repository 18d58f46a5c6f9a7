"""Runs of the job archive, its files, and the records that have to be in them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.spark_jobs import archive
from tests.spark_jobs import topics
from tests.spark_jobs.copies import START, Record

if TYPE_CHECKING:
    pass


Row = tuple[Any, ...]


def records(topic: str, partitions: int, count: int, name: str) -> Iterator[Record]:
    """Over two days, with null keys and values, and with headers of one name, empty and null."""
    for number in range(count):
        yield Record(
            topic,
            number % partitions,
            0,
            None if number % 10 == 3 else f"{name}-{number}".encode() * (number % 3),
            None if number % 7 == 0 else f"key-{number % 100}".encode(),
            (("h", b"1"), ("h", None), ("empty", b"")) if number % 2 else (),
            START + timedelta(milliseconds=number % 5 * 12 * 3_600_000 // 2 + number),
        )


def run_archive(bootstrap: str, names: list[str], folder: Path, *more: str) -> int:
    named = [word for name in names for word in ("--topic", name)]
    own = ["--checkpoint", str(folder / "checkpoint"), "--output", str(folder / "archive"), "--once"]
    return archive.main(["--bootstrap", bootstrap, *named, *own, *more])


def read_files(folder: Path) -> list[Row]:
    """Every row of every Parquet file below the folder, except files that all readers ignore."""
    import pyarrow.dataset as ds  # not with every test run: it imports pandas

    table = ds.dataset(folder / "archive", format="parquet", partitioning="hive").to_table()
    rows = [
        (
            str(row["topic"]),
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            round(row["timestamp"].timestamp() * 1000),
            row["key_crc"],
            row["value_crc"],
            str(row["date"]),
        )
        for row in table.to_pylist()
    ]
    return sorted(rows, key=lambda row: row[:3])


def as_archived(seen: list[topics.Seen]) -> list[Row]:
    return [
        (*each, _crc(each.key), _crc(each.value), str(datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).date()))
        for each in seen
    ]


def _crc(value: bytes | None) -> int | None:
    return None if value is None else zlib.crc32(value)


def write_transactions(bootstrap: str, topic: str, partitions: int) -> None:
    """Ten transactions; every other one is aborted."""
    to = topics.producer(bootstrap, transactional_id=topics.unique("archive"), linger_ms=0)
    to.init_transactions(topics.TIMEOUT_S)
    for number in range(10):
        to.begin_transaction()
        for record in records(topic, partitions, 200, f"transaction-{number}"):
            topics.send(to, record)
        if number % 2:
            to.flush(topics.TIMEOUT_S)
            to.abort_transaction(topics.TIMEOUT_S)
        else:
            to.commit_transaction(topics.TIMEOUT_S)


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(topics.TIMEOUT_S).topic_partitions
    return {each.partition: each.offset for each in found if each.topic == topic}


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(topics.TIMEOUT_S)
