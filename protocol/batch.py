"""Record batches of magic 2 (KIP-98), the format of producers, logs and consumers (Kafka: DefaultRecordBatch).

One batch is a header of 61 bytes and a payload of records, which may be compressed:

    position  size  field                 position  size  field
           0     8  base offset                 27     8  base timestamp, ms
           8     4  batch length                35     8  max timestamp, ms
          12     4  leader epoch                43     8  producer id
          16     1  magic                       51     2  producer epoch
          17     4  CRC-32C of byte 21 on       53     4  base sequence
          21     2  attributes                  57     4  record count
          23     4  last offset delta           61     …  records

The batch length counts the bytes behind it, so a batch takes `LOG_OVERHEAD` bytes more. Base offset and leader epoch
are outside the checksum: a leader sets them in the received bytes, and the same bytes serve the log, the followers and
the consumers.

This module also has the checks of a leader on a produced batch: `check_produce_shape` (ProduceRequest.validateRecords)
and `check_records` (UnifiedLog.analyzeAndValidateRecords and LogValidator). In three cases Kafka is laxer than its own
readers, or writes a batch anew without an error. Odradek rejects these batches; no known client sends them:

- offset deltas that do not count 0, 1, 2 …: Kafka keeps an uncompressed batch unchanged and rewrites a compressed one;
- fields of a compressed record that do not fill its length: Kafka skips them and stores bytes that no consumer reads;
- records that decompress to more than a limit: Kafka has none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, NoReturn

from odradek.protocol import chain
from odradek.protocol.chain import Buffer
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.records import Chain, Record, read_records, write_records

__all__ = [
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAX_DECOMPRESSED",
    "Buffer",
    "Codec",
    "Header",
    "InvalidRecords",
    "NotABatch",
    "Record",
    "build",
    "check_produce_shape",
    "check_records",
    "control_batch",
    "crc_ok",
    "headers",
    "is_framed",
    "is_sound",
    "read_header",
    "records",
    "sealed",
    "stamp",
    "stamp_log_append_time",
    "stamp_max_timestamp",
]

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
DEFINED_ATTRIBUTES: Final = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON

MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LEADER_EPOCH_POSITION: Final = 12
MAX_TIMESTAMP_POSITION: Final = 35
MAX_SEQUENCE: Final = 0x7FFFFFFF

MAX_DECOMPRESSED: Final = 128 * 1024 * 1024
"""Bytes that the records of one batch may take when decompressed, unless the caller sets another limit."""

# A batch of magic 0 or 1 is no shorter than this behind its length; Kafka reports shorter ones as corrupt.
_SHORTEST_MESSAGE: Final = 14
_ZSTD_SINCE: Final = 7  # the first Produce version that may carry zstd (KIP-110)
_TOUCHES_SCAN: Final = CODEC_MASK | LOG_APPEND_TIME
_MAGIC_2_SINCE: Final = 3  # the first Produce version that carries exactly one batch of magic 2 (KIP-98)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__
_TIMESTAMP_OF: Final = attrgetter("timestamp_ms")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")


class Header(NamedTuple):
    """The 61 bytes before the records, unchecked."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The highest offset that the batch covers; compaction may have removed the record itself."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the compression codec, 0 to 7; only 0 to 4 are defined (`compression.Codec`)."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the broker's timestamp, which is in `max_timestamp` (KIP-32)."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers, which consumers never get."""
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may drop tombstones and markers; replaces the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2^31-1 to 0; -1 where there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> Header:
    """The header at `position`, unchecked.

    Raises ProtocolError where fewer than 61 bytes are left.
    """
    try:
        return _new_tuple(Header, _unpack_header(buffer, position))  # Header._make, twice as fast
    except struct.error:
        raise ProtocolError("RecordBatch", position, f"{len(buffer) - position} bytes left of a header of 61") from None


def crc_ok(buffer: Buffer, position: int, header: Header) -> bool:
    """Whether the checksum of the batch at `position` matches; False, too, for one that reaches past the buffer."""
    length = header.batch_length
    end = position + LOG_OVERHEAD + length
    if length < HEADER_SIZE - LOG_OVERHEAD or end > len(buffer):
        return False
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc


def is_framed(header: Header) -> bool:
    """Whether a log can store a batch of this header; else the end of the batch and its offsets are undefined.

    This and the checksum (`is_sound`) are all that followers, recovery, compaction and readers require of a stored
    batch. A leader accepts no batch without it, and no reader may require more: a batch that a leader has acknowledged
    and a follower rejects stops the replication of its partition for ever.
    """
    return header.magic == MAGIC and header.batch_length >= HEADER_SIZE - LOG_OVERHEAD and header.last_offset_delta >= 0


def is_sound(buffer: Buffer, position: int, header: Header) -> bool:
    """Whether the bytes at `position` are those of a whole batch that a leader has accepted."""
    return is_framed(header) and crc_ok(buffer, position, header)


def headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, Header]]:
    """Each batch from `position` to the end of the buffer, as (position, header); checksums are not verified.

    Raises ProtocolError at a batch that is cut off, has another magic or a length below that of its header.
    """
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        if header.magic != MAGIC:
            raise ProtocolError("RecordBatch.magic", position + MAGIC_POSITION, f"{header.magic} where 2 is read")
        if header.last_offset_delta < 0:
            raise ProtocolError("RecordBatch.lastOffsetDelta", position + 23, f"{header.last_offset_delta}")
        size = LOG_OVERHEAD + header.batch_length
        if not HEADER_SIZE <= size <= end - position:
            raise ProtocolError(
                "RecordBatch.batchLength",
                position + 8,
                f"{header.batch_length}, so {size} bytes in all, where {HEADER_SIZE} to {end - position} are possible",
            )
        yield position, header
        position += size


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`; the checksum does not cover them."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, header: Header, now_ms: int) -> None:
    """Set the broker's time for every record of the batch: attribute bit, max timestamp, new checksum (KIP-32)."""
    _stamp_max_timestamp(buffer, position, header, header.attributes | LOG_APPEND_TIME, now_ms)


