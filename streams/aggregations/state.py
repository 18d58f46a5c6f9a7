"""The bytes of states, in stores and changelogs: CBOR (RFC 8949), by cbor2.

Every state is one CBOR item. What a field may be, and how it is stored:

    None, bool, float, str, bytes, list, dict    CBOR's own types
    int                                          an integer; beyond 64 bits a bignum (tags 2 and 3)
    Decimal, Fraction                            tags 4 and 30
    datetime with a time zone, date              tags 0 and 1004
    UUID, set                                    tags 37 and 258
    tuple                                        an array, which is read as a list

    sum, min, max, count                         the number or the value
    mean                                         an array of the sum and the number of values
    collect, top_k                               an array of values; of top_k with `by`, of [rank, value]
    count_distinct                               a byte string: an HLL sketch as Apache DataSketches serializes it
    agg(...)                                     a map of these by their names

So the numbers of a later release can be restored from the changelog of this one. A store with another serde has that
serde's format: `Materialized(value=LONG)` for sums as Java has them.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.streams.errors import SerializationError
from odradek.streams.extras import extra_module
from odradek.streams.serdes import Serde

EXTRA: Final = "streams"


def encode(state: Any) -> bytes:
    """The bytes of a state. Raises MissingExtraError, and SerializationError for a type that is not in the table."""
    dumps = _cbor().dumps
    try:
        return bytes(dumps(state))
    except Exception as error:
        raise SerializationError(
            f"{error}: aggregate a field of a type that CBOR has, or give the store a serde, Materialized(value=…)"
        ) from error


def decode(data: bytes) -> Any:
    """The state. Raises MissingExtraError, and cbor2's error for bytes that are no CBOR."""
    return _cbor().loads(data)


def encode_canonically(item: Any) -> bytes:
    """The same bytes for equal dicts and sets, in any order of their entries (RFC 8949, 4.2)."""
    return bytes(_cbor().dumps(item, canonical=True))


def _cbor() -> Any:
    """cbor2; the first state imports it."""
    return extra_module("cbor2", EXTRA, "an aggregation by name")


STATE: Final[Serde[Any]] = Serde(encode, decode, name="state", immutable=True)
"""Of states that no operator downstream can change in place: a cache may keep the objects."""
STATE_OF_LISTS: Final[Serde[Any]] = Serde(encode, decode, name="state")
"""Of states that are lists or dicts, or contain them."""
