"""Message sets of magic 0 and 1, the format of clients older than Kafka 0.11 (KIP-31, KIP-32).

A set is a sequence of messages without a header of its own. Magic 1 of Kafka 0.10 has a timestamp, magic 0 has none:

    offset (8), length of the rest (4), CRC-32 of what follows it (4), magic (1), attributes (1), [timestamp (8)],
    key length (4), key, value length (4), value

A length of -1 stands for null. The lowest three bits of the attributes name a codec: then the value is a compressed
set, the message is its wrapper, and the wrapper's offset is that of the last message inside. Inside a wrapper of magic
1 offsets count from 0; with magic 0 they are absolute. Bit 3 means LogAppendTime: the wrapper's time is that of all.

Sets are read and written here, never stored: a leader up-converts them to one batch of magic 2, and a fetch of an old
version is down-converted for its client (LogValidator, AbstractLegacyRecordBatch, RecordsUtil,
LazyDownConversionRecords). The walks along the bytes are in legacy_walks.py.

Old lz4 clients computed the checksum of the frame header over the wrong bytes (KAFKA-3160); magic 0 keeps that fault.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

from odradek.protocol.batch import HEADER_SIZE, MAGIC, MAX_DECOMPRESSED, Header, InvalidRecords, read_header
from odradek.protocol.chain import CHECK_TIMESTAMPS, ONE_TIMESTAMP, REQUIRE_KEYS, Buffer
from odradek.protocol.compression import Codec, break_lz4_header, compress, decompress, mend_lz4_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.legacy_walks import (
    APPEND_TIME,
    ATTRIBUTES_AT,
    FIELDS_AT,
    INNER,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_INT64,
    NO_TIMESTAMP,
    REASONS,
    SHORTEST,
    LegacyFault,
    Rule,
    down_convert,
    survey,
    up_convert,
)

_OFFSET_SIZE: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")

_CODES: Final = {
    LegacyFault.SHORT: ErrorCode.CORRUPT_MESSAGE,
    LegacyFault.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    LegacyFault.CHECKSUM: ErrorCode.CORRUPT_MESSAGE,
}


class NothingToWrite(KafkaError):  # noqa: N818 - no error for the client
    """A set without one whole message: Kafka answers success, with the offset -1."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NONE, "")


class Payload(NamedTuple):
    """The records of a set in the format of magic 2, before compression; `codec` is the client's."""

    records: Buffer
    record_count: int
    base_timestamp: int
    max_timestamp: int
    codec: int


# ---- up-conversion


def is_set(buffer: Buffer) -> bool:
    """Whether the buffer begins with a message of magic 0 or 1 rather than with a batch."""
    return len(buffer) > MAGIC_AT and buffer[MAGIC_AT] < MAGIC


def up_convert_set(
    buffer: Buffer,
    *,
    max_message_bytes: int,
    require_keys: bool,
    timestamps: tuple[int, int, int] | None,
    max_decompressed: int = MAX_DECOMPRESSED,
) -> Payload:
    """The records of one produced set, validated as Kafka does; a message that is cut off ends it.

    `timestamps` is (now, before max, after max) in ms, None where the broker's clock replaces them. Raises KafkaError
    CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, InvalidRecords, NothingToWrite.
    """
    fault, position, count, codec = survey(buffer, max_message_bytes)
    if fault:
        if fault == LegacyFault.MAGIC and buffer[position + MAGIC_AT] > MAGIC:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a message of magic {buffer[position + MAGIC_AT]}")
        _refuse(fault, count)
    if not count:
        raise NothingToWrite
    view = memoryview(buffer)[:position]
    magic = view[MAGIC_AT]
    flags, earliest, latest = 0, 0, 0
    if timestamps is not None:
        now_ms, before_max_ms, after_max_ms = timestamps
        flags, earliest, latest = CHECK_TIMESTAMPS, now_ms - before_max_ms, now_ms + after_max_ms
    if require_keys:
        flags |= REQUIRE_KEYS
    stamp, last_offset = NO_TIMESTAMP, 0
    if codec:
        if count > 1:
            raise InvalidRecords(ErrorCode.INVALID_RECORD, f"{count} messages where a compressed one stands alone")
        last_offset = _OFFSET_SIZE.unpack_from(view)[0]
        if magic and view[ATTRIBUTES_AT] & APPEND_TIME:
            stamp = _INT64.unpack_from(view, FIELDS_AT)[0]
            flags |= ONE_TIMESTAMP
        view = memoryview(_unwrapped(view, magic, codec, max_decompressed))
        flags |= INNER
    fault, count, _, up_converted, base, top, last_inner, violations = up_convert(
        view, magic, flags, stamp, earliest, latest
    )
    if codec and magic and last_offset and fault not in (0, LegacyFault.SHORT):
        last_inner = _last_offset(view)  # Kafka checks all offsets before it checks the messages
    if codec and magic and last_offset and last_offset < last_inner and fault != LegacyFault.SHORT:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, f"the wrapper has offset {last_offset}, the last message inside {last_inner}"
        )
    if violations and not codec:
        _refuse_messages(violations[:1], count)  # each message is a batch of its own, and the first bad one decides
    if fault:
        _refuse(fault, count)
    if codec and not count:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "a compressed message without messages inside")
    if violations:
        _refuse_messages(violations, count)
    return Payload(up_converted, count, base, top, codec)


