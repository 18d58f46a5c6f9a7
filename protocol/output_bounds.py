"""Bounds of decompression: how many bytes compressed data can give, from its headers alone.

A few KiB can decompress to more than 100 MiB, so the size of compressed data does not show how long the work takes.
Each format has headers that limit the output: the lengths that snappy's blocks announce, the block size of an lz4
frame, the blocks and the content size of a zstd frame. `compression.decompress` rejects data that gives more than its
headers announce. Deflate has no such header: the bound of gzip is the maximal ratio of the format, and the size that
its last member announces (`announced_size`) is only a hint.
"""

from __future__ import annotations

import struct
from typing import Final

from odradek.protocol.compression import Buffer, Codec, snappy_stream_at, zstd_header_size

GZIP_EXPANSION: Final = 1032
"""Deflate copies 258 bytes with two bits."""
SNAPPY_EXPANSION: Final = 22
LZ4_EXPANSION: Final = 255
"""Each byte of a match length stands for 255 bytes."""
ZSTD_BLOCK: Final = 128 * 1024
HEADERS_READ: Final = 128
"""Data with more blocks than this has no known bound: to read all headers would take long itself."""

_BIG_UINT32: Final = struct.Struct(">I")
_LITTLE_UINT32: Final = struct.Struct("<I")
_LITTLE_UINT64: Final = struct.Struct("<Q")
_LITTLE_UINT16: Final = struct.Struct("<H")
_SNAPPY_HEADER_BYTES: Final = 16
_GZIP_SHORTEST: Final = 18
_LZ4_MAGIC: Final = 0x184D2204
_ZSTD_MAGIC: Final = 0xFD2FB528
_LZ4_STORED: Final = 0x80000000


def output_bound(codec: int, data: Buffer, enough: int) -> int:
    """The most bytes that `data` can decompress to; `enough + 1` where that is more than `enough` or not known.

    Reads the first HEADERS_READ block headers at most. Malformed data has no known bound.
    """
    view = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                bound = len(view)
            case Codec.GZIP:
                bound = GZIP_EXPANSION * len(view)
            case Codec.SNAPPY:
                bound = _snappy_bound(view, enough)
            case Codec.LZ4:
                bound = _lz4_bound(view, enough)
            case Codec.ZSTD:
                bound = _zstd_bound(view, enough)
            case _:
                bound = 0  # an unknown codec is rejected, not decompressed
    except (IndexError, struct.error):
        return enough + 1
    return min(bound, enough + 1)


def announced_size(codec: int, data: Buffer, enough: int) -> int:
    """`output_bound`, but for gzip the size at the end of the last member: more may come out of several members."""
    if codec != Codec.GZIP or len(data) < _GZIP_SHORTEST:
        return output_bound(codec, data, enough)
    size: int = _LITTLE_UINT32.unpack_from(data, len(data) - 4)[0]
    return min(size, GZIP_EXPANSION * len(data), enough + 1)


def _snappy_bound(data: memoryview, enough: int) -> int:
    by_ratio = SNAPPY_EXPANSION * len(data)
    if by_ratio <= enough:
        return by_ratio
    if not snappy_stream_at(data, 0):
        return min(by_ratio, _varint(data, 0))
    bound = position = 0
    for _ in range(HEADERS_READ):
        if position >= len(data):
            return bound
        if snappy_stream_at(data, position):
            position += _SNAPPY_HEADER_BYTES
            continue
        size: int = _BIG_UINT32.unpack_from(data, position)[0]
        bound += min(SNAPPY_EXPANSION * size, _varint(data, position + 4))
        position += 4 + size
        if bound > enough:
            break
    return enough + 1


def _varint(data: memoryview, position: int) -> int:
    number = 0
    for index in range(5):
        byte = data[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    return number


def _lz4_bound(data: memoryview, enough: int) -> int:
    by_ratio = LZ4_EXPANSION * len(data)
    if by_ratio <= enough:
        return by_ratio
    if _LITTLE_UINT32.unpack_from(data)[0] != _LZ4_MAGIC:
        return enough + 1
    flags, largest = data[4], 1 << 2 * (data[5] >> 4 & 7) + 8  # 4 to 7 stand for 64 KiB to 4 MiB
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    for _ in range(HEADERS_READ):
        size: int = _LITTLE_UINT32.unpack_from(data, position)[0]
        if not size:
            return bound
        stored, size = size & _LZ4_STORED, size & ~_LZ4_STORED
        bound += size if stored else min(largest, LZ4_EXPANSION * size)
        position += 4 + size + (4 if flags & 0x10 else 0)
        if bound > enough:
            break
    return enough + 1


def _zstd_bound(data: memoryview, enough: int) -> int:
    if _LITTLE_UINT32.unpack_from(data)[0] != _ZSTD_MAGIC:
        return enough + 1
    descriptor = data[4]
    position = 5 + zstd_header_size(descriptor)
    bound = 0
    for _ in range(HEADERS_READ):
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, size = block >> 1 & 3, block >> 3
        bound += ZSTD_BLOCK if kind > 1 else size
        position += 3 + (1 if kind == 1 else size)
        if bound > enough:
            break
        if block & 1:
            position += 4 if descriptor & 0x04 else 0  # the checksum
            one_frame = position == len(data)
            return min(bound, _zstd_content_size(data, descriptor)) if one_frame else enough + 1
    return enough + 1


def _zstd_content_size(data: memoryview, descriptor: int) -> int:
    """The size that the frame announces, if it does (RFC 8878, 3.1.1.1.4)."""
    single_segment = descriptor >> 5 & 1
    position = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    match descriptor >> 6:
        case 0:
            return data[position] if single_segment else 2**63
        case 1:
            return int(_LITTLE_UINT16.unpack_from(data, position)[0]) + 256
        case 2:
            return int(_LITTLE_UINT32.unpack_from(data, position)[0])
        case _:
            return int(_LITTLE_UINT64.unpack_from(data, position)[0])
