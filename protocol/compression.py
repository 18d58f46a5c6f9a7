"""The four codecs of record batches, compatible with Kafka's clients (Kafka: CompressionType).

- gzip: plain members (RFC 1952).
- snappy: written in the framing of snappy-java, blocks of 32 KiB behind lengths; read in that framing and as one bare
  block, which other clients send (Java reads both too).
- lz4: the frame format with independent blocks of 64 KiB and neither sizes nor content checksum: the format that
  KafkaLZ4BlockOutputStream writes. Java rejects linked blocks, so they are never written; they are read. Clients of
  magic 0 computed the checksum of the frame's header from the frame's first byte on, in place of the descriptor's
  (KAFKA-3160), and some expect it so: `mend_lz4_header` and `break_lz4_header`.
- zstd: frames (KIP-110).

For any input, `decompress` allocates no more than a small multiple of the input's size until it has really produced
more, and stops at the caller's limit. It checks the lengths in frames against the maximum that the format can yield
from so many bytes before it uses them.

A codec's library is imported at its first use: a start is faster, and a process whose clients use none of them saves 3
MB. The import opens files, for which a process may lend descriptors that it holds in reserve (`import_under`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from typing import Final, NoReturn

from odradek.protocol.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The codec number in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedTooLarge(KafkaError):  # noqa: N818 - named after the response
    """MESSAGE_TOO_LARGE: the data decompresses to more bytes than the limit of the caller."""


_imported: Final = {int(Codec.NONE)}
_lend: Callable[[], AbstractContextManager[None]] = nullcontext


def import_under(lend: Callable[[], AbstractContextManager[None]]) -> None:
    """Have this process import the library of each codec within a context that `lend` makes."""
    global _lend
    _lend = lend


def _import_library(codec: int) -> None:
    """Import all that a codec needs, so that the imports in its functions open no file. Raises ImportError, OSError."""
    with _lend():
        match codec:
            case Codec.GZIP:
                import zlib  # noqa: F401
            case Codec.SNAPPY:
                import cramjam
            case Codec.LZ4:
                import cramjam  # noqa: F401
                from lz4 import frame  # noqa: F401
            case Codec.ZSTD:
                import zstandard  # noqa: F401
    _imported.add(codec)


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` compressed so that Kafka's Java readers accept it; `level` is that of compression.<codec>.level (KIP-390).

    Raises ValueError for a codec that does not exist; NONE returns `data` itself.
    """
    if codec not in _imported:
        _import_library(codec)
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _write_gzip(data, level)
        case Codec.SNAPPY:
            return _write_snappy(data)
        case Codec.LZ4:
            return _write_lz4(data, level)
        case Codec.ZSTD:
            return _write_zstd(data, level)
    raise ValueError(f"codec {codec} where 0 to 4 are defined")


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """The decompressed bytes of `data`, from `compress` or any Kafka client; NONE returns `data` itself.

    Raises KafkaError: CORRUPT_MESSAGE for malformed data, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec, and
    DecompressedTooLarge (MESSAGE_TOO_LARGE) where the result would exceed `limit` bytes. Kafka, which streams, has no
    such limit and so no code for it; this one is final for the batch, and makes the Java producer split the batch and
    send it in parts.
    """
    if codec not in _imported:
        _import_library(codec)
    match codec:
        case Codec.NONE:
            return data if len(data) <= limit else _too_large(limit)
        case Codec.GZIP:
            return _read_gzip(data, limit)
        case Codec.SNAPPY:
            return _read_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _read_lz4(memoryview(data), limit)
        case Codec.ZSTD:
            return _read_zstd(memoryview(data), limit)
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec}; 0 to 4 are known")


def _too_large(limit: int) -> NoReturn:
    raise DecompressedTooLarge(
        ErrorCode.MESSAGE_TOO_LARGE, f"the records take more than {limit} bytes when decompressed"
    )


def _malformed(codec: Codec, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"malformed {codec.name.lower()} data: {reason}")


_LARGEST_CHUNK: Final = 1 << 20
"""Bytes that one call of a library gives: it copies them while it holds the interpreter."""


