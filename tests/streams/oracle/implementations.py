"""One topology, two runtimes: Java's TopologyTestDriver and odradek.streams, the same records, the same bytes.

A topology is a Python function of a builder. It is run twice: with Odradek's builder, and with Java's under the same
names (`java_dsl.py`). The output is compared to the byte: every output, changelog and repartition topic with keys,
values, timestamps, headers and their order; the text of `describe()`; the contents of the stores; how many records were
dropped.

    def test_filter(java):
        same(lambda b: b.stream("in").filter(lambda key, value: value > "m").to("out"), [("in", "k", "v", 5)])

    @given(records("left", "right"))
    def test_join(java, given_records):
        same(join, given_records)
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple

import hypothesis.strategies as st

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.errors import log_and_continue
from odradek.streams.records import NO_TIMESTAMP, Headers
from odradek.streams.serdes import STRING, Serde
from odradek.streams.topology import Topology
from tests.streams.oracle.java import java
from tests.streams.oracle.java_driver import JavaDriver, Written
from tests.streams.oracle.java_dsl import JavaStreamsBuilder, JavaTopology
from tests.streams.oracle.java_processor import JavaStore
from tests.streams.oracle.values import java_serde

APPLICATION: Final = "app"
DEFAULTS: Final[Mapping[str, Any]] = {"default.key.serde": STRING, "default.value.serde": STRING}
Build = Callable[[Any], Any]
"""Writes a topology with a builder; its result is ignored."""
# The class of a topic chooser is a lambda's on both sides, with a name that carries no information.
_EXTRACTOR_CLASS: Final = re.compile(r"extractor class: [^)]*")


_CONTINUES: Final = {
    "default.deserialization.exception.handler": "LogAndContinueExceptionHandler",
    "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
}


class Piped(NamedTuple):
    """A record to pipe in. A key or value is bytes as they are, a str in UTF-8, an int in 8 bytes, or None."""

    topic: str
    key: bytes | str | int | None
    value: bytes | str | int | None
    timestamp: int = 0
    headers: Headers = None


class Pass(NamedTuple):
    """Advance the wall clock."""

    ms: int


Step = Piped | Pass | tuple[Any, ...]
"""A step for both; a plain tuple counts as Piped."""


class Pair:
    """Both drivers on one topology. A context manager."""

    def __init__(self, build: Build, config: Mapping[str, Any] | None = None, *, by_hand: bool = False) -> None:
        """`build` gets a StreamsBuilder, or with `by_hand` a Topology. Serdes are of strings unless `config` sets
        others; the wall clock begins at 0.
        """
        self.config: dict[str, Any] = {**DEFAULTS, **(config or {})}
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as opening:
            java_settings = {name: _java_setting(name, value) for name, value in self.config.items()}
            theirs = java_topology(build, java_settings, by_hand=by_hand)
            ours = our_topology(build, self.config, by_hand=by_hand)
            self.theirs = opening.enter_context(JavaDriver(theirs, java_settings, application=APPLICATION))
            self.ours = opening.enter_context(
                TopologyTestDriver(ours, {"application.id": APPLICATION, **self.config}, initial_wall_clock=0)
            )
            self._open = opening.pop_all()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def step(self, step: Step) -> None:
        """Do one thing to both."""
        _step(step, self.theirs.pipe, self.theirs.advance_wall_clock)
        _step(step, self.ours.pipe, self.ours.advance_wall_clock_time)

    def written(self) -> dict[str, list[Written]]:
        """Java's output since the last call, by topic; asserts that Odradek's is the same."""
        theirs = self.theirs.produced()
        ours: dict[str, list[Written]] = {}
        for topic in sorted(self.ours.produced_topic_names()):
            while (record := self.ours.read(topic)) is not None:
                written = Written(record.key, record.value, record.timestamp, record.headers or [])
                ours.setdefault(topic, []).append(written)
        for topic, records in theirs.items():
            for index, (own, other) in enumerate(zip(ours.get(topic, ()), records, strict=False)):
                if other.timestamp == NO_TIMESTAMP:  # the time of writing, and a driver writes nothing
                    ours[topic][index] = own._replace(timestamp=NO_TIMESTAMP)
        if ours != theirs:
            raise AssertionError(_difference(ours, theirs))
        return theirs

    def assert_same_text(self) -> None:
        """describe() returns the same on both sides."""
        ours, theirs = self.ours.topology.describe(), self.theirs.describe()
        _assert_same_text(ours, theirs)

    def assert_same_stores(self) -> None:
        """Every store that can be read whole holds the same."""
        for name, store in self.ours.get_all_state_stores().items():
            theirs = self.theirs.store(name)
            assert theirs is not None, f"Java has no store {name}"
            if hasattr(theirs, "all") and hasattr(store, "all"):
                own, other = list(store.all()), list(JavaStore(theirs).all())
                assert own == other, f"store {name}: Java's has {other}, ours {own}"

    def assert_same_drops(self) -> None:
        """The same number of records was dropped, late ones among them."""
        ours, theirs = self.ours.dropped_records, self.theirs.dropped_records()
        assert ours == theirs, f"Java dropped {theirs} records, Odradek {ours}"


def same(
    build: Build,
    steps: Iterable[Step],
    config: Mapping[str, Any] | None = None,
    *,
    by_hand: bool = False,
    text: bool = True,
    stores: bool = True,
    drops: bool = True,
) -> dict[str, list[Written]]:
    """Run `build`'s topology on both with the same `steps`; raise AssertionError where they differ.

    Returns the output by topic, so that a test can assert that there was some to compare.
    """
    with Pair(build, config, by_hand=by_hand) as reference:
        if text:
            reference.assert_same_text()
        for step in steps:
            reference.step(step)
        written = reference.written()
        if stores:
            reference.assert_same_stores()
        if drops:
            reference.assert_same_drops()
        return written


def same_text(build: Build, config: Mapping[str, Any] | None = None, *, by_hand: bool = False) -> str:
    """Compare describe() alone, with nothing run; returns it."""
    settings = {**DEFAULTS, **(config or {})}
    java_settings = {name: _java_setting(name, value) for name, value in settings.items()}
    theirs = str(java_topology(build, java_settings, by_hand=by_hand).describe().toString())
    ours = our_topology(build, settings, by_hand=by_hand).describe()
    _assert_same_text(ours, theirs)
    return theirs


def both_refuse(
    build: Build, steps: Iterable[Step] = (), config: Mapping[str, Any] | None = None, *, by_hand: bool = False
) -> tuple[str, Exception]:
    """Java's message and Odradek's exception for a topology, or a step, that neither accepts."""
    given = list(steps)
    settings = {**DEFAULTS, **(config or {})}

    def on_java() -> None:
        properties = {name: _java_setting(name, value) for name, value in settings.items()}
        with JavaDriver(java_topology(build, properties, by_hand=by_hand), properties) as driver:
            for step in given:
                _step(step, driver.pipe, driver.advance_wall_clock)

    def on_ours() -> None:
        topology = our_topology(build, settings, by_hand=by_hand)
        with TopologyTestDriver(topology, {"application.id": APPLICATION, **settings}, 0) as driver:
            for step in given:
                _step(step, driver.pipe, driver.advance_wall_clock_time)

    theirs, ours = _refusal(on_java), _refusal(on_ours)
    assert theirs is not None, "Java accepts it"
    assert ours is not None, f"Odradek accepts what Java rejects: {theirs}"
    return str(theirs), ours


def java_topology(build: Build, config: Mapping[str, str], *, by_hand: bool = False) -> Any:
    """The topology as Java's."""
    java()
    builder: Any = JavaTopology() if by_hand else JavaStreamsBuilder(config)
    build(builder)
    return builder.build()


