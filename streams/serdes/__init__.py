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

from odradek.streams.serdes.formats import BOOLEAN as BOOLEAN
from odradek.streams.serdes.formats import BYTES as BYTES
from odradek.streams.serdes.formats import DOUBLE as DOUBLE
from odradek.streams.serdes.formats import FLOAT as FLOAT
from odradek.streams.serdes.formats import INTEGER as INTEGER
from odradek.streams.serdes.formats import JSON as JSON
from odradek.streams.serdes.formats import LONG as LONG
from odradek.streams.serdes.formats import SHORT as SHORT
from odradek.streams.serdes.formats import STRING as STRING
from odradek.streams.serdes.formats import UUID as UUID
from odradek.streams.serdes.formats import VOID as VOID
from odradek.streams.serdes.formats import DerivedSerde as DerivedSerde
from odradek.streams.serdes.formats import Serde as Serde
from odradek.streams.serdes.formats import fixed as fixed
from odradek.streams.serdes.lists import list_serde as list_serde
from odradek.streams.serdes.schema_registry import SchemaRegistry as SchemaRegistry
from odradek.streams.serdes.typed import json_serde as json_serde
from odradek.streams.serdes.typed import msgpack_serde as msgpack_serde
from odradek.streams.serdes.typed import pydantic_serde as pydantic_serde
from odradek.streams.serdes.windowed import LATEST as LATEST
from odradek.streams.serdes.windowed import WindowedSerde as WindowedSerde
from odradek.streams.serdes.windowed import session_windowed_serde as session_windowed_serde
from odradek.streams.serdes.windowed import windowed_serde as windowed_serde