def stamp_max_timestamp(buffer: bytearray | memoryview, position: int, header: Header, max_timestamp: int) -> None:
    """Correct the max timestamp of a header to the highest timestamp of the records, and the checksum.

    Kafka does not reject a producer's batch with a wrong value here; it corrects the header.
    """
    _stamp_max_timestamp(buffer, position, header, header.attributes & ~LOG_APPEND_TIME, max_timestamp)


def _stamp_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: Header, attributes: int, max_timestamp: int
) -> None:
    if header.attributes == attributes and header.max_timestamp == max_timestamp:
        return
    # Kafka drops the undefined bits here, and keeps them in a header that it need not change.
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes & DEFINED_ATTRIBUTES)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + header.size])
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def records(buffer: Buffer, position: int = 0, *, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[Record]:
    """The records of the one batch at `position`, parsed on iteration; `headers` walks several batches.

    Raises ProtocolError where anything is malformed or the payload decompresses to more than `max_decompressed` bytes.
    """
    _, header = next(headers(buffer, position), (position, None))
    if header is None:
        raise ProtocolError("RecordBatch", position, "no batch starts at the end of the buffer")
    payload, start, end = buffer, position + HEADER_SIZE, position + header.size
    if header.codec:
        try:
            payload = decompress(header.codec, memoryview(buffer)[start:end], max_decompressed)
        except KafkaError as problem:
            raise ProtocolError("RecordBatch.records", start, problem.message) from None
        start, end = 0, len(payload)
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    return read_records(
        Chain(payload, start, end, header.record_count, header.base_offset, header.base_timestamp, append_time_ms)
    )


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    codec: int = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A whole batch around `records`, whose offsets are absolute and ascend, with gaps where compaction made them.

    `last_offset` is the last offset that the batch covers when its last records are gone; a batch without records needs
    it, too (the cleaner keeps such a batch for its sequence). Times are ms; `log_append_time_ms` replaces the timestamp
    of every record.

    Raises ValueError for offsets that do not ascend within int32 of `base_offset`.
    """
    items = records if isinstance(records, list) else list(records)
    last_offset = _covered(items, base_offset, last_offset)
    attributes = int(codec)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    base_timestamp = items[0].timestamp_ms if items else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    max_timestamp = log_append_time_ms
    if max_timestamp is None:
        max_timestamp = max(NO_TIMESTAMP, max(map(_TIMESTAMP_OF, items), default=NO_TIMESTAMP))
    payload: Buffer = write_records(items, base_offset, base_timestamp)
    if items and codec:
        payload = compress(codec, payload, level)
    header = (  # in the order of Header, which would take longer than the rest of a small batch
        base_offset,
        HEADER_SIZE + len(payload) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,  # the checksum
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(items),
    )
    return sealed(header, payload)


def sealed(header: tuple[int, ...], payload: Buffer) -> bytearray:
    """The batch of this header (of a Header, or its numbers) and payload; its own checksum replaces the header's."""
    batch = bytearray(_HEADER.pack(*header))
    batch += payload
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


def _covered(items: list[Record], base_offset: int, last_offset: int | None) -> int:
    previous = base_offset - 1
    for item in items:
        if item.offset <= previous:
            raise ValueError(f"record offset {item.offset} after {previous}; offsets ascend from the base offset")
        previous = item.offset
    if last_offset is None:
        if not items:
            raise ValueError("a batch without records needs its last offset")
        last_offset = previous
    if not max(previous, base_offset) <= last_offset <= base_offset + MAX_SEQUENCE:
        raise ValueError(f"last offset {last_offset} of a batch that starts at {base_offset} and holds {previous}")
    return last_offset


def control_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a producer's transaction in a partition (KIP-98; Kafka: EndTransactionMarker)."""
    marker = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=struct.pack(">hh", 0, 1 if commit else 0),  # version, type
        value=struct.pack(">hi", 0, coordinator_epoch),  # version, epoch of the coordinator that decided
    )
    return build(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


class InvalidRecords(KafkaError):  # noqa: N818 - named after the response
    """A rejected batch: `record_errors` are (index in the batch, message) for BatchIndexAndErrorMessage (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors or []


class NotABatch(KafkaError):  # noqa: N818 - named after the response
    """Rejected bytes that do not begin like a batch; Kafka's response has an error message then, as for records."""


def check_produce_shape(buffer: Buffer | None, api_version: int) -> Header:
    """The header of the one batch that a partition of a Produce request of `api_version` must hold.

    Bytes behind it that are not a whole batch are not checked further and not written. Raises KafkaError:
    INVALID_RECORD for none, more than one, or the wrong magic; UNSUPPORTED_COMPRESSION_TYPE for zstd before version 7;
    UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 and 1, which versions 0 to 2 carry; CORRUPT_MESSAGE for bytes that are
    not a batch at all. Source: ProduceRequest.validateRecords, ByteBufferLogInputStream.
    """
    size = 0 if buffer is None else len(buffer)
    if buffer is not None and size >= HEADER_SIZE:
        header = read_header(buffer)
        if header.magic == MAGIC and header.batch_length == size - LOG_OVERHEAD and api_version >= _ZSTD_SINCE:
            return header
    return _explain_shape(buffer, size, api_version)


def _explain_shape(buffer: Buffer | None, size: int, api_version: int) -> Header:
    """The slow path of `check_produce_shape`: rule after rule, in Kafka's order."""
    if buffer is None or size <= MAGIC_POSITION:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"{size} bytes of records where one whole batch is wanted")
    length = _INT32.unpack_from(buffer, 8)[0]
    magic = buffer[MAGIC_POSITION]
    if length < _SHORTEST_MESSAGE or magic > MAGIC:
        raise NotABatch(ErrorCode.CORRUPT_MESSAGE, f"no batch has the length {length} and the magic {magic}")
    if LOG_OVERHEAD + length > size:  # Kafka fails where the sum exceeds int32, and answers UNKNOWN_SERVER_ERROR
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, f"the batch announces {LOG_OVERHEAD + length} bytes, {size} came"
        )
    if magic != MAGIC:
        if api_version < _MAGIC_2_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic}; only 2 is stored")
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, f"magic {magic} in a Produce request of version {api_version}, which carries 2"
        )
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has the length {length} and the magic {magic}")
    header = read_header(buffer)
    if header.codec == Codec.ZSTD and api_version < _ZSTD_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd in a Produce request of version {api_version}; it needs {_ZSTD_SINCE}",
        )
    if header.size != size:
        _check_rest(buffer, header.size, size)
    return header


