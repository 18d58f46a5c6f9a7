"""State of another kind in the directory of a store: one error that names both formats, and no wrong alarm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.streams import (
    JSON,
    LONG,
    STRING,
    Consumed,
    Grouped,
    Materialized,
    Serde,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from odradek.streams.config import StreamsConfig
from odradek.streams.context import TaskContext
from odradek.streams.records import TaskId
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.store_formats import FILE, StoreFormatError, format_of
from odradek.streams.running.task_state import TaskState
from odradek.streams.stores.builders import key_value_store
from odradek.streams.stores.cache import ThreadCache
from tests.streams.restoring import NoCollector

STORE = "counts"
TASK = TaskId(0, 0)
CONFIG = {"application.id": "formats", "bootstrap.servers": "127.0.0.1:1"}
WINDOWS = TimeWindows.of_size_with_no_grace(10)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(10)


def counted(kind: str) -> Topology:
    """A store of one name: counts, counts in windows or sessions, or the latest values by a serde."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, JSON)).group_by_key(Grouped(STRING, JSON))
    if kind == "windows":
        grouped.windowed_by(WINDOWS).count(STORE)
    elif kind == "sessions":
        grouped.windowed_by(SESSIONS).count(STORE)
    elif kind == "count":
        grouped.count(STORE)
    else:
        serde: Any = {"json": JSON, "text": STRING, "own": Serde(str.encode, bytes.decode)}[kind]
        grouped.aggregate(str, lambda key, value, total: value, Materialized(STORE, STRING, serde))
    return builder.build()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    made = StateDirectory(tmp_path, "formats")
    yield made
    made.close()


def open_and_close(directory: StateDirectory, kind: str) -> None:
    topology, config = counted(kind), StreamsConfig(CONFIG)
    context = TaskContext(TASK, NoCollector(), lambda: 0, config, ThreadCache(0))
    part = topology.subtopologies("formats")[0]
    changelogs = {store: (topic, 0) for store, topic in part.changelogs.items()}
    state = TaskState(topology, part, context, changelogs, directory, False)
    state.open()
    state.learn({("formats-counts-changelog", 0): 5})
    state.close(True)


@pytest.mark.parametrize(
    ("before", "after", "formats"),
    [
        ("count", "windows", ("key-value store (values with timestamps", "window store (values with timestamps")),
        ("windows", "count", ("window store", "key-value store")),
        ("windows", "sessions", ("window store", "session store")),
        ("count", "json", ("value serde long", "value serde json")),
        ("json", "text", ("value serde json", "value serde string")),
    ],
)
def test_state_of_another_kind_is_one_error_with_the_way_out(
    directory: StateDirectory, before: str, after: str, formats: tuple[str, str]
) -> None:
    open_and_close(directory, before)
    with pytest.raises(StoreFormatError) as caught:
        open_and_close(directory, after)
    text = str(caught.value)
    assert f"the state of store {STORE} in {directory.path / str(TASK) / 'rocksdb' / STORE} has another format" in text
    found, _, wanted = text.partition("the topology has a ")
    assert formats[0] in found
    assert formats[1] in wanted
    assert "clean_up()" in text
    assert "odradek streams reset" in text
    open_and_close(directory, before)  # nothing was removed
    directory.wipe(TASK)
    open_and_close(directory, after)


@pytest.mark.parametrize(("before", "after"), [("text", "own"), ("own", "json"), ("count", "count")])
def test_a_serde_of_the_user_is_not_compared(directory: StateDirectory, before: str, after: str) -> None:
    open_and_close(directory, before)
    open_and_close(directory, after)


def test_state_without_a_description_is_described(directory: StateDirectory) -> None:
    open_and_close(directory, "count")
    path = directory.path / str(TASK) / FILE
    for broken in (None, "[", "7"):
        path.unlink()
        if broken is not None:
            path.write_text(broken)
        open_and_close(directory, "count")
        assert STORE in path.read_text()
    with pytest.raises(StoreFormatError):
        open_and_close(directory, "windows")


def test_default_serdes_belong_to_the_format() -> None:
    builder = key_value_store("s", None, None)
    config = {"default.key.serde": STRING, "default.value.serde": LONG}
    assert format_of(builder, config) == {"kind": "key-value store", "key serde": "string", "value serde": "long"}
