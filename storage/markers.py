"""Transaction markers: the control records that end transactions (Kafka: EndTransactionMarker)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from odradek.protocol.batch import CONTROL, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL, Buffer, Header, is_framed, records
from odradek.protocol.errors import ProtocolError

_ABORT: Final = 0
_COMMIT: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_USUAL_RECORD: Final = struct.Struct(">5shhbhib")
"""The record of a marker as brokers write it, of 17 bytes: begin, key, length of the value, value, no headers."""
_USUAL_BEGIN: Final = bytes((32, 0, 0, 0, 8))
"""As zigzag varints: 16 bytes, no attributes, no delta of time or offset, a key of 4 bytes."""
_USUAL_VALUE_SIZE: Final = 12
"""6 bytes as a zigzag varint."""
_USUAL_BYTES: Final = HEADER_SIZE + _USUAL_RECORD.size
_USUAL_ATTRIBUTES: Final = CONTROL | TRANSACTIONAL
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python's `__new__`."""


class EndTransactionMarker(NamedTuple):
    """The record that ends a transaction."""

    commits: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(buffer: Buffer, position: int, header: Header) -> EndTransactionMarker | None:
    """The marker in a control batch; None where compaction removed it or where it is of another kind.

    Raises ProtocolError where the batch does not contain a valid marker.
    """
    return _usual_marker(buffer, position, header) or _any_marker(buffer, position, header)


def _usual_marker(buffer: Buffer, position: int, header: Header) -> EndTransactionMarker | None:
    """The marker of a batch with the bytes that brokers write; None for any other."""
    if header.size != _USUAL_BYTES or header.attributes != _USUAL_ATTRIBUTES or header.record_count != 1:
        return None
    if len(buffer) - position < _USUAL_BYTES or not is_framed(header):
        return None
    begin, _, kind, size, _, epoch, headers = _USUAL_RECORD.unpack_from(buffer, position + HEADER_SIZE)
    if begin != _USUAL_BEGIN or size != _USUAL_VALUE_SIZE or headers or kind not in (_ABORT, _COMMIT):
        return None
    return _new(EndTransactionMarker, (kind == _COMMIT, epoch, header.base_timestamp))


def _any_marker(buffer: Buffer, position: int, header: Header) -> EndTransactionMarker | None:
    for record in records(memoryview(buffer)[position : position + LOG_OVERHEAD + header.batch_length]):
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
        except struct.error:
            raise ProtocolError("ControlRecord", position, "key or value too short for a transaction marker") from None
        return EndTransactionMarker(kind == _COMMIT, coordinator_epoch, record.timestamp_ms)
    return None
