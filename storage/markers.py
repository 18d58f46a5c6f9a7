"""Transaction markers: the control records that end transactions (Kafka: EndTransactionMarker)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from odradek.protocol.batch import LOG_OVERHEAD, Buffer, Header, records
from odradek.protocol.errors import ProtocolError

_ABORT: Final = 0
_COMMIT: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """The record that ends a transaction."""

    commits: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(buffer: Buffer, position: int, header: Header) -> EndTransactionMarker | None:
    """The marker in a control batch; None where compaction removed it or where it is of another kind.

    Raises ProtocolError where the batch does not contain a valid marker.
    """
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
