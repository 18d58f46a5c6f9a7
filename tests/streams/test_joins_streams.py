"""Stream-stream joins beside Java's: names, outputs, changelogs, and when waiting rows come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.joins import JoinKind
from odradek.streams.dsl.options import StreamJoined
from odradek.streams.operators.stream_join import EMIT_INTERVAL
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import window_store
from odradek.streams.windows import JoinWindows
from tests.streams.oracle.implementations import Piped, both_refuse, records, same, same_text
from tests.streams.oracle.java import Java

pytestmark = pytest.mark.jvm

TIGHT = JoinWindows.of_time_difference_with_no_grace(10)
PATIENT = JoinWindows.of_time_difference_and_grace(10, 15)
LOPSIDED = JoinWindows.of_time_difference_and_grace(20, 5).before(3)
ONLY_AFTER = JoinWindows.of_time_difference_with_no_grace(30).before(-5)
WINDOWS = (TIGHT, PATIENT, LOPSIDED, ONLY_AFTER)
METHODS: dict[JoinKind, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}
KINDS = tuple(METHODS)


def text(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def text_with_key(key: Any, left: Any, right: Any) -> str:
    return f"{key}:{left}+{right}"


def joined(
    kind: JoinKind, windows: JoinWindows, stated: StreamJoined[Any, Any, Any] | None = None, joiner: Any = text
) -> Callable[[Any], None]:
    """A topology that joins "left" with "right"."""

    def build(builder: Any) -> None:
        left, right = builder.stream("left"), builder.stream("right")
        options = () if stated is None else (stated,)
        getattr(left, METHODS[kind])(right, joiner, windows, *options).to("out")

    return build


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "stated",
    [
        None,
        StreamJoined(name="both"),
        StreamJoined(store_name="kept"),
        StreamJoined(name="both", store_name="kept"),
    ],
    ids=["generated", "named", "store", "both"],
)
def test_names(java: Java, kind: JoinKind, stated: StreamJoined[Any, Any, Any] | None) -> None:
    walk = [("left", "a", "1", 5), ("right", "a", "2", 9), ("left", "b", "3", 90), ("right", "c", "4", 190)]
    written = same(
        joined(kind, PATIENT, stated, text_with_key),
        [*walk, ("left", "d", "5", 400)],
    )
    assert written["out"][0].value == b"a:1+2"
    assert len(written) == 3 if kind == "inner" else 4


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(given_records=records("left", "right", most=40), windows=st.sampled_from(WINDOWS))
def test_records(java: Java, kind: JoinKind, given_records: list[Piped], windows: JoinWindows) -> None:
    same(joined(kind, windows), given_records, text=False)


@pytest.mark.parametrize("configured", [True, False])
def test_memory(java: Java, configured: bool) -> None:
    memory: StreamJoined[Any, Any, Any] = StreamJoined(store_type=None if configured else "in_memory")
    walk = [
        Piped(topic, key, str(at), at * 7 % 50 + at // 3, None)
        for at in range(40)
        for topic, key in ((("left", "right")[at % 2], "abc"[at % 3]),)
    ]
    written = same(joined("outer", TIGHT, memory), walk, {"default.dsl.store": "in_memory"} if configured else {})
    assert len(written["out"]) > 10


def test_unlogged(java: Java) -> None:
    stated: StreamJoined[Any, Any, Any] = StreamJoined(logging=False)
    written = same(joined("outer", TIGHT, stated), [("left", "a", "1", 5), ("right", "b", "2", 99)])
    assert set(written) == {"out"}


@pytest.mark.parametrize("kind", KINDS)
def test_custom_stores(java: Java, kind: JoinKind) -> None:
    size, retention = PATIENT.size_ms, PATIENT.size_ms + PATIENT.grace_ms
    this, other = (
        window_store(name, retention, size, None, None, persistent=False, retain_duplicates=True)
        for name in ("mine", "yours")
    )
    stated: StreamJoined[Any, Any, Any] = StreamJoined(this_store=this, other_store=other)
    same(joined(kind, PATIENT, stated), [("left", "a", "1", 5), ("right", "a", "2", 9), ("left", "b", "3", 90)])


def test_stores_with_wrong_windows(java: Java) -> None:
    size, retention = TIGHT.size_ms, TIGHT.size_ms
    fitting = window_store("mine", retention, size, None, None, retain_duplicates=True)
    single = window_store("mine", retention, size, None, None)
    longer = window_store("mine", retention + 1, size, None, None, retain_duplicates=True)
    for stated in (
        StreamJoined(this_store=fitting, other_store=fitting),
        StreamJoined(this_store=single),
        StreamJoined(other_store=longer),
    ):
        both_refuse(joined("inner", TIGHT, stated))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", [None, "again"])
def test_changed_keys_are_repartitioned(java: Java, kind: JoinKind, named: str | None) -> None:
    stated = StreamJoined(name=named)

    def build(builder: Any) -> None:
        def select(key: Any, value: Any) -> Any:
            return None if value is None or value == "" else value[:1]

        left = builder.stream("left").select_key(select)
        right = builder.stream("right").select_key(select)
        third = builder.stream("third")
        getattr(left, METHODS[kind])(right, text, PATIENT, stated).to("out")
        if named is None:
            getattr(left, METHODS[kind])(third, text, TIGHT).to("out2")

    walk = [("left", "x", "a1", 5), ("right", "y", "a2", 9), ("left", "z", "", 12), ("right", "z", None, 13)]
    written = same(build, [*walk, ("third", "a", "3", 11), ("right", None, "", 14), ("left", "x", "b", 99)])
    assert written["out"][0].value == b"a1+a2"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_with_itself(java: Java, kind: JoinKind) -> None:
    def build(builder: Any) -> None:
        stream = builder.stream("left")
        getattr(stream, METHODS[kind])(stream, text, TIGHT).to("out")

    written = same(build, [("left", "a", "1", 5), ("left", "a", "2", 9), ("left", "a", "3", 99)])
    assert len(written["out"]) == 5


def test_a_chain_of_joins(java: Java) -> None:
    def build(builder: Any) -> None:
        one, two, three = (builder.stream(name) for name in ("left", "right", "third"))
        one.left_join(two, text, PATIENT).outer_join(three, text, TIGHT).to("out")

    walk = [
        Piped(("left", "right", "third")[at % 3], "ab"[at % 2], str(at), at * 11 % 60 + at, [("n", b"%d" % at)])
        for at in range(30)
    ]
    assert len(same(build, walk)["out"]) > 10


def test_waiting_rows_are_checked_once_a_second() -> None:
    """Java's driver always checks, so only Odradek runs here."""
    builder = StreamsBuilder()
    joined("left", TIGHT)(builder)
    config = {"default.key.serde": STRING, "default.value.serde": STRING, EMIT_INTERVAL: 1000}
    with TopologyTestDriver(builder.build(), config, initial_wall_clock=0) as driver:
        left, out = driver.create_input_topic("left", STRING, STRING), driver.create_output_topic("out", STRING, STRING)
        for at in range(0, 300, 30):
            left.pipe_input("a", str(at), timestamp=at)
        assert out.is_empty  # the first record has checked, in vain; the wall clock stands still
        driver.advance_wall_clock_time(1000)
        left.pipe_input("a", "late", timestamp=300)
        assert len(out.read_values_to_list()) == 10


def test_options_of_other_joins_are_rejected() -> None:
    builder: Any = StreamsBuilder()
    stream, table = builder.stream("s"), builder.table("t")
    with pytest.raises(TypeError, match="JoinWindows"):
        stream.join(stream, text)
    with pytest.raises(TypeError, match="Joined"):
        stream.join(table, text, TIGHT)
    with pytest.raises(TypeError, match="key_selector"):
        stream.join(table, text, key_selector=str)
    stream.join(stream, lambda only: only, TIGHT)
    with pytest.raises(TypeError, match="joiner is"):
        builder.build()


def test_a_window_without_time(java: Java) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        JoinWindows.of_time_difference_with_no_grace(5).before(-6)
    assert "JOINTHIS" in same_text(joined("inner", JoinWindows.of_time_difference_with_no_grace(5).before(-5)))
