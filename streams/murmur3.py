"""Murmur3 with 128 bits, by which foreign-key joins compare values (org.apache.kafka.streams.state.internals.Murmur3).

It is Austin Appleby's MurmurHash3_x64_128 with a seed of Kafka's own choice. A subscription carries the hash of the
left value; a response with a hash that differs from that of the current value is dropped (KIP-213).
"""

from __future__ import annotations

import struct
from typing import Final

SEED: Final = 104729
_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_PAIRS: Final = struct.Struct("<QQ")
_RESULT: Final = struct.Struct(">QQ")


def hash128(data: bytes) -> bytes:
    """The hash of `data` as 16 bytes: the two numbers of Java's result, big-endian."""
    h1 = h2 = SEED
    length = len(data)
    whole = length & ~15
    for k1, k2 in _PAIRS.iter_unpack(memoryview(data)[:whole]):
        h1 ^= _mix(k1, _C1, 31, _C2)
        h1 = ((h1 << 27 | h1 >> 37) & _MASK) + h2
        h1 = (h1 * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix(k2, _C2, 33, _C1)
        h2 = ((h2 << 31 | h2 >> 33) & _MASK) + h1
        h2 = (h2 * 5 + 0x38495AB5) & _MASK
    if whole < length:
        k1, k2 = _PAIRS.unpack(data[whole:].ljust(16, b"\0"))
        h1 ^= _mix(k1, _C1, 31, _C2)
        h2 ^= _mix(k2, _C2, 33, _C1)
    h1 ^= length
    h2 ^= length
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _spread(h1), _spread(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return _RESULT.pack(h1, h2)


def _mix(k: int, first: int, turn: int, second: int) -> int:
    k = k * first & _MASK
    return (k << turn | k >> 64 - turn) * second & _MASK


def _spread(h: int) -> int:
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & _MASK
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
