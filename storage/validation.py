"""Validates and adjusts the batches that a leader appends (Kafka: UnifiedLog, LogValidator).

The rules about the records themselves are in `odradek.protocol.batch`; this module has the ones that depend on the
topic: size, codec, timestamps, keys. The bytes stay unchanged unless the topic is configured with another codec or with
the broker's clock, or the client is so old that it sends a message set, which becomes a batch. The log sets offset and
leader epoch, which are outside of the checksum.

The result of `admit` depends on its arguments alone. A batch whose `microseconds` are too many is admitted in a thread
(`prepare`), and the log gets the result in place of the client's bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.protocol import chain
from odradek.protocol.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_DECOMPRESSED,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Buffer,
    Header,
    InvalidRecords,
    build,
    check_produce_shape,
    check_records,
    is_framed,
    is_sound,
    judge_records,
    read_header,
    records,
    sealed,
    stamp_log_append_time,
    stamp_max_timestamp,
)
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.legacy import NothingToWrite, is_set, up_convert_set, wrapped_content
from odradek.protocol.legacy_walks import ATTRIBUTES_AT
from odradek.protocol.output_bounds import announced_size, output_bound
from odradek.protocol.own_batch import Entries, own_batch
from odradek.protocol.plain_batch import plain_header
from odradek.storage.config import MAX_INT64, AppendOrigin, LogConfig
from odradek.storage.disk import Folder
from odradek.storage.markers import EndTransactionMarker, read_marker
from odradek.storage.staged import STAGED_BYTES, StagedBatch

MIN_INT64: Final = -(2**63)
CLIENT: Final = AppendOrigin.CLIENT
_ANY_TIME: Final = chain.CHECK_TIMESTAMPS  # against bounds that no timestamp passes
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

BATCHES_SINCE: Final = 3
"""The first version of Produce that carries batches; earlier versions carry message sets."""
LONG_MICROSECONDS: Final = 1000
"""Work that takes more than this does not run on the event loop."""
ON_LOOP_BYTES: Final = 256 << 10
"""What the event loop decompresses of one batch at most."""
_WALK: Final = 3
_DECOMPRESS: Final = (0, 20, 3, 3, 6, 0, 0, 0)
_EXPAND: Final = (0, 3, 4, 4, 4, 0, 0, 0)
_COMPRESS: Final = (0, 60, 4, 3, 6, 0, 0, 0)
"""Microseconds for a KiB, by codec: to write records anew, to decompress a compressed KiB, to make a decompressed KiB
and walk along its records, to compress a KiB. Measured with records of JSON and with decompression bombs, and rounded
up.
"""
_WRITE: Final = 2
"""Microseconds for a KiB: the checksum, and a write into new pages of the page cache."""
_ENOUGH: Final = MAX_DECOMPRESSED
"""A batch that may decompress to more counts as much as one that decompresses to this."""


class NoBatch(InvalidRecords):
    """The data is not the single batch that a request must have, so no log has validated it."""


class Appended(NamedTuple):
    """The result of an append; for a duplicate, the offsets of the batch that was written first.

    `log_append_time_ms` is -1 where records keep their producer's time.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    start_offset: int
    duplicate: bool


