"""Hypothesis strategies for streams: keys and values by serde, sequences of records with timestamps, interleavings.

hypothesis is imported when a strategy is made (extra `testing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.driver import Span
from odradek.streams.errors import ArgumentError
from odradek.streams.extras import extra_module
from odradek.streams.records import Record
from odradek.streams.serdes import Serde

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

EXTRA: Final = "testing"
MOST_KEYS: Final = 3
"""Distinct keys of one sequence: with few of them keys meet, in stores and in windows."""
_MS: Final = timedelta(milliseconds=1)
_BITS: Final = {"long": 64, "integer": 32, "short": 16}


def hypothesis_module(name: str, user: str) -> Any:
    """A module of hypothesis. Raises MissingExtraError where it is not installed."""
    return extra_module(name, EXTRA, user)


def values_of(serde: Serde[Any]) -> SearchStrategy[Any]:
    """The values of one of Kafka's serdes, and of JSON (without a null at the top: null is a deletion).

    Raises ArgumentError for another serde: a strategy takes its place, such as `st.builds(Order)`.
    """
    st = hypothesis_module("hypothesis.strategies", "odradek.streams.testing.values_of")
    name = serde.name
    if name in _BITS:
        limit = 2 ** (_BITS[name] - 1)
        return st.integers(-limit, limit - 1)  # type: ignore[no-any-return]
    finite = st.floats(allow_nan=False, allow_infinity=False)
    simple = {
        "string": st.text,
        "double": lambda: st.floats(allow_nan=False),
        "float": lambda: st.floats(allow_nan=False, width=32),
        "boolean": st.booleans,
        "bytes": st.binary,
        "uuid": st.uuids,
        "void": st.none,
        "json": lambda: _json(st, st.booleans() | st.integers() | finite | st.text()),
    }
    if name not in simple:
        raise ArgumentError(f"no values are known for {serde}: give a strategy in its place, such as st.builds(Order)")
    return simple[name]()  # type: ignore[no-any-return]


def _json(st: Any, scalars: SearchStrategy[Any]) -> Any:
    def within(inner: SearchStrategy[Any]) -> Any:
        return st.lists(st.none() | inner, max_size=3) | st.dictionaries(st.text(), st.none() | inner, max_size=3)

    return st.recursive(scalars, within, max_leaves=5)


def records(
    keys: Serde[Any] | SearchStrategy[Any],
    values: Serde[Any] | SearchStrategy[Any],
    *,
    max_size: int = 12,
    step: Span = timedelta(seconds=10),
    disorder: Span = 0,
    lateness: Span = 0,
    tombstones: bool = False,
    start: int = 0,
) -> SearchStrategy[list[Record[Any, Any]]]:
    """Sequences of records of one topic, with timestamps in ms.

    `keys` and `values` are serdes or strategies. The keys of a sequence are up to three different ones. Stream time
    advances by up to `step` with a record. With `disorder` a record may be so far behind stream time; with `lateness`,
    which is larger, some are further behind, by up to that. With `tombstones` some values are None. `start` is the
    earliest timestamp. Raises ArgumentError.
    """
    st = hypothesis_module("hypothesis.strategies", "odradek.streams.testing.records")
    step_ms, disorder_ms, lateness_ms = (_span_ms(each) for each in (step, disorder, lateness))
    if lateness_ms and lateness_ms <= disorder_ms:
        raise ArgumentError(f"lateness={lateness!r} has to be more than disorder={disorder!r}")
    of_keys, of_values = _strategy(keys), _strategy(values)
    moves = st.integers(0, step_ms)
    if disorder_ms:
        moves |= st.integers(-disorder_ms, -1)
    if lateness_ms:
        moves |= st.integers(-lateness_ms, -disorder_ms - 1)
    if tombstones:
        of_values |= st.none()
    first_ms = start + max(disorder_ms, lateness_ms)

    @st.composite  # type: ignore[untyped-decorator]
    def sequences(draw: DrawFn) -> list[Record[Any, Any]]:
        present = st.sampled_from(draw(st.lists(of_keys, min_size=1, max_size=MOST_KEYS, unique_by=repr)))
        stream_time = first_ms
        found: list[Record[Any, Any]] = []
        for key, value, move in draw(st.lists(st.tuples(present, of_values, moves), max_size=max_size)):
            move = move if found else max(move, 0)  # the first record sets the stream time
            timestamp = max(stream_time + move, start)
            stream_time = max(stream_time, timestamp)
            found.append(Record(key, value, timestamp))
        return found

    made: SearchStrategy[list[Record[Any, Any]]] = sequences()
    return made


def interleavings(
    inputs: Mapping[str, Sequence[Record[Any, Any]]],
) -> SearchStrategy[list[tuple[str, Record[Any, Any]]]]:
    """All orders of the records of several topics in which each topic keeps its own order: (topic, record)."""
    st = hypothesis_module("hypothesis.strategies", "odradek.streams.testing.interleavings")
    turns = [topic for topic, sequence in inputs.items() for _ in sequence]

    def in_turn(order: Sequence[str]) -> list[tuple[str, Record[Any, Any]]]:
        waiting = {topic: iter(sequence) for topic, sequence in inputs.items()}
        return [(topic, next(waiting[topic])) for topic in order]

    found: SearchStrategy[list[tuple[str, Record[Any, Any]]]] = st.permutations(turns).map(in_turn)
    return found


def _strategy(given: Serde[Any] | SearchStrategy[Any]) -> Any:
    return values_of(given) if isinstance(given, Serde) else given


def _span_ms(span: Span) -> int:
    return span // _MS if isinstance(span, timedelta) else span
