"""Source offsets: the records of the topic of offsets, in the format of Kafka Connect (OffsetStorageWriter).

The key is the JSON array [connector, partition], the value the offset as a JSON object, or null where an offset was
removed (KIP-875). The names of an object are sorted, so that equal partitions have equal bytes. A key's Kafka partition
is the one that Kafka's own producers choose; its number is that of the task that reads the source partition.
"""

from __future__ import annotations

import json
from typing import Any

from odradek.streams.connectors.errors import ConnectError
from odradek.streams.connectors.interface import SourceOffset, SourcePartition
from odradek.streams.murmur2 import partition_of


def offset_key(connector: str, partition: SourcePartition) -> bytes:
    """The key of a source partition. Raises ConnectError."""
    return _to_json([connector, dict(partition)], "source partition", partition)


def offset_value(offset: SourceOffset) -> bytes:
    """The value of a source offset. Raises ConnectError."""
    return _to_json(dict(offset), "source offset", offset)


def read_offset(value: bytes | None) -> dict[str, Any] | None:
    """The offset of a record; None for a null value. Raises ConnectError."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ConnectError(f"a record of the topic of offsets is no JSON: {value[:100]!r}") from error
    if not (found is None or isinstance(found, dict)):
        raise ConnectError(f"a record of the topic of offsets is no JSON object: {value[:100]!r}")
    return found


def task_of(key: bytes, tasks: int) -> int:
    """The task, of so many, that reads the source partition with this key."""
    return partition_of(key, tasks)


def _to_json(content: Any, what: str, given: Any) -> bytes:
    try:
        return json.dumps(content, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ConnectError(f"{what} {given!r} cannot be written as JSON: {error}") from error
