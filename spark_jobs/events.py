"""Selects the key, the time or the id of a record by a word of the user, with Spark's own expressions.

    key              the record's key, as bytes
    header:NAME      the value of the last header of that name, as bytes (Kafka's lastHeader)
    $.a.b            a JSON path into the record's value, as text
    timestamp        the record's timestamp; for times only

A time in a header or a value is ms since the epoch, or ISO 8601 (UTC unless it has a zone), and is truncated to whole
ms, as Kafka's are. Where it is missing or neither of the two, the record's own timestamp counts: an operator with a
watermark would drop a row without a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import Column

KEY: Final = "key"
TIMESTAMP: Final = "timestamp"
_HEADER: Final = "header:"
_PART: Final = re.compile(r"key|header:.+|\$.+", re.DOTALL)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"(\d+)({'|'.join(_UNITS_MS)})")


def part_of(name: str) -> Column:
    """`key`, `header:NAME` or `$.path` of a record of the Kafka source; null where the record has none.

    Raises ValueError for any other name.
    """
    from pyspark.sql import functions as f

    _check_part(name)
    if name == KEY:
        return f.col("key")
    if name.startswith(_HEADER):
        wanted = name.removeprefix(_HEADER)
        values = f.filter(f.col("headers"), lambda header: header.key == wanted)
        return f.try_element_at(values, f.lit(-1)).value
    return f.get_json_object(f.col("value").cast("string"), name)


def time_of(name: str) -> Column:
    """A record's time: `timestamp`, `header:NAME` or `$.path`. Raises ValueError for any other name."""
    from pyspark.sql import functions as f

    _check_time(name)
    own = f.col("timestamp")
    if name == TIMESTAMP:
        return own
    text = part_of(name).cast("string")
    time = f.coalesce(f.timestamp_millis(text.try_cast("bigint")), f.try_to_timestamp(text), own)
    return f.timestamp_millis(f.unix_millis(time))


def duration_ms(text: str) -> int:
    """`250ms`, `10s`, `5m`, `1h`, `2d` as ms. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration as 250ms, 10s, 5m, 1h or 2d")
    return int(found[1]) * _UNITS_MS[found[2]]


def interval(ms: int) -> str:
    """A duration in the format of Spark's functions."""
    return f"{ms} milliseconds"


Callback = Callable[[click.Context, click.Parameter, Any], Any]
"""Converts an option's text to the value for the job; raises click's BadParameter, which is wrong usage."""


def as_duration_of(least_ms: int) -> Callback:
    """For an option that is a duration of at least `least_ms`; the job gets ms."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        try:
            ms = duration_ms(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None
        if ms < least_ms:
            raise click.BadParameter(f"{value} is shorter than {least_ms}ms", context, parameter)
        return ms

    return convert


def as_part(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """For an option that names a part of a record."""
    try:
        _check_part(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return value


def as_time(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """For an option that names a record's time."""
    try:
        _check_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return value


def key_option(name: str, *declared: str) -> Callable[[Any], Any]:
    """An option that names the key, or the part `name`, of a record; `key` by default."""
    text = f"Where a record's {name} is: key, header:NAME or a JSON path as $.user."
    return click.option(*declared, default=KEY, show_default=True, metavar="PART", callback=as_part, help=text)


def time_option() -> Callable[[Any], Any]:
    """--time, which names the time of a record."""
    text = "Where a record's time is: timestamp, header:NAME or a JSON path as $.at; ms since the epoch, or ISO 8601."
    return click.option("--time", default=TIMESTAMP, show_default=True, metavar="PART", callback=as_time, help=text)


def lateness_option() -> Callable[[Any], Any]:
    """--lateness, in ms; none by default."""
    text = "How much earlier than the latest record one may be and still be counted."
    zero = as_duration_of(0)
    return click.option("--lateness", default="0ms", show_default=True, metavar="DURATION", callback=zero, help=text)


def _check_part(name: str) -> None:
    if not _PART.fullmatch(name):
        raise ValueError(f"{name!r} is not key, header:NAME or a path as $.user.id")


def _check_time(name: str) -> None:
    if name != TIMESTAMP and (name == KEY or not _PART.fullmatch(name)):
        raise ValueError(f"{name!r} is not timestamp, header:NAME or a path as $.at")
