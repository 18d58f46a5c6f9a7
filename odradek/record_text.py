"""Records as kafka-dump-log of Kafka 3.9 prints them: plain text, and the records of coordinators.

`offsets_text` is OffsetsMessageParser: type and fields of keys and values of `__consumer_offsets` as JSON, with the
subscription and the assignment of a member of a consumer group decoded. `transaction_text` is
TransactionLog.formatRecordKeyAndValue. The JSON is that of Kafka's generated converters: names in camel case, bytes in
base64, a tagged field only where it is not its default.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import struct
from functools import cache
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError
from odradek.protocol.grammar import Field, MessageSpec, StructSpec, parse
from odradek.protocol.java_hash import signed, string_hash
from odradek.protocol.records import Record
from odradek.protocol.topic_partition import TopicPartition

KeyAndValue = tuple[str | None, str | None]
"""The text behind `key:` and `payload:`; None prints nothing."""

_VERSION: Final = struct.Struct(">h")
_KINDS: Final = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
}
_DELETED: Final = "<DELETE>"
_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


# -- text --------------------------------------------------------------------------------------------------------------


def _like_java(error: UnicodeError) -> TopicPartition:
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    surrogate = data[start] == 0xED and len(data) > start + 2 and data[start + 1] >= 0xA0 and data[start + 2] >> 6 == 2
    return "\ufffd", start + 3 if surrogate and data[start + 1] <= 0xBF else error.end


codecs.register_error("odradek.java", _like_java)


def java_text(data: bytes) -> str:
    """UTF-8 as Java reads it: as Python's "replace", but a surrogate becomes one replacement in place of three."""
    return data.decode("utf-8", "odradek.java")


# -- __consumer_offsets ------------------------------------------------------------------------------------------------


def offsets_text(record: Record) -> KeyAndValue:
    """Key and value of a record of `__consumer_offsets`. Raises ProtocolError where there is no key."""
    if record.key is None:
        raise ProtocolError("OffsetCommitKey", 0, f"the record at offset {record.offset} has no key")
    try:
        kind = _version(record.key)
        if kind not in _KINDS:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key = _json({"type": str(kind), "data": _decoded(f"{_KINDS[kind]}Key", record.key, kind)})
        if record.value is None:
            return key, _DELETED
        version = _version(record.value)
        fields = _decoded(f"{_KINDS[kind]}Value", record.value, version)
    except ProtocolError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    if kind == 2 and fields["protocolType"] == "consumer":
        for member in fields["members"]:
            for name in ("subscription", "assignment"):
                member[name] = _taken_apart(f"ConsumerProtocol{name.capitalize()}", member[name])
    return key, _json({"version": str(version), "data": fields})


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("version", 0, f"{len(data)} bytes, where a version takes {_VERSION.size}")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _taken_apart(name: str, text: str | None) -> Any:
    """A message inside a field of bytes as JSON; the unchanged field where it holds something else."""
    data = base64.b64decode(text or "")
    try:
        version = min(_version(data), getattr(m, name).MAX_VERSION)
        return _decoded(name, data, version)
    except ProtocolError:
        return text


def _decoded(name: str, data: bytes, version: int) -> dict[str, Any]:
    message = getattr(m, name).decode(data, version, _VERSION.size)
    definition = _definition(name)
    return _fields(definition, definition.root, message, version)


@cache
def _definition(name: str) -> MessageSpec:
    path = m.texts()[name]
    return parse(path.read_text(encoding="utf-8"), path.name)[name]


def _fields(definition: MessageSpec, struct_of: StructSpec, value: Any, version: int) -> dict[str, Any]:
    fields = {}
    for field in struct_of.fields:
        content = getattr(value, field.attribute)
        if version in field.versions and not (field.tag is not None and _is_default(field, content)):
            fields[field.name[0].lower() + field.name[1:]] = _shown(definition, field, content, version)
    return fields


def _is_default(field: Field, content: Any) -> bool:
    if field.is_array:
        return content is None if field.default_is_null else content == []
    if not field.is_struct:
        return bool(content == field.default)
    if content is None:
        return field.default_is_null or field.absent_is_none
    return not field.default_is_null and content == type(content)()


def _shown(definition: MessageSpec, field: Field, content: Any, version: int) -> Any:
    if isinstance(content, list):
        return [_shown(definition, field, item, version) for item in content]
    if content is None:
        return None
    if field.is_struct:
        return _fields(definition, definition.structs[field.type], content, version)
    if field.type == "uuid":
        return base64.urlsafe_b64encode(content).decode().rstrip("=")
    if isinstance(content, bytes | bytearray | memoryview):
        return base64.b64encode(content).decode()
    return content


def _json(value: object) -> str:
    """JSON as Jackson writes it: nothing between the tokens, and escapes in capital digits."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda found: f"\\u{found[0][2:].upper()}" if found[0][1] == "u" else found[0], text)


# -- __transaction_state -----------------------------------------------------------------------------------------------


def transaction_text(record: Record) -> KeyAndValue:
    """Key and value of a record of `__transaction_state`. Raises ProtocolError where they cannot be read."""
    kind = _version(record.key or b"")
    if kind != 0:
        return f"unknown::version={kind}", None
    transactional_id = m.TransactionLogKey.decode(record.key or b"", 0, _VERSION.size).transactional_id
    return f"transaction_metadata::transactionalId={transactional_id}", _state_text(record.value)


def _state_text(data: bytes | None) -> str:
    if data is None:
        return _DELETED
    version = _version(data)
    if version > m.TransactionLogValue.MAX_VERSION:
        raise ProtocolError("TransactionLogValue.version", 0, f"version {version} is not known")
    value = m.TransactionLogValue.decode(data, version, _VERSION.size)
    if not 0 <= value.transaction_status < len(_STATES):
        raise ProtocolError("TransactionLogValue.status", 0, f"{value.transaction_status} is no state")
    topics = [(part.topic, part.partition_ids) for part in value.transaction_partitions or ()]
    shown = ",".join(f"{topic}-{index}" for topic, index in in_order_of_scala(topics))
    return (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},"
        f"state={_STATES[value.transaction_status]},partitions=[{shown}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},txnTimeoutMs={value.transaction_timeout_ms}"
    )


def in_order_of_scala(topics: list[tuple[str, list[int]]]) -> list[TopicPartition]:
    """Partitions in the iteration order of a Scala 2.13 mutable HashSet to which they were added topic by topic.

    The set begins with 16 buckets, and a bucket holds its members by their hash. Adding up to four members checks
    whether the set is three quarters full, and doubles the buckets; adding more at once only ensures that those have
    room.
    """
    places = 16
    hashes: dict[TopicPartition, int] = {}
    for topic, indexes in topics:
        added = dict.fromkeys((topic, index) for index in indexes)
        places = max(places, 1 << max(int((len(added) + 1) / 0.75) - 1, 4).bit_length())
        for partition in added:
            if len(added) <= 4 and len(hashes) + 1 >= int(places * 0.75):
                places *= 2
            hashes[partition] = _hash(*partition)
    return sorted(hashes, key=lambda partition: (hashes[partition] & (places - 1), signed(hashes[partition])))


def _hash(topic: str, index: int) -> int:
    """The hash of Java's TopicPartition, mixed as Scala does, as an unsigned number."""
    mixed = (31 * (31 + index) + string_hash(topic)) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)
