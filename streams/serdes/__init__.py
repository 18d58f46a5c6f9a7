"""Serdes: serialize and deserialize keys and values in the formats of Kafka's own serializers (Kafka: Serdes).

A serde is two functions. Neither is called with None: a null key or value stays null. `immutable` means that a cache
may keep the value as an object; of mutable values, caches keep the bytes, as Java does of all.

    STRING   str     UTF-8                                  (Serdes.String)
    LONG     int     8 bytes, big-endian, signed            (Serdes.Long)
    INTEGER  int     4 bytes, big-endian, signed            (Serdes.Integer)
    SHORT    int     2 bytes, big-endian, signed            (Serdes.Short)
    DOUBLE   float   8 bytes, big-endian                    (Serdes.Double)
    FLOAT    float   4 bytes, big-endian                    (Serdes.Float)
    BOOLEAN  bool    1 byte                                 (Serdes.Boolean)
    BYTES    bytes   unchanged                              (Serdes.ByteArray)
    UUID     UUID    its text                               (Serdes.UUID)
    VOID     None    nothing but null                       (Serdes.Void)
    JSON     any     compact JSON in UTF-8

`json_serde(type)` and its siblings (typed.py) are for classes of one's own; `SchemaRegistry` (schema_registry.py) is
for Avro, JSON Schema and Protobuf in Confluent's wire format.
"""

from __future__ import annotations

from odradek.streams.serdes.formats import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
    DerivedSerde,
    Serde,
    fixed,
)
from odradek.streams.serdes.lists import list_serde
from odradek.streams.serdes.schema_registry import SchemaRegistry
from odradek.streams.serdes.typed import json_serde, msgpack_serde, pydantic_serde
from odradek.streams.serdes.windowed import LATEST, WindowedSerde, session_windowed_serde, windowed_serde

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "JSON",
    "LATEST",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "DerivedSerde",
    "SchemaRegistry",
    "Serde",
    "WindowedSerde",
    "fixed",
    "json_serde",
    "list_serde",
    "msgpack_serde",
    "pydantic_serde",
    "session_windowed_serde",
    "windowed_serde",
]
