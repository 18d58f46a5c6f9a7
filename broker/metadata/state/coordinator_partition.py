"""Coordinator partition: which partition of an internal topic a group or transactional id belongs to.

Kafka: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` for a group or transactional id.

    Java's String.hashCode over UTF-16 units, made positive as Kafka's Utils.abs does it, modulo the count.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code % partition_count
