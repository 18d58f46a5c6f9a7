"""The order in which Java and Scala iterate over the maps that Kafka turns into JSON.

Kafka hands hash maps to Jackson, so the keys of its znodes are in the order of a hash table. Readers accept any order,
but a cluster of mixed brokers compares and rewrites these nodes, and byte-for-byte equal nodes are easy to compare. The
orders follow from String.hashCode and three tables: scala.collection.mutable.HashMap,
scala.collection.immutable.HashMap (a CHAMP tree; small maps keep the order of insertion), and java.util.Properties (a
ConcurrentHashMap).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final

from odradek.protocol.java_hash import signed, string_hash

_WORD: Final = 0xFFFFFFFF
_SMALL_MAP: Final = 4
_BITS_PER_LEVEL: Final = 5


class Buckets:
    """The keys of a hash table, which are iterated over bucket by bucket. Adding and iterating can be interrupted."""

    def __init__(self, size: int, mix: Callable[[int], int], within: Callable[[int], int]) -> None:
        """`size` is the number of buckets; `within` is the order of the mixed hashes in a bucket."""
        self._mask = size - 1
        self._mix = mix
        self._within = within
        self._buckets: dict[int, list[tuple[int, str]]] = {}

    def add(self, key: str) -> None:
        """Add a key that is not in the table."""
        mixed = self._mix(string_hash(key))
        self._buckets.setdefault(mixed & self._mask, []).append((self._within(mixed), key))

    def __iter__(self) -> Iterator[str]:
        for bucket in range(self._mask + 1):
            for _, key in sorted(self._buckets.get(bucket, ()), key=itemgetter(0)):
                yield key


def scala_mutable_buckets(count: int) -> Buckets:
    """The buckets of a scala.collection.mutable.HashMap into which `count` keys are put one by one."""
    size = 16
    # The table doubles before the key that would fill three quarters of it.
    while count >= size * 3 // 4:
        size *= 2
    # A bucket is sorted by hash, as a signed number.
    return Buckets(size, _spread, signed)


def scala_mutable_order(keys: Iterable[str]) -> list[str]:
    """The order of a scala.collection.mutable.HashMap into which the keys were put one by one."""
    keys = list(keys)
    buckets = scala_mutable_buckets(len(keys))
    for key in keys:
        buckets.add(key)
    return list(buckets)


def properties_order(keys: Iterable[str]) -> list[str]:
    """The order of a java.util.Properties into which the keys were put one by one."""
    keys = list(keys)
    size = 16
    # The table doubles after the key that fills three quarters of it.
    while len(keys) >= size * 3 // 4:
        size *= 2
    buckets = Buckets(size, lambda value: _spread(value) & 0x7FFFFFFF, lambda _: 0)
    for key in keys:
        buckets.add(key)
    return list(buckets)


def scala_immutable_order(keys: Iterable[str]) -> list[str]:
    """The order of a scala.collection.immutable.Map."""
    keys = list(keys)
    if len(keys) <= _SMALL_MAP:
        return keys
    return _walk([(_improve(string_hash(key)), key) for key in keys], 0)


def _spread(value: int) -> int:
    return value ^ value >> 16


def _improve(value: int) -> int:
    value = (value + ~(value << 9)) & _WORD
    value ^= value >> 14
    value = (value + (value << 4)) & _WORD
    return value ^ value >> 10


def _walk(pairs: list[tuple[int, str]], shift: int) -> list[str]:
    # A node of the tree holds its lone keys first and its subtrees behind them, both by the next five bits of the hash.
    if shift > 30:
        return [key for _, key in pairs]
    slots: dict[int, list[tuple[int, str]]] = {}
    for pair in pairs:
        slots.setdefault(pair[0] >> shift & 31, []).append(pair)
    lone = [slots[slot][0][1] for slot in sorted(slots) if len(slots[slot]) == 1]
    for slot in sorted(slots):
        if len(slots[slot]) > 1:
            lone += _walk(slots[slot], shift + _BITS_PER_LEVEL)
    return lone