def _check_rest(buffer: Buffer, position: int, size: int) -> None:
    """Reject a second batch, and bytes that cannot begin one; drop anything else (ByteBufferLogInputStream)."""
    left = size - position
    if left < LOG_OVERHEAD:
        return
    length = _INT32.unpack_from(buffer, position + 8)[0]
    if length < _SHORTEST_MESSAGE or (left > MAGIC_POSITION and buffer[position + MAGIC_POSITION] > MAGIC):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{left} bytes after the batch, which do not begin another one")
    if left > MAGIC_POSITION and LOG_OVERHEAD + length <= left:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD, f"{left} bytes after the batch; a partition takes exactly one batch"
        )


def check_records(
    buffer: Buffer,
    position: int,
    header: Header,
    *,
    require_keys: bool,
    timestamps: tuple[int, int, int] | None,
    max_decompressed: int = MAX_DECOMPRESSED,
) -> int:
    """Reject a client's batch that breaks a rule; checksum, size and sequence are checked elsewhere.

    `require_keys` is for compacted topics. `timestamps` is (now, before max, after max), all ms, as in
    message.timestamp.before.max.ms and .after.max.ms (KIP-937), or None where the broker's clock replaces them.

    Returns the highest timestamp of the records (ms, -1 if none has one) for the header: the caller passes it to
    `stamp_max_timestamp` unless the header gets the broker's time. Raises InvalidRecords or KafkaError.
    """
    flags, earliest, latest = 0, 0, 0
    if timestamps is not None:
        now_ms, before_max_ms, after_max_ms = timestamps
        flags, earliest, latest = chain.CHECK_TIMESTAMPS, now_ms - before_max_ms, now_ms + after_max_ms
    if require_keys:
        flags |= chain.REQUIRE_KEYS
    return judge_records(buffer, position, header, flags, earliest, latest, max_decompressed)


