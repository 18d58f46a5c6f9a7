"""Invalid batches with a valid checksum, so that the checks behind the checksum are reached."""

from __future__ import annotations

import random
from collections.abc import Iterator

from crc32c import crc32c

from odradek.protocol import batch
from odradek.protocol.compression import compress, decompress


def sealed(damaged: bytearray) -> bytes:
    """The batch with its checksum corrected."""
    damaged[17:21] = crc32c(memoryview(damaged)[21:]).to_bytes(4, "big")
    return bytes(damaged)


def with_payload(original: bytes, payload: bytes) -> bytes:
    """The batch around other (compressed) records."""
    damaged = bytearray(original[: batch.HEADER_SIZE] + payload)
    damaged[8:12] = (len(damaged) - batch.LOG_OVERHEAD).to_bytes(4, "big")
    return sealed(damaged)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """`data` with a byte changed, cut out, put in, or the end cut off."""
    changed = bytearray(data)
    where = chance.randrange(len(changed)) if changed else 0
    match chance.randrange(6):
        case 0 | 1:
            changed[where : where + 1] = bytes([chance.randrange(256)])
        case 2:
            changed[where : where + 1] = bytes([chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))])
        case 3:
            del changed[where : where + chance.randint(1, 3)]
        case 4:
            changed[where:where] = chance.randbytes(chance.randint(1, 3))
        case 5:
            del changed[where:]
    return bytes(changed)


def mutants(original: bytes, chance: random.Random, number: int) -> Iterator[bytes]:
    """Batches that differ from `original` in the header's fields, in the records, or in their compressed form."""
    payload = original[batch.HEADER_SIZE :]
    codec = batch.read_header(original).codec
    plain = bytes(decompress(codec, payload, 1 << 20))
    for index in range(number):
        match index % 3:
            case 0:
                damaged = bytearray(original)
                where = chance.randrange(21, batch.HEADER_SIZE)
                damaged[where] = chance.choice((0, 1, damaged[where] ^ 1 << chance.randrange(8), 0xFF))
                yield sealed(damaged)
            case 1:
                yield with_payload(original, bytes(compress(codec, mutated(plain, chance))))
            case 2:
                yield with_payload(original, mutated(payload, chance))
