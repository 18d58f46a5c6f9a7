"""Helpers of the walks over Python's libraries: names, times, records, and lines that are the same from run to run."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

from odradek.wire import Wire, parse_address

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC: Final = 20
PARTITIONS: Final = 4
TOTAL: Final = len(CODECS) * PER_CODEC
DEADLINE_S: Final = 150.0
"""The timeout of each wait; a slow machine can need long."""
SESSION_MS: Final = 30_000
"""Longer than a member is ever silent, also where three clients and a broker share a slow core."""

bootstrap: Final = sys.argv[1]
stem: Final = sys.argv[2]
replication: Final = int(sys.argv[3])
begun_ms: Final = int(time.time()) * 1000 - 3_600_000
"""An hour ago, so that a record with a time of its own differs from one with the broker's."""


def topic(name: str) -> str:
    return f"{stem}-{name}"


def say(*words: object) -> None:
    print(*(str(word).replace(stem, "STEM") for word in words), flush=True)


def outcome(error: BaseException | None) -> str:
    """The name of an error's class, or a word for none."""
    return "done" if error is None else type(error).__name__


def until(what: str, ask: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
    """Poll until a response is good enough; return that one."""
    limit = Limit(what)
    while not enough(answer := ask()):
        limit.check()
    return answer


def settle(partitions: dict[str, int]) -> None:
    """Wait until every broker returns these topics with this many partitions.

    A broker receives a topic, and its new partitions, a moment after the controller creates them; the client chooses
    the broker that it requests metadata from.
    """
    for address in bootstrap.split(","):
        with Wire(*parse_address(address), DEADLINE_S) as wire:
            until(
                f"{partitions} on {address}",
                lambda wire=wire: {each.name: len(each.partitions) for each in wire.metadata(list(partitions)).topics},
                lambda known: bool(known == partitions),
            )


class Record:
    """The n-th record of a walk."""

    def __init__(self, number: int) -> None:
        self.codec = CODECS[number // PER_CODEC]
        self.partition = number % PARTITIONS
        self.key = f"key {number}".encode() if number % 5 else None
        self.value = f"{self.codec} {number} ".encode() * 20 if number % 7 or self.key is None else None
        self.headers = [("codec", self.codec.encode()), ("empty", b"")]
        self.timestamp_ms = begun_ms + 1000 * number


class Digest:
    """The records read, in the order of each partition."""

    def __init__(self) -> None:
        self.total = 0
        self._sums: dict[int, int] = {}
        self._counts: dict[int, int] = {}

    def add(self, partition: int, offset: int, timestamp_ms: int, *content: object) -> None:
        line = f"{offset} {timestamp_ms - begun_ms} {content}"
        self._sums[partition] = zlib.crc32(line.encode(), self._sums.get(partition, 0))
        self._counts[partition] = self._counts.get(partition, 0) + 1
        self.total += 1

    def say(self, what: str) -> None:
        for partition in sorted(self._counts):
            say(what, partition, self._counts[partition], f"{self._sums[partition]:08x}")


class Limit:
    """Ends a walk that waits for too long."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._deadline = time.monotonic() + DEADLINE_S

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(self._what)
