"""Applications of `tests.streams.apps.beyond` on one broker: processes that can be killed, and the records by
partition.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from confluent_kafka import Producer

from odradek.streams.murmur2 import partition_of
from tests.jvm.process import BackgroundProcess
from tests.streams.counting import TIMEOUT_S, reading
from tests.streams.stage import DEADLINE_S, Stage

Values = dict[int, list[bytes]]
"""The values of a topic by partition."""


@contextmanager
def process_of(kind: str, config: dict[str, Any], *more: str) -> Iterator[BackgroundProcess]:
    """The application as a process, which runs; killed at the end."""
    command = [sys.executable, "-m", "tests.streams.apps.beyond", kind, json.dumps(config), *more]
    process = BackgroundProcess(command)
    try:
        process.stdout.wait_for("RUNNING", DEADLINE_S)
        yield process
    finally:
        process.kill()


def key_of(partition: int) -> bytes:
    """A key that the default partitioner sends to this one of two partitions."""
    return next(key for key in (f"k{number}".encode() for number in count()) if partition_of(key, 2) == partition)


def write(stage: Stage, values: Sequence[str], used: int = 2) -> None:
    """Write values to the source topic, to the first `used` of its two partitions in turn."""
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 5})
    keys = [key_of(partition) for partition in range(used)]
    for number, value in enumerate(values):
        producer.produce(stage.words, value.encode(), keys[number % used], number % used)
    assert producer.flush(TIMEOUT_S) == 0


def expected(values: Sequence[str], used: int = 2) -> Values:
    """The output for these values, in order."""
    return {number: [value.upper().encode() for value in values[number::used]] for number in range(used)}


def await_values(
    stage: Stage, enough: Callable[[Values], bool], *, committed: bool = True, timeout_s: float = TIMEOUT_S
) -> Values:
    """Read the output until there is enough. Raises AssertionError after a while."""
    deadline, found = time.monotonic() + timeout_s, defaultdict[int, list[bytes]](list)
    with reading(stage.bootstrap, stage.counts, committed) as (consumer, _):
        while not enough(found):
            assert time.monotonic() < deadline, f"{ {number: len(values) for number, values in found.items()} }"
            for message in consumer.consume(10_000, 0.02):
                value, partition = message.value(), message.partition()
                if message.error() is None and value is not None and partition is not None:
                    found[partition].append(value)
    return dict(found)


def count_of(found: Values) -> int:
    """How many values there are."""
    return sum(map(len, found.values()))
