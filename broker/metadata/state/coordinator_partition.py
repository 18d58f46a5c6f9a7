"""Coordinator partition: which partition of an internal topic a group or transactional id belongs to.

Kafka: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor.
"""

from __future__ import annotations

from functools import lru_cache

from odradek.protocol.java_hash import string_hash


@lru_cache(maxsize=4096)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` for a group or transactional id.

    Java's String.hashCode over UTF-16 units, made positive as Kafka's Utils.abs does it, modulo the count.
    """
    code = string_hash(key)
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code % partition_count