def judge_records(
    buffer: Buffer,
    position: int,
    header: Header,
    flags: int,
    earliest: int,
    latest: int,
    max_decompressed: int = MAX_DECOMPRESSED,
) -> int:
    """`check_records` with its rules as the flags and bounds of `chain.scan`, for callers that have them."""
    (base_offset, length, _, magic, _, attributes, last_offset_delta,
     base_timestamp, max_timestamp, producer_id, _, base_sequence, count) = header  # fmt: skip
    end = position + LOG_OVERHEAD + length
    if (
        base_offset
        or magic != MAGIC
        or not 0 < count == last_offset_delta + 1
        or attributes & CONTROL
        or (producer_id > NO_PRODUCER_ID and base_sequence < 0)
        or not position + HEADER_SIZE <= end <= len(buffer)
    ):
        _refuse_header(buffer, position, header)

    payload, start = buffer, position + HEADER_SIZE
    if attributes & _TOUCHES_SCAN:
        if attributes & LOG_APPEND_TIME:
            flags |= chain.ONE_TIMESTAMP
            base_timestamp = max_timestamp
        if attributes & CODEC_MASK:
            payload = _decompressed(buffer, start, end, attributes & CODEC_MASK, max_decompressed)
            start, end = 0, len(payload)
    fault, index, where, max_timestamp, _, violations = chain.scan(
        payload, start, end, count, base_timestamp, flags, earliest, latest
    )
    if fault:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"record {index} of {count}, at byte {where - start} of the records: {chain.FAULTS[fault]}",
        )
    if violations:
        _refuse_records(violations, count, (earliest, latest) if flags & chain.CHECK_TIMESTAMPS else None)
    return max_timestamp


def _decompressed(buffer: Buffer, start: int, end: int, codec: int, limit: int) -> Buffer:
    try:
        return decompress(codec, memoryview(buffer)[start:end], limit)
    except KafkaError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # The checksum matches, so the client sent these bytes; with a retriable error code it would retry for ever.
        raise InvalidRecords(ErrorCode.INVALID_RECORD, problem.message) from None


def _refuse_header(buffer: Buffer, position: int, header: Header) -> NoReturn:
    """Raise for the first rule that the header breaks, in Kafka's order."""
    if header.magic != MAGIC or header.size < HEADER_SIZE or position + header.size > len(buffer):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch of magic {header.magic} and {header.size} bytes where {len(buffer) - position} are left",
        )
    if header.base_offset:
        reason = f"base offset {header.base_offset}; a client's batch starts at 0"
    elif header.last_offset_delta < 0:
        reason = f"last offset delta {header.last_offset_delta}; it cannot be negative"
    elif header.record_count <= 0:
        reason = f"{header.record_count} records; a batch holds at least one"
    elif header.record_count != header.last_offset_delta + 1:
        reason = f"{header.record_count} records but {header.last_offset_delta + 1} offsets"
    elif header.is_control:
        reason = "control records; clients may not write them"
    else:
        reason = f"sequence {header.base_sequence} with producer id {header.producer_id}; it starts at 0"
    raise InvalidRecords(ErrorCode.INVALID_RECORD, reason)


def _refuse_records(
    violations: tuple[tuple[int, int, int], ...], count: int, allowed: tuple[int, int] | None
) -> NoReturn:
    """Raise with each bad record. One bad timestamp makes the whole answer INVALID_TIMESTAMP, as in Kafka."""
    code = ErrorCode.INVALID_RECORD
    record_errors = []
    for index, kind, timestamp in violations:
        if kind == chain.Violation.NULL_KEY:
            reason = "no key; a compacted topic takes only records with keys"
        else:
            code = ErrorCode.INVALID_TIMESTAMP
            if allowed and timestamp != NO_TIMESTAMP:
                reason = f"timestamp {timestamp} is not within [{allowed[0]}, {allowed[1]}]"
            else:
                reason = "the batch has the attribute LogAppendTime, which only a broker may set"
        record_errors.append((index, reason))
    message = f"{len(violations)} of {count} records were refused, the first: {record_errors[0][1]}"
    raise InvalidRecords(code, message, record_errors)
