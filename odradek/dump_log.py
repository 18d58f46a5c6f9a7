"""The text of `odradek dump-log`: the output of kafka-dump-log of Kafka 3.9 for the files of a log, line for line.

Batches and records (DumpLogSegments.dumpLog), offset and time indexes checked against their log, snapshots of
producers, indexes of aborted transactions. Mismatches between an index and its log, and gaps between offsets, go to
stderr after everything else. Where Kafka's tool ends with a stack trace, `DumpError` contains the problem in one line.

Left out: batches of magic 0 and 1, which Odradek does not read, and the records of KRaft's metadata log.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TextIO

from odradek.protocol.batch import MAX_SEQUENCE, Codec, Header, Record
from odradek.record_text import KeyAndValue, java_text
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.producers import decode_snapshot
from odradek.storage.read_files import ReadFile, base_offset_of, read_whole, sibling
from odradek.storage.reading import Batch, DamagedLog, walk

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_CONTROL_TYPES: Final = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION")
_END_OF_TRANSACTION: Final = ("ABORT", "COMMIT")
_NO_TIMESTAMP: Final = -1
NO_LIMIT: Final = 2**31 - 1


class DumpError(Exception):
    """A file that cannot be printed to its end."""


def plain_text(record: Record) -> KeyAndValue:
    """Key and value as text, the default form without a decoder."""
    key, value = record.key, record.value
    return (None if key is None else java_text(key)), (None if value is None else java_text(value))


@dataclass(frozen=True, slots=True)
class DumpLogOptions:
    """What to print. Sizes are in bytes."""

    deep: bool = False
    """A line for every record."""
    contents: bool = False
    """Keys and values, by `decode`."""
    metadata: bool = True
    """Offset, time and sizes of each record."""
    decode: Callable[[Record], KeyAndValue] = plain_text
    verify_only: bool = False
    """Check indexes against the log, without printing them."""
    sanity_only: bool = False
    """Run only the index check of a starting broker."""
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = NO_LIMIT


@dataclass(slots=True)
class _Complaints:
    """Messages for stderr at the end; pairs by file, in the order in which Kafka's tool prints them."""

    index: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    order: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        for path, pairs in self.index.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {first}, log offset: {second}" for first, second in reversed(pairs))
        for path, pairs in self.timestamps.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {first}, log timestamp: {second}" for first, second in pairs)
        for path, pairs in self.order.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (
                f"  Index timestamp: {first}, Previously indexed timestamp: {second}" for first, second in pairs
            )
        for pairs in self.offsets.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {first}, found log offset: {second}" for first, second in pairs)
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {first} is followed by {second}" for first, second in reversed(pairs))


def dump(paths: list[str], options: DumpLogOptions, out: TextIO, complaints_to: TextIO) -> None:
    """Print the files one after the other. Raises DumpError, OSError."""
    complaints = _Complaints()
    for path in paths:
        print(f"Dumping {path}", file=out)
        suffix = path[path.rfind(".") :] if "." in path else ""
        if suffix not in _PRINTERS:
            print(f"Ignoring unknown file {path}", file=complaints_to)
            continue
        if suffix != ".snapshot" and base_offset_of(path) is None:
            raise DumpError(f"{path}: the name of such a file begins with an offset of 20 digits")
        try:
            for line in _PRINTERS[suffix](path, options, complaints):
                print(line, file=out)
        except (DamagedLog, CorruptFile) as error:
            raise DumpError(str(error)) from None
    for line in complaints.lines():
        print(line, file=complaints_to)


# -- logs --------------------------------------------------------------------------------------------------------------