def _last_offset(view: memoryview) -> int:
    """The offset of the last whole message in a set."""
    position, last = 0, -1
    while len(view) - position >= LOG_OVERHEAD:
        offset, size = _OFFSET_SIZE.unpack_from(view, position)
        position += LOG_OVERHEAD + size
        if size < SHORTEST or position > len(view):
            break
        last = offset
    return last


def _unwrapped(view: memoryview, magic: int, codec: int, limit: int) -> Buffer:
    """The set inside a wrapper that `survey` has checked. Raises KafkaError."""
    if codec == Codec.ZSTD:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"zstd around messages of magic {magic}; it needs batches")
    value = _value(view, magic)
    if value is None:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, REASONS[LegacyFault.FIELDS])
    start, length = value
    if length < 0:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "a compressed message without a value")
    if start + length > len(view):
        raise InvalidRecords(ErrorCode.INVALID_RECORD, REASONS[LegacyFault.FIELDS])
    content: Buffer = view[start : start + length]
    if codec == Codec.LZ4 and magic == 0:
        content = mend_lz4_header(content)
    try:
        return decompress(codec, content, limit)
    except KafkaError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # The checksum matches, so the client sent these bytes; with a retriable error code it would retry for ever.
        raise InvalidRecords(ErrorCode.INVALID_RECORD, problem.message) from None


def _value(view: memoryview, magic: int) -> tuple[int, int] | None:
    """Where the value of the first message starts, and its length; None where the message ends before it."""
    position = FIELDS_AT + (8 if magic else 0)
    try:
        (key_length,) = _INT32.unpack_from(view, position)
        position += 4 + max(0, key_length)
        (value_length,) = _INT32.unpack_from(view, position)
    except struct.error:
        return None
    return position + 4, value_length


def wrapped_content(view: memoryview) -> memoryview:
    """The compressed bytes of a set whose first message is a wrapper, as far as they are there; not checked."""
    value = _value(view, view[MAGIC_AT])
    return view[:0] if value is None else view[value[0] : value[0] + max(0, value[1])]


def _refuse(fault: int, index: int) -> None:
    code = _CODES.get(LegacyFault(fault), ErrorCode.INVALID_RECORD)
    if code is ErrorCode.INVALID_RECORD:
        raise InvalidRecords(code, f"message {index} of the set: {REASONS[fault]}")
    raise KafkaError(code, f"message {index} of the set: {REASONS[fault]}")


def _refuse_messages(violations: tuple[tuple[int, int, int], ...], count: int) -> None:
    code = ErrorCode.INVALID_RECORD
    errors = []
    for index, rule, timestamp in violations:
        if rule == Rule.NULL_KEY:
            reason = "no key; a compacted topic takes only records with keys"
        elif rule == Rule.OTHER_MAGIC:
            reason = "another magic than its wrapper's"
        else:
            code = ErrorCode.INVALID_TIMESTAMP
            reason = f"the timestamp {timestamp} is not allowed"
        errors.append((index, reason))
    raise InvalidRecords(code, f"{len(errors)} of {count} messages were refused, the first: {errors[0][1]}", errors)


# ---- down-conversion


