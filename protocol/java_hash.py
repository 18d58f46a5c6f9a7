"""Hash codes of Java objects, where Kafka lets a result depend on them (java.lang.String.hashCode).

The partition of a coordinator, the order of keys in a znode and the order of names in a topology follow from them.
"""

from __future__ import annotations

import struct


def string_hash(text: str) -> int:
    """String.hashCode as an unsigned number of 32 bits; it counts UTF-16 units, lone surrogates included."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


def signed(code: int) -> int:
    """An unsigned number of 32 bits as Java's int."""
    return code - (1 << 32) if code >> 31 else code
