"""Records of Kafka's own topics as text: keys and values as JSON, as kafka-dump-log prints them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.protocol.errors import ProtocolError
from odradek.records.consumed import ConsumedRecord

GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"


def decoder_of(topic: str) -> Callable[[ConsumedRecord], ConsumedRecord]:
    """What makes text of a topic's records; records of other topics stay as they are."""
    return _DECODERS.get(topic, _unchanged)


def is_internal(topic: str) -> bool:
    """Whether the records of a topic are Kafka's own."""
    return topic in _DECODERS


def _unchanged(record: ConsumedRecord) -> ConsumedRecord:
    return record


def _decoded(record: ConsumedRecord) -> ConsumedRecord:
    from odradek.protocol.records import Record
    from odradek.record_text import offsets_text, transaction_text

    text_of = offsets_text if record.topic == GROUP_OFFSETS else transaction_text
    try:
        key, value = text_of(Record(record.offset, record.timestamp, record.key, record.value))
    except ProtocolError:
        return record
    return record._replace(key=_bytes(key), value=_bytes(value))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


_DECODERS: Final[Mapping[str, Callable[[ConsumedRecord], ConsumedRecord]]] = {
    GROUP_OFFSETS: _decoded,
    TRANSACTION_STATE: _decoded,
}
