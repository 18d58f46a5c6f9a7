"""Reads and writes the small text files beside the logs, byte for byte as Kafka 3.9 writes them.

    NAME-offset-checkpoint    version 0, a count, then `topic partition offset` a line (OffsetCheckpointFile)
    leader-epoch-checkpoint   version 0, a count, then `epoch start-offset` a line (KIP-101)
    partition.metadata        `version: 0` and `topic_id: ` in URL-safe base64 (KIP-516)
    meta.properties           version, broker.id and cluster.id in Java's properties format
    .kafka_cleanshutdown      JSON: version and broker epoch (KIP-966); here: all logs were flushed and closed

Decoding returns plain values or raises CorruptFile. The caller decides where a file belongs and what it means that a
file is missing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from array import array
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from odradek.protocol.topic_partition import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

ZERO_UUID: Final = bytes(16)

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_ESCAPES: Final = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
_UNESCAPES: Final = {letter: character for character, letter in _ESCAPES.items()}
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")

Offsets = dict[TopicPartition, int]


class CorruptFile(Exception):  # noqa: N818 - named after its cause
    """A file of the data directory whose bytes do not have the format that its name implies."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """(topic, partition) -> offset as an offset checkpoint."""
    return encode_rows(encode_offset(partition, offset) for partition, offset in sorted(offsets.items()))


def encode_offset(partition: TopicPartition, offset: int | None) -> str:
    """A line of an offset checkpoint."""
    return f"{partition[0]} {partition[1]} {offset}"


def decode_offsets(data: bytes) -> Offsets:
    """The offsets of an offset checkpoint. Raises CorruptFile."""
    offsets: Offsets = {}
    for topic, partition, offset in _decode_table(data, 3):
        offsets[topic, _integer(partition)] = _integer(offset)
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """(leader epoch, start offset) pairs as a leader epoch checkpoint."""
    return encode_rows(f"{epoch} {offset}" for epoch, offset in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """The pairs of a leader epoch checkpoint, in the file's order. Raises CorruptFile."""
    return [(_integer(epoch), _integer(offset)) for epoch, offset in _decode_table(data, 2)]


def encode_rows(lines: Iterable[str]) -> bytes:
    """A table of version 0: the number of lines, then the lines."""
    rows = list(lines)
    return "".join(f"{line}\n" for line in ("0", str(len(rows)), *rows)).encode()


def decode_rows(data: bytes) -> list[list[str]]:
    """The words of each line of a table of version 0. Raises CorruptFile."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"not text: {error}") from None
    if len(lines) < 2 or lines[0] != "0":
        raise CorruptFile(f"the first line is {lines[:1]}, where version 0 is read")
    rows = [line.split() for line in lines[2:]]
    if _integer(lines[1]) != len(rows):
        raise CorruptFile(f"{len(rows)} entries, where the second line announces {lines[1]}")
    return rows


def _decode_table(data: bytes, columns: int) -> list[list[str]]:
    rows = decode_rows(data)
    for number, row in enumerate(rows):
        if len(row) != columns:
            raise CorruptFile(f"line {number + 3} has {len(row)} fields of {columns}")
    return rows


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptFile(f"{text!r} where a whole number is read") from None


def encode_uuid(uuid: bytes) -> str:
    """16 bytes as Kafka prints ids: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """The 16 bytes of a printed id. Raises CorruptFile."""
    try:
        uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise CorruptFile(f"{text!r} where an id of 22 base64 characters is read")
    return uuid


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The file that stores the id of the topic to which a log belongs (KIP-516)."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic id, 16 bytes. Raises CorruptFile."""
    values = dict(_split(line, ":") for line in data.decode("latin-1").splitlines() if line)
    if values.get("version") != "0" or "topic_id" not in values:
        raise CorruptFile(f"{data[:80]!r} where version 0 and a topic_id are read")
    return decode_uuid(values["topic_id"])


def _split(line: str, separator: str) -> tuple[str, str]:
    key, _, value = line.partition(separator)
    return key.strip(), value.strip()


def encode_properties(properties: Mapping[str, str], now_ms: int) -> bytes:
    """Java's properties format, with its empty comment and its date line (UTC)."""
    date = datetime.fromtimestamp(now_ms / 1000, UTC).ctime()  # English in every locale
    weekday, month, day, clock, year = date.split()
    lines = ["#", f"#{weekday} {month} {day:>02} {clock} UTC {year}"]
    lines += [f"{_escaped(key, spaces=True)}={_escaped(value, spaces=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def _escaped(text: str, *, spaces: bool) -> str:
    """As Java's Properties.store writes it: in a value only a leading space needs the backslash."""
    parts = []
    for number, unit in enumerate(array("H", text.encode(_UTF_16, "surrogatepass"))):
        character = chr(unit)
        if character in _ESCAPES:
            parts.append("\\" + _ESCAPES[character])
        elif character in "\\:=#!" or (character == " " and (spaces or number == 0)):
            parts.append("\\" + character)
        else:
            parts.append(character if " " <= character <= "~" else f"\\u{unit:04X}")
    return "".join(parts)


def decode_properties(data: bytes) -> dict[str, str]:
    """Keys and values of a properties file, as far as Kafka's own writer uses the format. Raises CorruptFile."""
    properties: dict[str, str] = {}
    for line in _LINE_ENDS.split(data.decode("latin-1")):
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        value = line[end:].lstrip(" \t\f")
        properties[_unescaped(line[:end])] = _unescaped(value[1:].lstrip(" \t\f") if value[:1] in ("=", ":") else value)
    return properties


def _unescaped(text: str) -> str:
    characters: list[str] = []
    position = 0
    while position < len(text):
        if text[position] != "\\":
            characters.append(text[position])
            position += 1
        elif text[position + 1 : position + 2] == "u":
            try:
                characters.append(chr(int(text[position + 2 : position + 6], 16)))
            except ValueError:
                raise CorruptFile(f"{text!r} has a \\u without four hex digits") from None
            position += 6
        else:
            escaped = text[position + 1 : position + 2]
            characters.append(_UNESCAPES.get(escaped, escaped))
            position += 2
    return "".join(characters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The clean shutdown file: all logs were flushed and closed. `broker_epoch` is that of the broker that stopped."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The epoch of the broker that stopped, -1 where the file has none (it was empty before Kafka 3.7)."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
