"""Hash codes of Java objects, where Kafka lets a result depend on them (java.lang.String.hashCode).

The partition of a coordinator, the order of keys in a znode and the order of names in a topology follow from them.
"""

from __future__ import annotations

import sys
from operator import mul
from typing import Final

_BITS: Final = 0xFFFFFFFF
_NATIVE: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_UNITS: Final = 64
"""UTF-16 units that are added in one call: a client can send names of 32,767 bytes."""
_POWERS: Final = tuple(31**exponent & _BITS for exponent in range(_UNITS - 1, -1, -1))
_SHIFT: Final = 31**_UNITS & _BITS


def string_hash(text: str) -> int:
    """String.hashCode as an unsigned number of 32 bits; it counts UTF-16 units, lone surrogates included."""
    units = memoryview(text.encode(_NATIVE, "surrogatepass")).cast("H")
    first = len(units) % _UNITS
    code = sum(map(mul, units[:first], _POWERS[_UNITS - first :])) if first else 0
    for begin in range(first, len(units), _UNITS):
        code = (code * _SHIFT + sum(map(mul, units[begin : begin + _UNITS], _POWERS))) & _BITS
    return code & _BITS


def signed(code: int) -> int:
    """An unsigned number of 32 bits as Java's int."""
    return code - (1 << 32) if code >> 31 else code