class Prepared:
    """A batch that `admit` has accepted already, with all slow work done; `len` is that of the bytes to write. Those of
    a large one are in the file of `staged`, too.
    """

    __slots__ = ("header", "staged", "view")

    def __init__(self, view: memoryview, header: Header, staged: StagedBatch | None = None) -> None:
        self.view = view
        self.header = header
        self.staged = staged

    def __len__(self) -> int:
        return len(self.view)

    def stage(self, folder: Folder) -> None:
        """Write the batch into a file of a log's folder; safe in a thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self.staged = _staged(self.view, folder)

    def staged_in(self, folder: Folder) -> StagedBatch | None:
        """The file of a large batch; None where it has none, or none in the folder that the log has now."""
        staged = self.staged
        return staged if staged is not None and staged.folder is folder else None


def _staged(view: memoryview, folder: Folder) -> StagedBatch:
    try:
        return StagedBatch(folder, view)
    except OSError as error:
        reason = f"cannot write a batch of {len(view)} bytes to {folder.path}: {error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error


def microseconds(batch: Buffer | Prepared, config: LogConfig, api_version: int) -> int:
    """An upper bound of the time that `admit` takes for a batch of a client, beside the walk along plain records, and
    that the write of a batch of more than STAGED_BYTES takes.

    It counts the bytes that the batch can decompress to (`output_bounds`), however few the batch has itself. Only gzip
    can take longer, where it announces too little; `admit` then stops at its limit.
    """
    size = len(batch)
    if type(batch) is Prepared or size <= HEADER_SIZE:
        return 0
    old = api_version < BATCHES_SINCE and is_set(batch)  # type: ignore[arg-type]
    codec = batch[ATTRIBUTES_AT if old else ATTRIBUTES_POSITION + 1] & CODEC_MASK  # type: ignore[index]
    target = codec if config.compression_type == "producer" else _CODECS[config.compression_type]
    output = size
    if codec:
        view = memoryview(batch)  # type: ignore[arg-type]
        content = wrapped_content(view) if old else view[HEADER_SIZE:]
        output = announced_size(codec, content, _ENOUGH)
        if output <= ON_LOOP_BYTES:  # gzip may give more, and the event loop decompresses no more than this
            output = output_bound(codec, content, ON_LOOP_BYTES)
    cost = size * _DECOMPRESS[codec] + output * _EXPAND[codec]
    if old or target != codec:
        cost += output * (_WALK + _COMPRESS[target])
    if size > STAGED_BYTES:
        cost += size * _WRITE
    return max(cost >> 10, LONG_MICROSECONDS + 1) if codec and output > ON_LOOP_BYTES else cost >> 10


def decompressed_size(batch: Buffer, api_version: int, enough: int) -> int:
    """What a batch of a client decompresses to at most, or `enough` where that is more or not known. For gzip it is
    what the batch announces.
    """
    if len(batch) <= HEADER_SIZE:
        return 0
    view = memoryview(batch)
    old = api_version < BATCHES_SINCE and is_set(batch)
    codec = view[ATTRIBUTES_AT if old else ATTRIBUTES_POSITION + 1] & CODEC_MASK
    if not codec:
        return 0
    return min(announced_size(codec, wrapped_content(view) if old else view[HEADER_SIZE:], enough), enough)


def takes_long(batch: Buffer | Prepared, config: LogConfig, api_version: int) -> bool:
    """Whether `admit` could block the event loop for too long with a batch of a client; small plain ones never do."""
    return microseconds(batch, config, api_version) > LONG_MICROSECONDS


def prepare(
    batch: Buffer, config: LogConfig, api_version: int, now_ms: int, max_decompressed: int, folder: Folder
) -> Prepared:
    """`admit` for a batch of a client, to run in a thread; a large batch is written into a file of `folder`, that of
    the log. Raises KafkaError as `admit`, and KAFKA_STORAGE_ERROR.
    """
    prepared = Prepared(*admit(batch, config, AppendOrigin.CLIENT, api_version, now_ms, max_decompressed))
    if len(prepared) > STAGED_BYTES:
        prepared.stage(folder)
    return prepared


def prepare_own(entries: Entries, config: LogConfig, now_ms: int) -> Prepared | None:
    """A batch of records that the broker writes itself; None where the topic's configuration may change or refuse it,
    so that `admit` has to validate it.
    """
    if not config.stores_own_batches:
        return None
    batch, header = own_batch(entries, now_ms)
    if len(batch) > config.max_message_bytes or len(batch) > config.segment_bytes:
        return None
    return Prepared(memoryview(batch), header)


def admit(
    batch: Buffer | Prepared | None,
    config: LogConfig,
    origin: AppendOrigin,
    api_version: int,
    now_ms: int,
    max_decompressed: int = MAX_DECOMPRESSED,
) -> tuple[memoryview, Header]:
    """Validate a batch; returns the bytes to write and their header.

    `batch` is changed in place where the topic sets times and it is writable; else the result is a copy.
    Raises KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE,
    InvalidRecords of `check_records`, NothingToWrite for a message set without a whole message, and
    DecompressedTooLarge where the records take more than `max_decompressed` bytes.
    """
    if type(batch) is not memoryview:
        if type(batch) is Prepared:
            return _at_last(batch, config, now_ms)
        batch = None if batch is None else memoryview(batch)  # type: ignore[arg-type]
    if (
        batch is not None
        and origin is CLIENT
        and config.stores_plain_batches
        and api_version >= BATCHES_SINCE
        and (header := plain_header(batch)) is not None
        and len(batch) <= config.max_message_bytes
        and len(batch) <= config.segment_bytes
    ):
        return batch, header
    return _by_rules(batch, config, origin, api_version, now_ms, max_decompressed)


def _by_rules(
    batch: memoryview | None,
    config: LogConfig,
    origin: AppendOrigin,
    api_version: int,
    now_ms: int,
    max_decompressed: int,
) -> tuple[memoryview, Header]:
    """Validate any batch, rule after rule."""
    if origin is CLIENT:
        if api_version < BATCHES_SINCE and (batch is None or len(batch) <= MAGIC_POSITION or is_set(batch)):
            return _fitting(*_up_converted(batch, config, now_ms, max_decompressed), config)
        try:
            header = check_produce_shape(batch, api_version)
        except InvalidRecords as error:
            raise NoBatch(error.code, error.message) from None
        if header.base_offset:  # Kafka checks this before the checksum
            raise InvalidRecords(
                ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}; a client's batch starts at 0"
            )
    else:
        header = _read_own(batch)
    assert batch is not None
    view = batch
    size = header.size
    if size != len(view):
        view = view[:size]  # the bytes behind it are no whole batch, and Kafka drops them too
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    if crc32c(view[ATTRIBUTES_POSITION:]) != header.crc:  # `crc_ok`, for a batch that fills its view
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"the checksum of a batch of {size} bytes is not {header.crc:#010x}"
        )
    if config.compression_type != "producer" and not header.is_control:
        codec = _CODECS[config.compression_type]
        if codec != header.codec:
            made = _recompressed(view, header, codec, config, origin, now_ms, max_decompressed)
            return _fitting(*made, config)
    max_timestamp = header.max_timestamp
    if origin is CLIENT:
        max_timestamp = _judge(view, header, config, now_ms, max_decompressed)
    if config.stamps_append_time:
        view = _writable(view)
        stamp_log_append_time(view, 0, header, now_ms)
        header = read_header(view)
    elif max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME:
        view = _writable(view)
        stamp_max_timestamp(view, 0, header, max_timestamp)
        header = read_header(view)
    return (view, header) if size <= config.segment_bytes else _fitting(view, header, config)


def _judge(view: memoryview, header: Header, config: LogConfig, now_ms: int, max_decompressed: int) -> int:
    """The highest timestamp of a client's records, after validation."""
    if config.has_plain_records:
        return judge_records(view, 0, header, _ANY_TIME, MIN_INT64, MAX_INT64, max_decompressed)
    timestamps = _allowed_timestamps(config, now_ms)
    return check_records(
        view,
        0,
        header,
        require_keys=config.compacts,
        timestamps=timestamps,
        max_decompressed=max_decompressed,
    )