def down_convert_batches(data: Buffer, magic: int, first_offset: int) -> bytes:
    """The records that Kafka returns to a fetch of `first_offset` in place of batches of magic 2: a set of `magic`.

    `magic` is 0 or 1. The result is as long as `data`, or as its first set where that is longer: extra bytes are cut
    off, missing bytes are filled with a message that looks cut off. A set cannot contain control batches and headers.
    Whole batches of `magic` or less stay unchanged; a batch that is cut off is left out, and where there is no other,
    `data` is the result. Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE where zstd comes first, CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE.

    The batches together decompress to no more than twice MAX_DECOMPRESSED: further ones are left out.
    """
    view = memoryview(data)
    decompressed = 0
    batches = list(_whole_batches(view))
    if all(each.magic <= magic for _, each in batches):
        return bytes(view)
    size = 0
    parts: list[Buffer] = []
    room = len(view)
    for position, header in batches:
        if parts and (size >= room or decompressed > MAX_DECOMPRESSED):
            break
        if header.magic > magic and header.is_control:
            continue
        if header.magic <= magic:
            part: Buffer = view[position : position + header.size]
        elif header.codec == Codec.ZSTD:
            if parts:
                break
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd cannot be converted to messages")
        else:
            part, taken = _down_converted(view, position, header, magic, first_offset)
            decompressed += taken
        if part:
            if not parts:
                room = max(room, len(part))
            parts.append(part)
            size += len(part)
    if not parts:
        room = LOG_OVERHEAD
    if size < room:
        parts.append(_overflow(room - size))
    return b"".join(parts)[:room]


def _whole_batches(view: memoryview) -> list[tuple[int, Header]]:
    """The batches that are not cut off, of any magic; a message is read as far as its header agrees with a batch's."""
    found = []
    position, end = 0, len(view)
    while end - position > MAGIC_AT:
        size = LOG_OVERHEAD + _OFFSET_SIZE.unpack_from(view, position)[1]
        magic = view[position + MAGIC_AT]
        if size < (HEADER_SIZE if magic >= MAGIC else LOG_OVERHEAD + SHORTEST):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes at byte {position}")
        if size > end - position:
            break
        if magic >= MAGIC:
            header = read_header(view, position)
        else:
            header = Header(0, size - LOG_OVERHEAD, -1, magic, 0, 0, 0, -1, -1, -1, -1, -1, 0)
        found.append((position, header))
        position += size
    return found


def _overflow(room: int) -> bytes:
    """A message that reaches beyond the response, so that a reader leaves it out."""
    return (_OFFSET_SIZE.pack(-1, max(room + 1, HEADER_SIZE)) + bytes(max(0, room - LOG_OVERHEAD)))[:room]


def _down_converted(
    view: memoryview, position: int, header: Header, magic: int, first_offset: int
) -> tuple[bytes, int]:
    """The messages of a batch, and how many bytes its records take."""
    if header.magic < MAGIC:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "messages of magic 1 are not converted to magic 0")
    payload: Buffer = view
    start, end = position + HEADER_SIZE, position + header.size
    flags = ONE_TIMESTAMP if header.is_log_append_time else 0
    codec = header.codec
    if codec:
        payload = decompress(codec, view[start:end], MAX_DECOMPRESSED)
        start, end = 0, len(payload)
        flags |= INNER
        first_offset = -MAX_INT64  # a wrapper is sent whole
    fault, kept, _, last, top, messages = down_convert(
        payload,
        start,
        end,
        header.record_count,
        magic,
        flags,
        header.base_offset,
        header.max_timestamp if header.is_log_append_time else header.base_timestamp,
        first_offset,
        MAX_DECOMPRESSED,
    )
    if fault:
        code = _CODES.get(fault, ErrorCode.CORRUPT_MESSAGE)  # type: ignore[call-overload]
        raise KafkaError(code, f"the batch at offset {header.base_offset}: {REASONS[fault]}")
    if not kept or not codec:
        return messages, end - start
    return wrap(messages, magic, codec, last, top, append_time=header.is_log_append_time), end - start


def wrap(messages: Buffer, magic: int, codec: int, last_offset: int, timestamp: int, *, append_time: bool) -> bytes:
    """A compressed message around a set; `timestamp` is that of the wrapper in magic 1."""
    value = compress(codec, messages)
    if codec == Codec.LZ4 and magic == 0:
        value = break_lz4_header(value)
    body = bytearray((magic, codec | (APPEND_TIME if append_time and magic else 0)))
    if magic:
        body += _INT64.pack(timestamp)
    body += _INT32.pack(-1) + _INT32.pack(len(value))
    body += value
    return b"".join((_OFFSET_SIZE.pack(last_offset, 4 + len(body)), _UINT32.pack(crc32(body)), body))
