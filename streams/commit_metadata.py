"""Commit metadata: the partition time beside a committed offset (Kafka: TopicPartitionMetadata, KIP-904).

Base64 of a version (2), the partition's latest timestamp (8 bytes), and a few numbers of processors by name: their
count (4 bytes), then for each the length of its name (4), the name, and its number (8). Version 1 has no numbers.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping

from odradek.streams.records import NO_TIMESTAMP

_HEAD = struct.Struct(">bq")
_COUNT = struct.Struct(">i")
_NUMBER = struct.Struct(">q")
VERSION = 2


def encode_metadata(partition_time: int, processors: Mapping[str, int]) -> str:
    """The text to commit along with an offset."""
    parts = [_HEAD.pack(VERSION, partition_time)]
    if processors:
        parts.append(_COUNT.pack(len(processors)))
        for name, number in processors.items():
            key = name.encode()
            parts += [_COUNT.pack(len(key)), key, _NUMBER.pack(number)]
    return base64.b64encode(b"".join(parts)).decode()


def decode_metadata(text: str | None) -> tuple[int, dict[str, int]]:
    """The latest timestamp, -1 if unknown, and the numbers. Unreadable metadata counts as unknown."""
    unknown: tuple[int, dict[str, int]] = (NO_TIMESTAMP, {})
    if not text:
        return unknown
    try:
        data = base64.b64decode(
            text.rstrip("\0"), validate=True
        )  # librdkafka's binding includes the terminating zero byte
        version, partition_time = _HEAD.unpack_from(data)
        if version not in (1, VERSION):
            return unknown
        processors: dict[str, int] = {}
        if version == VERSION and len(data) > _HEAD.size:
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
            at = _HEAD.size + 4
            for _ in range(count):
                (length,) = _COUNT.unpack_from(data, at)
                name = data[at + 4 : at + 4 + length].decode()
                (processors[name],) = _NUMBER.unpack_from(data, at + 4 + length)
                at += 12 + length
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError):
        return unknown
    return partition_time, processors