# --- gzip ---------------------------------------------------------------------------------------------------------

_GZIP_WINDOW: Final = 31  # in zlib: a gzip header and the largest window
_GZIP_MAGIC: Final = b"\x1f\x8b"
# The tail behind a member is copied each time a member ends, so a payload of many tiny members is fed in pieces.
_GZIP_PIECE: Final = 16_384


def _write_gzip(data: Buffer, level: int | None) -> bytes:
    import zlib

    deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return deflater.compress(data) + deflater.flush()


def _read_gzip(data: Buffer, limit: int) -> bytearray:
    import zlib

    view = memoryview(data)
    output = bytearray()  # to join parts at the end would hold the interpreter for as long as the whole copy takes
    room = limit
    position = 0
    while position == 0 or bytes(view[position : position + 2]) == _GZIP_MAGIC:  # Java, too, ignores any other tail
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        has_more = False
        while not inflater.eof:
            piece = inflater.unconsumed_tail or (b"" if has_more else view[position : position + _GZIP_PIECE])
            if not piece and not has_more:
                raise _malformed(Codec.GZIP, "it ends inside a member")
            if not inflater.unconsumed_tail:
                position += len(piece)
            allowed = min(room + 1, _LARGEST_CHUNK)
            try:
                part = inflater.decompress(piece, allowed)
            except zlib.error as problem:
                raise _malformed(Codec.GZIP, str(problem)) from None
            has_more = len(part) == allowed  # the rest of the output may need no more input
            room -= len(part)
            if room < 0:
                _too_large(limit)
            output += part
        position -= len(inflater.unused_data)
    return output


# --- snappy -------------------------------------------------------------------------------------------------------

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
_SNAPPY_BLOCK: Final = 32_768
# The densest element of the format copies 64 bytes with 3.
_SNAPPY_EXPANSION: Final = 22
_LENGTH: Final = struct.Struct(">I")


