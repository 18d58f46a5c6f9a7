"""Coordinator partition: which partition of an internal topic a group or transactional id belongs to.

Kafka: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from odradek.protocol.java_hash import string_hash

LONGEST_CACHED: Final = 256
"""Characters of a name whose partition is remembered: with 4,096 names, the cache takes four megabytes at most."""


def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` for a group or transactional id.

    Java's String.hashCode over UTF-16 units, made positive as Kafka's Utils.abs does it, modulo the count.
    """
    cached = _remembered if len(key) <= LONGEST_CACHED else _remembered_long
    return cached(key, partition_count)


def _partition(key: str, partition_count: int) -> int:
    code = string_hash(key)
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code % partition_count


_remembered: Final = lru_cache(maxsize=4096)(_partition)
_remembered_long: Final = lru_cache(maxsize=16)(_partition)
"""One request looks the partition of a name up several times."""
