"""State of another kind in the directory of a store: one error that names both formats, and no wrong alarm."""

from __future__ import annotations

import struct
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
from odradek.streams.errors import StoreFormatError, StoreSerializationError
from odradek.streams.records import TaskId
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.store_formats import FILE, format_of
from odradek.streams.running.task_state import TaskState
from odradek.streams.stores.builders import key_value_store, timestamped_key_value_store
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.topology import make_store
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


def state_of(directory: StateDirectory, kind: str) -> TaskState:
    topology, config = counted(kind), StreamsConfig(CONFIG)
    context = TaskContext(TASK, NoCollector(), lambda: 0, config, ThreadCache(0))
    part = topology.subtopologies("formats")[0]
    changelogs = {store: (topic, 0) for store, topic in part.changelogs.items()}
    return TaskState(topology, part, context, changelogs, directory, False)


def open_and_close(directory: StateDirectory, kind: str) -> None:
    state = state_of(directory, kind)
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


@pytest.mark.parametrize("windows", ["windows", "sessions"])
def test_a_changelog_of_another_kind_is_the_same_error(directory: StateDirectory, windows: str) -> None:
    """Where the directory is elsewhere, or was removed without the changelog."""
    state = state_of(directory, windows)
    state.open()
    with pytest.raises(struct.error) as caught:
        state.stores[STORE].restore([(b"k", LONG.serialize(1), 0, None)])
    error = state.not_restored(STORE, "formats-counts-changelog-0, offsets 0 to 0", caught.value)
    state.close(True)
    assert isinstance(error, StoreFormatError)
    assert "counts cannot be restored from formats-counts-changelog-0, offsets 0 to 0" in str(error)
    assert f"are not those of a {windows[:-1]} store (" in str(error)
    assert "odradek streams reset" in str(error)
    other = state.not_restored(STORE, "here", OSError("disk"))
    assert not isinstance(other, StoreFormatError)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_value_of_another_serde_names_the_store_and_the_way_out(
    tmp_path: Path, persistent: bool, stamped: bool
) -> None:
    """A changelog has no names of serdes, so its values are found when they are read."""
    builder = (timestamped_key_value_store if stamped else key_value_store)(STORE, STRING, JSON, persistent)
    context = TaskContext(TASK, NoCollector(), lambda: 0, StreamsConfig(CONFIG), ThreadCache(0))
    context.store_dir = context.state_dir = tmp_path
    store = make_store(builder, StreamsConfig(CONFIG))
    store.init(context)
    store.restore([(b"k", LONG.serialize(1), 0, None)])
    for read in (lambda: store.get("k"), lambda: list(store.all())):
        with pytest.raises(StoreSerializationError, match="store counts: its value serde cannot read") as caught:
            read()
        assert "clean_up()" in str(caught.value)
    store.close()
