"""Corrupts encoded messages in typical ways."""

from __future__ import annotations

import random

HOSTILE = (
    b"\x7f\xff\xff\xff",  # the largest int32
    b"\xff\xff\xff\xff\x07",  # the same as a varint
    b"\xff\xff\xff\xff\x0f",  # a varint beyond it
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",  # -2
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\x7f",
    b"\x00",
    b"\xff",
    b"\xc3\x28",  # not UTF-8
)


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """A copy that is invalid, or at least different."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randint(0, len(out))
        kind = rng.randint(0, 5)
        if kind == 0:
            del out[at:]
        elif kind == 1:
            hostile = rng.choice(HOSTILE)
            out[at : at + len(hostile)] = hostile
        elif kind == 2:
            out[at:at] = rng.choice(HOSTILE)
        elif kind == 3:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 4:
            del out[at : at + rng.randint(1, 4)]
        else:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(out)
