"""Reads and writes the single records of a batch of magic 2 (Kafka: DefaultRecord).

The layout of a record is described in chain.py. Produced batches do not pass through this module: `chain.scan` checks
them as a whole. Its users are consumers' tools, the coordinators (which write and replay records) and the cleaner.
`write_records` has two implementations, as `chain.scan` has: in C (`_chain.c`), and here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.chain import FAULTS, Buffer, ChainError, Fault, read_varint, wrapped_int64
from odradek.protocol.errors import ProtocolError

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. `timestamp_ms` is -1 where there is none; None for key or value is Kafka's null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Chain(NamedTuple):
    """A payload of records and the fields of its header.

    `append_time_ms`, where not None, is the timestamp of every record (LogAppendTime).
    """

    payload: Buffer
    start: int
    end: int
    record_count: int
    base_offset: int
    base_timestamp: int
    append_time_ms: int | None


def read_records(chain: Chain) -> Iterator[Record]:
    """The records of a chain, each read on iteration.

    Raises ProtocolError where it is malformed; the position counts from the start of the (decompressed) payload.
    """
    position = chain.start
    for index in range(chain.record_count):
        try:
            record, position = _read_record(chain, position)
        except ChainError as found:
            raise ProtocolError(f"RecordBatch.records[{index}]", position, FAULTS[found.fault]) from None
        yield record
    if position != chain.end:
        raise ProtocolError(f"RecordBatch.records[{chain.record_count}]", position, FAULTS[Fault.TRAILING])


def _read_record(chain: Chain, position: int) -> tuple[Record, int]:
    payload = chain.payload
    size, position = read_varint(payload, position, chain.end, 32, Fault.TRUNCATED)
    if size < 1:
        raise ChainError(Fault.RECORD_SIZE)
    end = position + size
    if end > chain.end:
        raise ChainError(Fault.TRUNCATED)
    timestamp, position = read_varint(payload, position + 1, end, 64, Fault.RECORD_SIZE)
    if chain.append_time_ms is None:
        timestamp = wrapped_int64(chain.base_timestamp + timestamp)
    else:
        timestamp = chain.append_time_ms
    offset_delta, position = read_varint(payload, position, end, 32, Fault.RECORD_SIZE)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    headers, position = _read_headers(payload, position, end)
    if position != end:
        raise ChainError(Fault.RECORD_SIZE)
    return Record(chain.base_offset + offset_delta, timestamp, key, value, headers), position


def _read_bytes(payload: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position, end, 32, Fault.RECORD_SIZE)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise ChainError(Fault.RECORD_SIZE)
    return bytes(payload[position:after]), after


def _read_headers(payload: Buffer, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(payload, position, end, 32, Fault.RECORD_SIZE)
    if count == 0:
        return (), position
    if not 0 < count <= end - position:
        raise ChainError(Fault.HEADERS)
    headers = []
    for _ in range(count):
        key, position = _read_bytes(payload, position, end)
        if key is None:
            raise ChainError(Fault.HEADER_KEY)
        value, position = _read_bytes(payload, position, end)
        headers.append((key.decode("utf-8", "replace"), value))  # as Java reads a key that is not UTF-8
    return headers, position


def write_records_in_python(records: Iterable[Record], base_offset: int, base_timestamp: int, /) -> bytearray:
    """The payload of a batch, uncompressed. The caller guarantees that offsets ascend from `base_offset`."""
    payload = bytearray()
    for offset, timestamp_ms, key, value, headers in records:
        body = bytearray(1)  # the attributes
        put_varint(body, wrapped_int64(timestamp_ms - base_timestamp))
        put_varint(body, offset - base_offset)
        _put_bytes(body, key)
        _put_bytes(body, value)
        put_varint(body, len(headers))
        for name, content in headers:
            _put_bytes(body, name.encode())
            _put_bytes(body, content)
        put_varint(payload, len(body))
        payload += body
    return payload


def put_varint(out: bytearray, number: int) -> None:
    """Add a zigzag varint."""
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _put_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # the varint of -1
    else:
        put_varint(out, len(content))
        out += content


try:
    from odradek.protocol import _chain

    write_records = _chain.write_records
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    write_records = write_records_in_python