def _log_lines(path: str, options: DumpLogOptions, complaints: _Complaints) -> Iterator[str]:
    yield f"Log starting offset: {base_offset_of(path)}"
    with ReadFile(path) as file:
        size, position, previous = min(file.size, options.max_bytes), 0, -1
        for batch in walk(file, 0, size):
            yield batch_line(batch)
            position = batch.position + batch.header.size
            for record in batch.records() if options.deep else ():
                if previous not in (-1, record.offset - 1):
                    complaints.gaps.setdefault(os.path.join(os.getcwd(), path), []).append((previous, record.offset))
                previous = record.offset
                yield _record_line(batch, record, options)
        if size > position and options.max_bytes == NO_LIMIT:
            yield f"Found {size - position} invalid bytes at the end of {file.name}"


def batch_line(batch: Batch) -> str:
    """The line of one batch."""
    header = batch.header
    if header.codec > max(Codec):
        raise DumpError(f"{batch.path} at byte {batch.position}: compression codec {header.codec}; 0 to 4 are known")
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java_bool(header.is_transactional)} "
        f"isControl: {_java_bool(header.is_control)} deleteHorizonMs: {_java_optional(header.delete_horizon_ms)} "
        f"position: {batch.position} {_time_type(header)}: {header.max_timestamp} size: {header.size} "
        f"magic: {header.magic} compresscodec: {Codec(header.codec).name.lower()} crc: {header.crc} "
        f"isvalid: {_java_bool(batch.checksum_holds)}"
    )


def _record_line(batch: Batch, record: Record, options: DumpLogOptions) -> str:
    parts = []
    if options.metadata:
        parts.append(_record_metadata(batch.header, record))
    if options.contents and not batch.header.is_control:
        key, value = options.decode(record)
        if key is not None:
            parts.append(f"key: {key}")
        if value is not None:
            parts.append(f"payload: {value}")
            if len(parts) == 1:
                return f" {parts[0]}"  # without metadata and key no bar begins the line
    return f"| {' '.join(parts)}" if parts else ""


def _record_metadata(header: Header, record: Record) -> str:
    sequence = header.base_sequence
    if sequence != -1:
        sequence = (sequence + record.offset - header.base_offset) & MAX_SEQUENCE
    line = (
        f"offset: {record.offset} {_time_type(header)}: {record.timestamp_ms} "
        f"keySize: {_java_size(record.key)} valueSize: {_java_size(record.value)} "
        f"sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    return line + _control_text(record) if header.is_control else line


def _control_text(record: Record) -> str:
    try:
        _, number = _CONTROL_KEY.unpack_from(record.key or b"")
        name = _CONTROL_TYPES[number] if 0 <= number < len(_CONTROL_TYPES) else "UNKNOWN"
        if name in _END_OF_TRANSACTION:
            return f" endTxnMarker: {name} coordinatorEpoch: {_MARKER_VALUE.unpack_from(record.value or b'')[1]}"
    except struct.error:
        raise DumpError(f"the control record at offset {record.offset} is too short for its type") from None
    return f" controlType: {name}({number})"


def _time_type(header: Header) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def _java_optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _java_size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


# -- indexes -----------------------------------------------------------------------------------------------------------


def _offset_entries(path: str) -> list[tuple[int, int]]:
    """(offset, position) of each entry, up to the zeros of a file that was extended ahead of use."""
    base = base_offset_of(path) or 0
    data = read_whole(path)
    entries: list[tuple[int, int]] = []
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[: len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size]):
        if not relative and entries:
            break
        entries.append((base + relative, position))
    return entries


def _index_lines(path: str, options: DumpLogOptions, complaints: _Complaints) -> Iterator[str]:
    entries = _offset_entries(path)
    if not entries:
        yield f"{path} is empty."
        return
    if options.sanity_only:
        _check_offset_index(path)
        yield f"{path} passed sanity check."
        return
    with ReadFile(sibling(path, ".log")) as log:
        for offset, position in entries:
            batch = next(walk(log, position, position + options.max_message_size), None) if position >= 0 else None
            if batch is None:
                raise DumpError(f"{path}: the log has no batch at position {position}, where offset {offset} should be")
            if batch.header.last_offset != offset:
                complaints.index.setdefault(os.path.join(os.getcwd(), path), []).append(
                    (offset, batch.header.last_offset)
                )
            if not options.verify_only:
                yield f"offset: {offset} position: {position}"