def our_topology(build: Build, config: Mapping[str, Any], *, by_hand: bool = False) -> Topology:
    """The topology as Odradek's."""
    if by_hand:
        topology = Topology()
        build(topology)
        return topology
    from odradek.streams.dsl.builder import StreamsBuilder

    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def _assert_same_text(ours: str, theirs: str) -> None:
    own, other = (_EXTRACTOR_CLASS.sub("extractor class", text).splitlines() for text in (ours, theirs))
    if own != other:
        shown = "\n".join(difflib.unified_diff(other, own, "Java's describe()", "ours", lineterm="", n=5))
        raise AssertionError(f"the texts differ\n{shown}")


def _difference(ours: Mapping[str, list[Written]], theirs: Mapping[str, list[Written]]) -> str:
    """Topic by topic, the first record that differs, and the records before it."""
    lines = ["what was written differs"]
    for topic in sorted({*ours, *theirs}):
        own, other = ours.get(topic, []), theirs.get(topic, [])
        if own == other:
            continue
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(own, other, strict=False))
        at = sum(1 for _ in same)
        lines.append(
            f"{topic}: Java wrote {len(other)} records, ours {len(own)}; the first that differs is number {at}"
        )
        lines += [f"    both   {each}" for each in own[max(0, at - 3) : at]]
        lines += [f"    Java's {each}" for each in other[at : at + 3]]
        lines += [f"    ours   {each}" for each in own[at : at + 3]]
    return "\n".join(lines)


def _step(step: Step, pipe: Callable[..., None], advance: Callable[[int], None]) -> None:
    """Run one step on one of them."""
    if isinstance(step, Pass):
        advance(step.ms)
        return
    topic, key, value, timestamp, headers = Piped(*step)
    pipe(topic, _as_bytes(key), _as_bytes(value), timestamp, headers)


def _refusal(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        return error
    return None


def _as_bytes(value: bytes | str | int | None) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        return struct.pack(">q", value)
    return value


def _java_setting(name: str, value: Any) -> str:
    """A setting as Java's properties have it: serdes and handlers by the names of their classes."""
    if isinstance(value, Serde):
        return str(java_serde(value).getClass().getName())
    if value is log_and_continue:
        return f"org.apache.kafka.streams.errors.{_CONTINUES[name]}"
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- hypothesis strategies

KEYS: Final = st.sampled_from(["a", "b", "c"])
VALUES: Final = st.one_of(st.sampled_from(["", "1", "2", "xyz"]), st.text(max_size=3))


def records(
    *topics: str,
    keys: st.SearchStrategy[Any] = KEYS,
    values: st.SearchStrategy[Any] = VALUES,
    null_keys: bool = True,
    null_values: bool = True,
    span_ms: int = 60,
    most: int = 15,
) -> st.SearchStrategy[list[Piped]]:
    """Lists of records for these topics: few keys, nulls, duplicates, headers on some; times out of order within
    `span_ms`, and some far ahead."""
    times = st.one_of(
        st.integers(0, span_ms), st.integers(0, span_ms), st.integers(0, 10 * span_ms), st.just(100 * span_ms)
    )
    headers = st.one_of(
        st.none(),
        st.none(),
        st.lists(st.tuples(st.sampled_from(["h", "é"]), st.sampled_from([None, b"", b"1"])), min_size=1, max_size=2),
    )
    one = st.builds(
        Piped,
        st.sampled_from(topics),
        st.one_of(keys, keys, keys, st.none()) if null_keys else keys,
        st.one_of(values, values, values, st.none()) if null_values else values,
        times,
        headers,
    )
    return st.lists(one, max_size=most)
