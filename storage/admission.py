"""What a leader demands of a batch before it writes it, and what it changes in it (UnifiedLog, LogValidator).

The rules about the records themselves stand in `odradek.protocol.batch`; here are the ones that depend on the topic:
size, codec, timestamps, keys. The bytes stay as they came unless the topic wants another codec or the broker's clock in
them; offset and leader epoch are stamped by the log, outside of the checksum.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.protocol import chain
from odradek.protocol.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    Buffer,
    Header,
    build,
    check_produce_shape,
    check_records,
    crc_ok,
    judge_records,
    read_header,
    records,
    stamp_log_append_time,
    stamp_max_timestamp,
)
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.storage.config import MAX_INT64, LogConfig, Origin
from odradek.storage.producers import Marker, read_marker

_ANY_TIME: Final = chain.CHECK_TIMESTAMPS  # against bounds that no timestamp passes
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Appended(NamedTuple):
    """What an append did; for a duplicate, where the batch stands since its first try.

    `log_append_time_ms` is -1 where records keep their producer's time.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    start_offset: int
    duplicate: bool


def admit(
    batch: Buffer | None, config: LogConfig, origin: Origin, api_version: int, now_ms: int
) -> tuple[memoryview, Header]:
    """The bytes to write and their header, once nothing speaks against the batch.

    `batch` is changed in place where the topic stamps times and it can be written to; else the result is a copy.
    Raises KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, and
    InvalidRecords of `check_records`.
    """
    if origin is Origin.CLIENT:
        header = check_produce_shape(batch, api_version)
    else:
        header = _read_own(batch)
    view = batch if type(batch) is memoryview else memoryview(batch)  # type: ignore[arg-type]
    size = len(view)
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    if crc32c(view[ATTRIBUTES_POSITION:]) != header.crc:  # `crc_ok`, for a batch that fills its view
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the checksum of a batch of {size} bytes is not {header.crc:#010x}"
        )
    max_timestamp = header.max_timestamp
    if origin is Origin.CLIENT:
        if config.has_plain_records:
            max_timestamp = judge_records(view, 0, header, _ANY_TIME, -MAX_INT64, MAX_INT64)
        else:
            timestamps = _allowed_timestamps(config, now_ms)
            max_timestamp = check_records(view, 0, header, require_keys=config.compacts, timestamps=timestamps)
    if config.compression_type != "producer":
        view, header = _recompress(view, header, config)
    if config.stamps_append_time:
        view = _writable(view)
        stamp_log_append_time(view, 0, header, now_ms)
        header = read_header(view)
    elif max_timestamp != header.max_timestamp:
        view = _writable(view)
        stamp_max_timestamp(view, 0, header, max_timestamp)
        header = read_header(view)
    if len(view) > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {len(view)} bytes does not fit a segment, which holds {config.segment_bytes} (segment.bytes)",
        )
    return view, header


def _too_large(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes, where the topic takes {config.max_message_bytes} at most (max.message.bytes)",
    )


def _read_own(batch: Buffer | None) -> Header:
    """The header of a batch that a coordinator of this broker has made."""
    if batch is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch at all")
    try:
        header = read_header(batch)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if header.size != len(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes, where a batch of {header.size} is announced")
    return header


def _allowed_timestamps(config: LogConfig, now_ms: int) -> tuple[int, int, int] | None:
    """The argument for `check_records`; None where the broker's clock replaces whatever the records say."""
    if config.stamps_append_time:
        return None
    after_max_ms = config.message_timestamp_after_max_ms
    if after_max_ms > MAX_INT64 - now_ms:
        after_max_ms = MAX_INT64 - now_ms
    return now_ms, config.message_timestamp_before_max_ms, after_max_ms


def _writable(view: memoryview) -> memoryview:
    return memoryview(bytearray(view)) if view.readonly else view


def _recompress(view: memoryview, header: Header, config: LogConfig) -> tuple[memoryview, Header]:
    codec = _CODECS[config.compression_type]
    if codec == header.codec or header.is_control:
        return view, header
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    batch = build(
        records(view),
        codec=codec,
        level=level,
        last_offset=header.last_offset,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(batch) > config.max_message_bytes:
        raise _too_large(len(batch), config)
    return memoryview(batch), read_header(batch)


class Received(NamedTuple):
    """One batch in what a leader sent: where it starts there, its header, and the marker if it is one."""

    position: int
    header: Header
    marker: Marker | None


def marker_in(data: Buffer, position: int, header: Header) -> Marker | None:
    """The transaction marker in a batch, None where it holds none. Raises KafkaError CORRUPT_MESSAGE."""
    if header.producer_id < 0 or not header.is_control:
        return None
    try:
        return read_marker(data, position, header)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def split_batches(data: Buffer, max_epoch: int) -> list[Received]:
    """The whole batches that a leader sent, checked; a torn last one is left out.

    A batch from a later epoch than `max_epoch` was written after this fetch was decided and ends the list
    (KAFKA-18723). Raises KafkaError CORRUPT_MESSAGE where a batch is damaged, OFFSET_OUT_OF_RANGE where offsets do not
    grow.
    """
    batches: list[Received] = []
    position, end, previous = 0, len(data), -1
    while end - position >= HEADER_SIZE:
        header = read_header(data, position)
        size = LOG_OVERHEAD + header.batch_length
        if position + size > end and size >= HEADER_SIZE:
            break
        if header.magic != MAGIC or header.producer_id < NO_PRODUCER_ID or not crc_ok(data, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} of {end} is damaged")
        if header.leader_epoch > max_epoch:
            break
        if header.base_offset <= previous or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the batch at byte {position} starts at offset {header.base_offset}, where {previous} came before",
            )
        previous = header.base_offset + header.last_offset_delta
        batches.append(Received(position, header, marker_in(data, position, header)))
        position += size
    return batches
