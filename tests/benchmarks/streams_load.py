"""The records that stream applications are measured with: drawn from one seed, the same for every contestant.

A record's key is one of KEYS words, its value a text of so many bytes that begins with hexadecimal digits; 1 ms lies
between the timestamps of one record and the next. The table has a row for each key.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.streams_topologies import ADVANCE_MS, COUNTS, WINDOW_MS, Kind

KEYS: Final = 10_000
FIRST_MS: Final = (time.time_ns() // 60_000_000_000 - 60) * 60_000
"""The beginning of a minute an hour ago: records older than a day could be deleted from the topics of windows."""
ROW_BYTES: Final = 40
_DIGITS: Final = 64


def key(number: int) -> bytes:
    """A key."""
    return b"word-%06d" % number


def records(count: int, value_bytes: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value and timestamp of each record, in order. A smaller number of records is a prefix of a larger one."""
    random = Random(7)
    noise = random.randbytes(max(1, value_bytes)).hex().encode()
    keys = [key(number) for number in range(KEYS)]
    choose, bits = random.choice, random.getrandbits
    for number in range(count):
        digits = b"%016x" % bits(64)
        yield choose(keys), digits + noise[number % _DIGITS : number % _DIGITS + value_bytes - 16], FIRST_MS + number


def rows() -> Iterator[tuple[bytes, bytes, int]]:
    """The rows of the table, all older than the records."""
    for number in range(KEYS):
        yield key(number), (b"row of %06d " % number).ljust(ROW_BYTES, b"."), FIRST_MS - KEYS + number


def expected(kind: Kind, count: int, value_bytes: int) -> Counter[bytes]:
    """The expected output for each key at the end.

    Of counts, the key's last values, summed up over all windows; of other results, the number of records, under the key
    b"".
    """
    found: Counter[bytes] = Counter()
    for word, value, timestamp in records(count, value_bytes):
        if kind == "stateless":
            found[b""] += value[:1] != b"0"
        elif kind not in COUNTS:
            found[b""] += 1
        elif kind == "hopping":
            found[word] += len(starts(timestamp, ADVANCE_MS))
        else:
            found[word] += 1
    return found


def starts(timestamp: int, advance_ms: int) -> range:
    """The starts of the windows that contain a time."""
    return range((timestamp - WINDOW_MS + advance_ms) // advance_ms * advance_ms, timestamp + 1, advance_ms)