def _write_snappy(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_SNAPPY_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _read_snappy(data: memoryview, limit: int) -> bytearray | memoryview:
    from cramjam import DecompressionError, snappy

    blocks = _snappy_blocks(data) if snappy_stream_at(data, 0) else [data]
    sizes = [_snappy_block_size(block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        _too_large(limit)
    if total > _LARGEST_CHUNK:
        return _read_large_snappy(blocks, sizes)
    output = bytearray(total)
    position = 0
    with memoryview(output) as target:
        for block, size in zip(blocks, sizes, strict=True):
            try:
                produced = snappy.decompress_raw_into(block, target[position : position + size]) if size else 0
            except DecompressionError as problem:
                raise _malformed(Codec.SNAPPY, str(problem)) from None
            if produced != size:
                raise _malformed(Codec.SNAPPY, f"a block gave {produced} bytes where it announced {size}")
            position += size
    return output


def _read_large_snappy(blocks: list[memoryview], sizes: list[int]) -> bytearray | memoryview:
    """Decompress block by block: a buffer for all would be cleared first, by one call that holds the interpreter."""
    from cramjam import DecompressionError, snappy

    output = bytearray()
    for block, size in zip(blocks, sizes, strict=True):
        try:
            part = memoryview(snappy.decompress_raw(block))
        except DecompressionError as problem:
            raise _malformed(Codec.SNAPPY, str(problem)) from None
        if len(part) != size:
            raise _malformed(Codec.SNAPPY, f"a block gave {len(part)} bytes where it announced {size}")
        if len(blocks) == 1:
            return part
        output += part
    return output


def snappy_stream_at(data: memoryview, position: int) -> bool:
    """Whether a stream in snappy-java's framing begins at `position`."""
    return bytes(data[position : position + len(_SNAPPY_MAGIC)]) == _SNAPPY_MAGIC


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """The blocks of a stream in snappy-java's framing; streams may follow one another, each with its own header."""
    blocks = []
    position = 0
    end = len(data)
    while position < end:
        if snappy_stream_at(data, position):
            position += len(_SNAPPY_HEADER)
            if position > end:
                raise _malformed(Codec.SNAPPY, "it ends inside a stream header")
            continue
        if end - position < _LENGTH.size:
            raise _malformed(Codec.SNAPPY, "it ends inside a block length")
        size: int = _LENGTH.unpack_from(data, position)[0]
        position += _LENGTH.size
        if size > end - position:
            raise _malformed(Codec.SNAPPY, f"a block of {size} bytes where {end - position} are left")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _snappy_block_size(block: memoryview) -> int:
    """The announced size of the block, a varint at its start, if so many bytes can come out of it."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size > _SNAPPY_EXPANSION * len(block):
                raise _malformed(Codec.SNAPPY, f"a block of {len(block)} bytes announces {size}")
            return size
    raise _malformed(Codec.SNAPPY, "a block does not contain its size")


# --- lz4 ----------------------------------------------------------------------------------------------------------

_LZ4_KAFKA_DEFAULT_LEVEL: Final = 9  # means the fast compressor in Kafka, unlike every other level
_FIRST_CHUNK: Final = 65_536


def _write_lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    fast = level is None or level == _LZ4_KAFKA_DEFAULT_LEVEL
    written: bytes = frame.compress(
        data,
        compression_level=0 if fast else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return written


_SCRATCH_BYTES: Final = 1 << 20
_scratch: list[bytearray] = []
"""Buffers for decompression, one for each thread that decompresses at a time. Fresh memory costs more than the work."""


def _read_lz4(data: memoryview, limit: int) -> bytes | bytearray:
    """Decompress into the scratch buffer, which most batches fit; else decompress in chunks, with the limit."""
    from cramjam import DecompressionError, lz4

    buffer = _scratch.pop() if _scratch else bytearray(_SCRATCH_BYTES)
    try:
        size = lz4.decompress_into(data, buffer)
        if 0 < size <= limit:
            return bytes(memoryview(buffer)[:size])
    except DecompressionError:
        pass
    finally:
        _scratch.append(buffer)
    return _read_lz4_in_chunks(data, limit)


def _read_lz4_in_chunks(data: memoryview, limit: int) -> bytearray:
    from lz4 import frame

    context = frame.create_decompression_context()
    output = bytearray()
    room = limit
    position = 0
    # The library allocates the maximum that it may produce, so the chunk grows with the bytes that it has produced.
    chunk = min(max(_FIRST_CHUNK, 4 * len(data)), _LARGEST_CHUNK)
    while True:
        allowed = min(chunk, room + 1)
        try:
            part, consumed, ended = frame.decompress_chunk(context, data[position:], max_length=allowed)
        except RuntimeError as problem:
            raise _malformed(Codec.LZ4, str(problem)) from None
        position += consumed
        room -= len(part)
        output += part
        if room < 0:
            _too_large(limit)
        if ended:
            return output
        if len(part) < allowed and position == len(data):
            raise _malformed(Codec.LZ4, "it ends inside the frame")
        chunk = min(2 * chunk, _LARGEST_CHUNK)


_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_SIZE_FLAG: Final = 0x08
_LZ4_DICTIONARY_FLAG: Final = 0x01


def mend_lz4_header(data: Buffer) -> Buffer:
    """A frame with the right header checksum in place of any other; bytes that are no frame stay unchanged."""
    return _with_header_checksum(data, start=len(_LZ4_MAGIC))


def break_lz4_header(data: Buffer) -> Buffer:
    """A frame with the header checksum that clients of magic 0 compute."""
    return _with_header_checksum(data, start=0)


def _with_header_checksum(data: Buffer, start: int) -> Buffer:
    view = memoryview(data)
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        return data
    position = 6 + (8 if view[4] & _LZ4_SIZE_FLAG else 0)
    if position >= len(view) or view[4] & _LZ4_DICTIONARY_FLAG:  # Java does not support dictionaries
        return data
    checksum = _short_xxh32(view[start:position]) >> 8 & 0xFF
    return data if view[position] == checksum else b"".join((view[:position], bytes((checksum,)), view[position + 1 :]))


_XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK: Final = 0xFFFFFFFF


def _short_xxh32(data: memoryview) -> int:
    """xxHash32, with the seed 0, of fewer than 16 bytes."""
    one, two, three, four, five = _XXH_PRIMES
    size = len(data)
    words = size - size % 4
    total = (five + size) & _MASK
    for (word,) in _LITTLE_UINT32.iter_unpack(data[:words]):
        total = _rotated((total + word * three) & _MASK, 17) * four & _MASK
    for byte in data[words:]:
        total = _rotated((total + byte * five) & _MASK, 11) * one & _MASK
    total = (total ^ total >> 15) * two & _MASK
    total = (total ^ total >> 13) * three & _MASK
    return total ^ total >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK


# --- zstd ---------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50  # and the fifteen numbers after it
_ZSTD_BLOCK: Final = 131_072  # no block gives more
_ZSTD_MAX_WINDOW: Final = 1 << 27  # what Java's reader allows
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_RESERVED = 0, 1, 3
_LITTLE_UINT32: Final = struct.Struct("<I")


def _write_zstd(data: Buffer, level: int | None) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=3 if level is None else level).compress(data)


def _read_zstd(data: memoryview, limit: int) -> bytes | bytearray:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    decompressor = ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    output: bytes | bytearray = b""
    room = limit
    position = 0
    if not data:
        raise _malformed(Codec.ZSTD, "there is no frame")
    while position < len(data):
        after, bound = _zstd_frame(data, position)
        frame = data[position:after]
        position = after
        if bound is None:
            continue
        try:
            claimed = frame_content_size(frame)
            if claimed > bound:
                raise _malformed(Codec.ZSTD, f"a frame announces {claimed} bytes where its blocks hold {bound} at most")
            if claimed > room:
                _too_large(limit)
            part = decompressor.decompress(frame, max_output_size=max(min(bound, room + 1), 1))
        except ZstdError as problem:
            # The frame is complete, so a library that did not reach its end had no room for more.
            if bound > room and "did not decompress full frame" in str(problem):
                _too_large(limit)
            raise _malformed(Codec.ZSTD, str(problem)) from None
        room -= len(part)
        if room < 0:
            _too_large(limit)
        if not output:
            output = part
        elif isinstance(output, bytes):
            output = bytearray(output) + part
        else:
            output += part
    return output


def _zstd_frame(data: memoryview, start: int) -> tuple[int, int | None]:
    """The end of the frame at `start` and the maximum size of its blocks; None for a skippable frame (RFC 8878).

    The library decompresses a whole frame in one call into a buffer that it allocates first; this walk from block to
    block proves that the frame is complete and returns the necessary size of the buffer.
    """
    try:
        magic: int = _LITTLE_UINT32.unpack_from(data, start)[0]
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            after = start + 8 + int(_LITTLE_UINT32.unpack_from(data, start + 4)[0])
            if after > len(data):
                raise _malformed(Codec.ZSTD, "it ends inside a skippable frame")
            return after, None
        if magic != _ZSTD_MAGIC:
            raise _malformed(Codec.ZSTD, f"no frame starts at byte {start}")
        descriptor = data[start + 4]
        position = start + 5 + zstd_header_size(descriptor)
        bound = 0
        last = False
        while not last:
            block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            if kind == _ZSTD_RESERVED or size > _ZSTD_BLOCK:
                raise _malformed(Codec.ZSTD, f"an impossible block at byte {position}")
            bound += size if kind in (_ZSTD_RAW, _ZSTD_RLE) else _ZSTD_BLOCK
            position += 3 + (1 if kind == _ZSTD_RLE else size)
    except (IndexError, struct.error):
        raise _malformed(Codec.ZSTD, "it ends inside a frame") from None
    after = position + (4 if descriptor & 0x04 else 0)  # the checksum
    if after > len(data):
        raise _malformed(Codec.ZSTD, "it ends inside a frame")
    return after, bound


def zstd_header_size(descriptor: int) -> int:
    """The number of bytes between the descriptor and the first block: window, dictionary id, content size."""
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    return (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size
