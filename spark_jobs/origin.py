"""The origin of a copied record: writes and reads the headers that every copy carries.

Kafka gives a record another offset in another topic, and may give it another time, so the headers of a copy contain
both of the original record. A copy of a copy names the record that it was read from; there is one origin.

    odradek.origin       topic:partition:offset, in UTF-8, as in orders:3:1204
    odradek.timestamp    ms since the epoch, as text

Names of headers that begin with `odradek.` are the jobs' own: they are not part of a record's content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

PREFIX: Final = "odradek."
ORIGIN: Final = "odradek.origin"
TIMESTAMP: Final = "odradek.timestamp"
_PLACE: Final = r"^(.*):(\d+):(\d+)$"


def without(headers: Column) -> Column:
    """The headers of the original record; no headers are an empty array, as Spark gives null for them."""
    own = f.filter(headers, lambda header: ~header.key.startswith(PREFIX))
    return f.coalesce(own, f.array().cast("array<struct<key:string,value:binary>>"))


def headers_of(topic: Column, partition: Column, offset: Column, timestamp: Column) -> Column:
    """The headers that name a record as the origin of a copy."""
    place = f.concat_ws(":", topic, partition.cast("string"), offset.cast("string"))
    return f.array(
        f.struct(f.lit(ORIGIN).alias("key"), f.encode(place, "UTF-8").alias("value")),
        f.struct(
            f.lit(TIMESTAMP).alias("key"), f.encode(f.unix_millis(timestamp).cast("string"), "UTF-8").alias("value")
        ),
    )


def place_of(headers: Column) -> Column:
    """The origin as a struct of topic, partition, offset; null where no header names one."""

    def parsed(text: Column) -> Column:
        place = f.struct(
            f.regexp_extract(text, _PLACE, 1).alias("topic"),
            f.regexp_extract(text, _PLACE, 2).cast("int").alias("partition"),
            f.regexp_extract(text, _PLACE, 3).cast("bigint").alias("offset"),
        )
        return f.when(text.rlike(_PLACE), place)

    return once(_last(headers, ORIGIN), parsed)


def timestamp_ms_of(headers: Column) -> Column:
    """The time of the origin in ms since the epoch; null where no header contains it."""
    return once(_last(headers, TIMESTAMP), lambda text: f.when(text.rlike(r"^-?\d+$"), text.cast("bigint")))


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, for an expensive `value`: Spark computes it once for a row, for any number of uses.

    Spark treats two expressions with an array function as different, and each would read the headers again.
    """
    return f.transform(f.array(value), use)[0]


def _last(headers: Column, name: str) -> Column:
    values = f.filter(headers, lambda header: header.key == name)
    return f.decode(f.try_element_at(values, f.lit(-1)).value, "UTF-8")