def _check_offset_index(path: str) -> None:
    data, base = read_whole(path), base_offset_of(path) or 0
    _check_size(path, len(data), _OFFSET_ENTRY.size)
    last = base + _OFFSET_ENTRY.unpack_from(data, len(data) - _OFFSET_ENTRY.size)[0]
    if last <= base:
        raise DumpError(f"{path}: its last offset {last} is not above the segment's first one, {base}")


def _check_size(path: str, size: int, entry: int) -> None:
    if size % entry:
        raise DumpError(f"{path}: {size} bytes, where a multiple of {entry} is right")


def _time_index_lines(path: str, options: DumpLogOptions, complaints: _Complaints) -> Iterator[str]:
    data, base = read_whole(path), base_offset_of(path) or 0
    if options.sanity_only:
        _check_time_index(path, data, base)
        yield f"{path} passed sanity check."
        return
    positions = _offset_entries(sibling(path, ".index"))
    with ReadFile(sibling(path, ".log")) as log:
        previous = _NO_TIMESTAMP
        whole = data[: len(data) // _TIME_ENTRY.size * _TIME_ENTRY.size]
        for number, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(whole)):
            if number and not relative:
                return
            offset = base + relative
            found = bisect_right(positions, offset, key=lambda entry: entry[0])
            batches = walk(log, positions[found - 1][1] if found else 0)
            batch = next((batch for batch in batches if batch.header.last_offset >= offset), None)
            last = -1 if batch is None else batch.header.last_offset
            if batch is None or last != offset:
                complaints.offsets.setdefault(os.path.join(os.getcwd(), path), []).append((offset, last))
            else:
                highest = max([_NO_TIMESTAMP, *(record.timestamp_ms for record in batch.records())])
                if highest != timestamp:
                    complaints.timestamps.setdefault(os.path.join(os.getcwd(), path), []).append((timestamp, highest))
                if previous >= timestamp:
                    complaints.order.setdefault(os.path.join(os.getcwd(), path), []).append((timestamp, previous))
            if not options.verify_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            previous = timestamp


def _check_time_index(path: str, data: bytes, base: int) -> None:
    _check_size(path, len(data), _TIME_ENTRY.size)
    if not data:
        return
    first, _ = _TIME_ENTRY.unpack_from(data)
    last, relative = _TIME_ENTRY.unpack_from(data, len(data) - _TIME_ENTRY.size)
    if last < first:
        raise DumpError(f"{path}: its last timestamp {last} is below its first one, {first}")
    if relative < 0:
        raise DumpError(f"{path}: its last offset {base + relative} is below the segment's first one, {base}")


# -- beside the log ----------------------------------------------------------------------------------------------------


def _snapshot_lines(path: str, options: DumpLogOptions, complaints: _Complaints) -> Iterator[str]:
    for producer in decode_snapshot(read_whole(path)):
        start = producer.transaction_start
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {_java_optional(start if start >= 0 else None)} "
            f"lastTimestamp: {producer.last_timestamp} "
        )
        if producer.batches:
            last = producer.batches[-1]
            line += (
                f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
            )
        yield line


def _transaction_index_lines(path: str, options: DumpLogOptions, complaints: _Complaints) -> Iterator[str]:
    data = read_whole(path)
    _check_size(path, len(data), _TRANSACTION_ENTRY.size)
    for version, producer_id, first, last, stable in _TRANSACTION_ENTRY.iter_unpack(data):
        if version != 0:
            raise DumpError(f"{path}: an entry of version {version}, where only 0 is supported")
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


_PRINTERS: Final[dict[str, Callable[[str, DumpLogOptions, _Complaints], Iterator[str]]]] = {
    ".log": _log_lines,
    ".index": _index_lines,
    ".timeindex": _time_index_lines,
    ".snapshot": _snapshot_lines,
    ".txnindex": _transaction_index_lines,
}
