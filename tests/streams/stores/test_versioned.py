"""Versioned stores beside Java's, out-of-order and late puts included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores import builders
from odradek.streams.stores.interface import PUT_NOT_DONE, VALID_TO_UNDEFINED, VersionedRecord
from tests.streams.stores.implementations import Batch, Context, batches, check

KEYS = st.sampled_from(["a", "b"])
VALUES = st.one_of(st.none(), st.text("xyz", max_size=2))
TIMES = st.one_of(st.integers(0, 40), st.sampled_from([45, 55, 95, 120, 150]))  # the history goes back 50 ms
RELAXED = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)

OPERATIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES, TIMES),
    st.tuples(st.just("put"), KEYS, VALUES, TIMES),
    st.tuples(st.just("delete"), KEYS, TIMES),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("get"), KEYS, TIMES),
)


@pytest.mark.jvm
@RELAXED
@given(work=batches(OPERATIONS, most=40), interval=st.sampled_from([5, 10, 25, 1000]))
def test_versions_are_javas(work: list[Batch], interval: int) -> None:
    check(builders.versioned_key_value_store("s", 50, STRING, STRING, segment_interval_ms=interval), work)


@pytest.fixture(params=[False, True], ids=["memory", "rocksdb"])
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Context:
    return Context(tmp_path if request.param else None)


def test_the_history_of_a_key(context: Context) -> None:
    store: Any = builders.versioned_key_value_store("s", 50, STRING, LONG).build()
    store.init(context)
    assert store.put("k", 1, 10) == VALID_TO_UNDEFINED
    assert store.put("k", 3, 30) == VALID_TO_UNDEFINED
    assert store.put("k", 2, 20) == 30
    assert store.get("k") == VersionedRecord(3, 30)
    assert store.get("k", 25) == VersionedRecord(2, 20)
    assert store.get("k", 9) is None
    assert store.delete("k", 40) == VersionedRecord(3, 30)
    assert store.get("k") is None
    assert store.get("k", 39) == VersionedRecord(3, 30)
    assert store.put("other", 1, 100) == VALID_TO_UNDEFINED
    assert store.put("k", 9, 49) == PUT_NOT_DONE
    assert context.dropped == 1
    assert store.get("k", 39) is None  # older than the history
    assert not store.set_flush_listener(lambda *change: None, True)
    store.flush()
    store.close()
    assert not store.is_open


def test_a_restored_store_equals_the_logged_store(tmp_path: Path) -> None:
    builder = builders.versioned_key_value_store("s", 100, STRING, LONG, segment_interval_ms=20)
    first, second = Context(tmp_path / "first"), Context(tmp_path / "second")
    store: Any = builder.build()
    restored: Any = builder.build()
    store.init(first)
    restored.init(second)
    for number in range(200):
        store.put(f"k{number % 3}", None if number % 11 == 0 else number, number + (number * 7) % 40 - 20 + 20)
    restored.restore(first.logged)
    reads = [(f"k{key}", at) for key in range(3) for at in range(100, 240)]
    assert [restored.get(*each) for each in reads] == [store.get(*each) for each in reads]
    assert any(store.get(*each) for each in reads)
    store.close()
    restored.close()


def test_flushed_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    builder = builders.versioned_key_value_store("s", 100, STRING, LONG, segment_interval_ms=20)
    store: Any = builder.build()
    store.init(Context(tmp_path))
    for number in range(10):
        store.put("k", number, number * 10)
    store.flush()
    store.close()
    again: Any = builder.build()
    again.init(Context(tmp_path))
    assert [again.get("k", at) for at in (5, 45, 95)] == [
        VersionedRecord(0, 0),
        VersionedRecord(4, 40),
        VersionedRecord(9, 90),
    ]
    again.close()


def test_segments_are_as_long_as_javas() -> None:
    lengths = {0: 2_000, 30_000: 10_000, 60_001: 20_000, 300_001: 60_000, 10**8: 10**8 // 24}
    for history, length in lengths.items():
        made = builders.versioned_key_value_store("s", history, STRING, STRING)
        assert made.segment_interval_ms == length
    with pytest.raises(ValueError, match="negative"):
        builders.versioned_key_value_store("s", -1, STRING, STRING)


@pytest.mark.jvm
def test_changelog_topics_are_configured_as_javas(java: Any) -> None:
    def configured(kind: str, *retention: int) -> dict[str, str]:
        constructor = next(
            each
            for each in java.find(
                f"org.apache.kafka.streams.processor.internals.{kind}ChangelogTopicConfig"
            ).class_.getDeclaredConstructors()
            if len(each.getParameterTypes()) == 2 + len(retention)
        )
        constructor.setAccessible(True)
        own = java.HashMap()
        made = constructor.newInstance(java.String("n"), own, *map(java.Long, retention))
        find = next(
            each for each in made.getClass().getMethods() if str(each.getName()) in ("properties", "getProperties")
        )
        find.setAccessible(True)
        found = find.invoke(made, java.HashMap(), java.Long(7))
        return {str(name): str(setting) for name, setting in found.items()}

    config = {"windowstore.changelog.additional.retention.ms": 7}
    windowed = builders.window_store("s", 100, 10, STRING, STRING)
    sessions = builders.session_store("s", 100, STRING, STRING)
    plain = builders.key_value_store("s", STRING, STRING)
    versioned = builders.versioned_key_value_store("s", 100, STRING, STRING)
    assert builders.changelog_config(windowed, config) == configured("Windowed", 100)
    assert builders.changelog_config(sessions, config) == configured("Windowed", 100)
    assert builders.changelog_config(plain, config) == configured("UnwindowedUnversioned")
    assert builders.changelog_config(versioned, config) == configured("Versioned", 100)
    own = plain.with_logging({"cleanup.policy": "delete", "retention.ms": "5"})
    assert builders.changelog_config(own)["cleanup.policy"] == "delete"
    assert not own.without_logging().logging
