"""Records for the job replay, and the copies that it has to make of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.spark_jobs import topics
from tests.spark_jobs.archive_job import write_transactions
from tests.spark_jobs.copies import START, Record

if TYPE_CHECKING:
    pass


PARTITIONS = 3


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Records a second apart in every partition, with headers, and then transactions."""
    topics.make_topics(bootstrap, {topic: PARTITIONS})
    headers = (("h", b"1"), ("h", None))
    made = (
        Record(topic, number % PARTITIONS, 0, b"%d" % number, headers=headers if number % 2 else ())
        for number in range(count)
    )
    timed = (replace(each, timestamp=START + timedelta(seconds=n // PARTITIONS)) for n, each in enumerate(made))
    topics.write(bootstrap, timed)
    write_transactions(bootstrap, topic, PARTITIONS)


def copies_of(seen: list[topics.Seen]) -> list[tuple[Any, ...]]:
    """The expected copies, in order: all but the offset, with headers that name it."""
    return [
        (
            each.partition,
            each.key,
            each.value,
            (
                *each.headers,
                ("odradek.origin", f"{each.topic}:{each.partition}:{each.offset}".encode()),
                ("odradek.timestamp", str(each.timestamp_ms).encode()),
            ),
            each.timestamp_ms,
        )
        for each in seen
    ]


def as_read(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[tuple[Any, ...]]:
    return [
        (each.partition, each.key, each.value, each.headers, each.timestamp_ms)
        for each in topics.read(bootstrap, {topic: partitions})
    ]
