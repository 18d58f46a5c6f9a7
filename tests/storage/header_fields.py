"""Batches with each field of the header at its extremes and at random, behind a valid checksum.

The same batches go to Apache Kafka over the wire (`tests/broker/test_header_fields_oracle.py`) and to all code here
that accepts, stores or reads a batch (`test_header_fields.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.protocol import batch
from odradek.protocol.batch import Codec, Header, Record

NOW_MS: Final = 1_700_000_000_000

_INT8: Final = (0, 1, 2, 3, -1, 127, -128)
_INT16: Final = (0, 1, 2, -1, -2, 2**15 - 1, -(2**15))
_INT32: Final = (0, 1, 2, 5, -1, -2, 2**31 - 1, -(2**31))
_INT64: Final = (0, 1, -1, -2, -5, 77, 2**63 - 1, -(2**63))
_TIMES: Final = (*_INT64, NOW_MS, NOW_MS + 10**9, NOW_MS - 10**9, 2**63 - 2)

EXTREMES: Final[dict[str, tuple[int, ...]]] = {
    "base_offset": _INT64,
    "batch_length": (*_INT32, 13, 14, 48, 49, 50, 69),
    "leader_epoch": _INT32,
    "magic": _INT8,
    "crc": (0, 1, 2**32 - 1),
    "attributes": (
        *_INT16,
        *(1 << bit for bit in range(15)),
        *(codec | flag for codec in range(8) for flag in (0, 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x100)),
    ),
    "last_offset_delta": _INT32,
    "base_timestamp": _TIMES,
    "max_timestamp": _TIMES,
    "producer_id": _INT64,
    "producer_epoch": _INT16,
    "base_sequence": _INT32,
    "record_count": _INT32,
}
"""Values worth drawing, by the field of `Header`."""

_RANGES: Final = {"magic": 8, "attributes": 16, "producer_epoch": 16, "crc": 0}
_RANGES_64: Final = frozenset({"base_offset", "base_timestamp", "max_timestamp", "producer_id"})
_RECORDS: Final = [Record(0, NOW_MS, b"k", b"value"), Record(1, NOW_MS + 5, b"key", None, [("h", b"1")])]


class Case(NamedTuple):
    """A batch, and which of its fields were drawn."""

    text: str
    data: bytes


BASES: Final[dict[str, bytes]] = {
    "plain": bytes(batch.build(_RECORDS[:1])),
    "two records": bytes(batch.build(_RECORDS)),
    "idempotent": bytes(batch.build(_RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)),
    "transactional": bytes(batch.build(_RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)),
    "append time": bytes(batch.build(_RECORDS, log_append_time_ms=NOW_MS)),
    "marker": bytes(
        batch.control_batch(commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
    ),
    **{codec.name.lower(): bytes(batch.build(_RECORDS, codec=codec)) for codec in Codec if codec},
}
"""Valid batches, by name."""


def with_fields(original: bytes, fields: dict[str, int]) -> bytes:
    """The batch with other fields. The checksum is made valid for the declared length, unless it is a field."""
    header = batch.read_header(original)._replace(**fields)
    data = bytearray(batch._HEADER.pack(*header)) + original[batch.HEADER_SIZE :]
    if "crc" not in fields:
        end = batch.LOG_OVERHEAD + max(header.batch_length, 0)
        data[17:21] = crc32c(memoryview(data)[batch.ATTRIBUTES_POSITION : end]).to_bytes(4)
    return bytes(data)


def of_producer(data: bytes, producer_id: int) -> bytes:
    """The batch from another producer, where it is one of producer 7: so no two cases share a producer's state."""
    header = batch.read_header(data)
    if header.producer_id != 7:
        return data
    fields = {"producer_id": producer_id}
    sound = crc32c(memoryview(data)[batch.ATTRIBUTES_POSITION : max(header.size, 21)]) == header.crc
    return with_fields(data, fields if sound else {**fields, "crc": header.crc})


def drawn_value(field: str, chance: random.Random) -> int:
    """A value of the field: mostly an extreme one, else any."""
    if chance.random() < 0.75 or field in ("crc", "magic"):
        return chance.choice(EXTREMES[field])
    bits = 64 if field in _RANGES_64 else _RANGES.get(field, 32)
    return chance.randrange(-(1 << bits - 1), 1 << bits - 1)


def single_fields() -> Iterator[Case]:
    """Every base, every field, every extreme, and possible bytes behind a batch."""
    for name, original in BASES.items():
        yield Case(name, original)
        for rest in (b"\0", bytes(11), bytes(12), bytes(70), original[:-1], original[:17], original):
            yield Case(f"{name}, {len(rest)} bytes behind it", original + rest)
        for field, values in EXTREMES.items():
            for value in dict.fromkeys(values):
                if value != getattr(batch.read_header(original), field):
                    yield Case(f"{name}, {field}={value}", with_fields(original, {field: value}))


def drawn(chance: random.Random, count: int) -> Iterator[Case]:
    """Batches with one to four fields drawn; fields that a broker checks last are drawn more often."""
    often = [name for name in Header._fields if name not in ("magic", "crc", "batch_length", "base_offset")]
    for _ in range(count):
        name = chance.choice(list(BASES))
        names = chance.sample(often if chance.random() < 0.9 else list(Header._fields), chance.randint(1, 4))
        fields = {each: drawn_value(each, chance) for each in names}
        text = ", ".join(f"{each}={value}" for each, value in fields.items())
        yield Case(f"{name}, {text}", with_fields(BASES[name], fields))