def _fitting(view: memoryview, header: Header, config: LogConfig) -> tuple[memoryview, Header]:
    """The arguments, if a segment has room for the batch."""
    if len(view) > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {len(view)} bytes does not fit a segment, which holds {config.segment_bytes} (segment.bytes)",
        )
    return view, header


def _at_last(prepared: Prepared, config: LogConfig, now_ms: int) -> tuple[memoryview, Header]:
    """A prepared batch at the moment of its append, which becomes the time of its records where the topic sets it."""
    if not config.stamps_append_time:
        return prepared.view, prepared.header
    stamp_log_append_time(prepared.view, 0, prepared.header, now_ms)
    return prepared.view, read_header(prepared.view)


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
    if not is_framed(header) or header.size != len(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes, where a batch of {header.size} is announced")
    return header


def _allowed_timestamps(config: LogConfig, now_ms: int) -> tuple[int, int, int] | None:
    """The argument for `check_records`; None where the broker's clock replaces the times of the records."""
    if config.stamps_append_time:
        return None
    after_max_ms = config.message_timestamp_after_max_ms
    before_max_ms = config.message_timestamp_before_max_ms
    if after_max_ms > MAX_INT64 - now_ms:
        after_max_ms = MAX_INT64 - now_ms
        if before_max_ms == MAX_INT64:
            before_max_ms = now_ms - MIN_INT64  # no limit either way
    return now_ms, before_max_ms, after_max_ms


def _writable(view: memoryview) -> memoryview:
    return memoryview(bytearray(view)) if view.readonly else view


def _recompressed(
    view: memoryview,
    header: Header,
    codec: Codec,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    max_decompressed: int,
) -> tuple[memoryview, Header]:
    """The validated batch, with the codec and the time that the topic configures."""
    payload: Buffer = view[HEADER_SIZE:]
    plain = view
    if header.codec:
        payload = _decompressed(view[HEADER_SIZE:], header.codec, max_decompressed)
        plain = memoryview(b"".join((bytes(HEADER_SIZE), payload)))
        header = header._replace(
            attributes=header.attributes & ~CODEC_MASK, batch_length=len(plain) - LOG_OVERHEAD, crc=0
        )
    max_timestamp = header.max_timestamp
    if origin is AppendOrigin.CLIENT:
        max_timestamp = _judge(plain, header, config, now_ms, max_decompressed)
        _check_rewritable(plain, header)
    if header.is_log_append_time:  # then the records themselves do not have their time
        whole = build(list(records(sealed(header, payload))), last_offset=header.last_offset)
        header = header._replace(base_timestamp=header.max_timestamp)
        payload = memoryview(whole)[HEADER_SIZE:]
    header = header._replace(attributes=header.attributes & TRANSACTIONAL, max_timestamp=max_timestamp)
    return _compressed(header, payload, codec, config, now_ms)


def _check_rewritable(plain: memoryview, header: Header) -> None:
    """Reject a batch that Kafka stores unchanged but cannot write anew (MemoryRecordsBuilder).

    Kafka answers UNKNOWN_SERVER_ERROR.
    """
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise InvalidRecords(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    elif header.producer_epoch == NO_PRODUCER_EPOCH or header.base_sequence < 0:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"epoch {header.producer_epoch} and sequence {header.base_sequence} with producer id {header.producer_id}",
        )
    judge_records(plain, 0, header, _ANY_TIME, 0, MAX_INT64)  # times before 1970


def _compressed(
    header: Header, payload: Buffer, codec: int, config: LogConfig, now_ms: int
) -> tuple[memoryview, Header]:
    """The batch of this header and payload with another codec, and the broker's time where the topic sets it."""
    level = None
    if config.compression_type != "producer":  # the levels are those of the topic's own codec
        level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(Codec(codec))
    attributes, max_timestamp = header.attributes | codec, header.max_timestamp
    if config.stamps_append_time:
        attributes, max_timestamp = attributes | LOG_APPEND_TIME, now_ms
    payload = compress(codec, payload, level)
    size = HEADER_SIZE + len(payload)
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    header = header._replace(
        attributes=attributes, max_timestamp=max_timestamp, batch_length=size - LOG_OVERHEAD, crc=0
    )
    batch = memoryview(sealed(header, payload))
    return batch, read_header(batch)


def _up_converted(
    batch: memoryview | None, config: LogConfig, now_ms: int, max_decompressed: int
) -> tuple[memoryview, Header]:
    """A message set as one batch: with the client's codec, or the topic's, and no producer (RecordsUtil, KIP-98)."""
    if batch is None or len(batch) == 0:
        raise NothingToWrite
    payload = up_convert_set(
        batch,
        max_message_bytes=config.max_message_bytes,
        require_keys=config.compacts,
        timestamps=_allowed_timestamps(config, now_ms),
        max_decompressed=max_decompressed,
    )
    header = Header(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=payload.record_count - 1,
        base_timestamp=payload.base_timestamp,
        max_timestamp=payload.max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=payload.record_count,
    )
    codec = payload.codec if config.compression_type == "producer" else _CODECS[config.compression_type]
    return _compressed(header, payload.records, codec, config, now_ms)


def _decompressed(payload: Buffer, codec: int, limit: int) -> Buffer:
    try:
        return decompress(codec, payload, limit)
    except KafkaError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # The checksum matches, so the client sent these bytes; with a retriable error code it would retry for ever.
        raise InvalidRecords(ErrorCode.INVALID_RECORD, problem.message) from None


class Received(NamedTuple):
    """One batch in a leader's data: its position there, its header, and the marker if it is one."""

    position: int
    header: Header
    marker: EndTransactionMarker | None


def marker_in(data: Buffer, position: int, header: Header) -> EndTransactionMarker | None:
    """The transaction marker in a batch, None where it has none. Raises KafkaError CORRUPT_MESSAGE."""
    if header.producer_id < 0 or not header.is_control:
        return None
    try:
        return read_marker(data, position, header)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def split_batches(data: Buffer, max_epoch: int) -> list[Received]:
    """The whole batches of a leader's data, checked; a torn last one is left out.

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
        if not is_sound(data, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} of {end} is damaged")
        if header.leader_epoch > max_epoch:
            break
        if header.base_offset <= previous:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the batch at byte {position} starts at offset {header.base_offset}, where {previous} came before",
            )
        previous = header.base_offset + header.last_offset_delta
        batches.append(Received(position, header, marker_in(data, position, header)))
        position += size
    return batches


class ReceivedRun:
    """A leader's batches, checked and written into a file of the log's folder; `len` is that of the bytes."""

    __slots__ = ("_staged", "batches", "view")

    def __init__(self, data: memoryview, max_epoch: int, folder: Folder) -> None:
        """Made in a thread. Raises KafkaError as `split_batches`, and KAFKA_STORAGE_ERROR."""
        self.batches = split_batches(data, max_epoch)
        self.view = data[: self.batches[-1].position + self.batches[-1].header.size if self.batches else 0]
        self._staged = _staged(self.view, folder)

    def __len__(self) -> int:
        return len(self.view)

    def staged_in(self, folder: Folder) -> StagedBatch | None:
        """The file; None where it is not in the folder that the log has now."""
        return self._staged if self._staged.folder is folder else None
