"""State directories: locks within a process and between two, checkpoints that Java reads, and the cleanup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams.errors import LockError
from odradek.streams.records import TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.checkpoints import CheckpointError
from odradek.streams.running.state_directory import LOCK_FILE, PROCESS_FILE, StateDirectory
from odradek.streams.runtime import KafkaStreams
from odradek.streams.serdes import STRING
from odradek.streams.topology import Topology
from tests.streams.oracle.java import Java
from tests.streams.restoring import STORE, contents, make_state

TASK = TaskId(0, 1)
TRY = """
import sys
from pathlib import Path
from odradek.streams.errors import LockError
from odradek.streams.running.state_directory import StateDirectory
try:
    StateDirectory(Path(sys.argv[1]), "app")
    print("taken")
except LockError as error:
    print(error)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    made = StateDirectory(tmp_path, "app")
    yield made
    made.close()


def in_thread(function: object) -> object:
    """The result of a function in another thread, which has ended then."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(function()))  # type: ignore[operator]
    thread.start()
    thread.join()
    return found[0]


def from_another_process(path: Path) -> str:
    return subprocess.run([sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_two_processes_cannot_share_it(directory: StateDirectory, tmp_path: Path) -> None:
    assert "is in use by another process" in from_another_process(tmp_path)
    with pytest.raises(LockError, match="another client of this process"):
        StateDirectory(tmp_path, "app")
    assert "is in use" in from_another_process(tmp_path), "the attempt within the process released the lock"
    directory.close()
    assert from_another_process(tmp_path) == "taken\n"


def test_a_state_directory_keeps_its_process_id(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "app")
    assert json.loads((first.path / PROCESS_FILE).read_text()) == {"processId": str(first.process_id)}
    first.close()
    second = StateDirectory(tmp_path, "app")
    second.close()
    assert second.process_id == first.process_id
    other = StateDirectory(tmp_path, "other")
    other.close()
    assert other.process_id != first.process_id
    (first.path / PROCESS_FILE).write_text("{")
    third = StateDirectory(tmp_path, "app")
    third.close()
    assert third.process_id != first.process_id


def test_a_task_belongs_to_one_thread(directory: StateDirectory) -> None:
    assert directory.lock(TASK)
    assert directory.lock(TASK), "this thread has it already"
    assert in_thread(lambda: directory.lock(TASK)) is False
    in_thread(lambda: directory.unlock(TASK))
    assert in_thread(lambda: directory.lock(TASK)) is False, "another thread cannot release it"
    directory.unlock(TASK)
    assert in_thread(lambda: directory.lock(TASK)) is True
    assert directory.lock(TASK), "a dead thread has no lock"


def test_unused_directories_are_removed_after_a_while(directory: StateDirectory) -> None:
    old, used, fresh = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    for task in (old, used, fresh):
        checkpoints.write(directory.task(task), {("log", task.partition): 1})
    for task in (old, used):
        os.utime(directory.path / str(task), (time.time() - 10, time.time() - 10))
    directory.lock(used)
    assert directory.remove_unused(5_000) == [old]
    assert sorted(directory.tasks()) == [used, fresh]
    directory.unlock(used)
    assert directory.remove_unused(5_000) == [], "it was used until now"


def test_an_application_without_stores_on_disk_leaves_no_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    streams = KafkaStreams(
        Topology()
        .add_source("in", "in", key=STRING, value=STRING)
        .add_sink("out", "out", "in", key=STRING, value=STRING),
        {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"},
    )
    assert [path.name.startswith("odradek-streams-") for path in tmp_path.iterdir()] == [True]
    assert streams.close(30)
    streams.clean_up()
    assert list(tmp_path.iterdir()) == []


def test_clean_up_removes_all_tasks_and_raises_while_they_run(directory: StateDirectory) -> None:
    checkpoints.write(directory.task(TASK), {("log", 1): 1})
    checkpoints.write(directory.global_path, {("log", 1): 1})
    directory.lock(TASK)
    with pytest.raises(LockError, match="tasks 0_1 are running"):
        directory.clean()
    directory.unlock(TASK)
    directory.clean()
    assert {path.name for path in directory.path.iterdir()} == {LOCK_FILE, PROCESS_FILE}


def test_a_store_without_a_checkpoint_is_removed(directory: StateDirectory) -> None:
    state = make_state(directory, "log")
    state.open()
    state.stores[STORE].restore([(b"key", b"value", 0, None)])
    state.close(False)
    state = make_state(directory, "log")
    state.open()
    assert contents(state) == {}
    state.stores[STORE].restore([(b"key", b"value", 0, None)])
    state.positions["log", 0] = 0
    state.close(True)
    state = make_state(directory, "log")
    state.open()
    assert contents(state) == {"key": "value"}
    assert state.positions == {("log", 0): 0}
    state.close(True)


def test_a_store_that_cannot_be_opened_leaves_the_directory_free(directory: StateDirectory) -> None:
    state = make_state(directory, "log")
    blocked = directory.task(state.task_id) / "rocksdb"
    blocked.write_text("a file where a folder has to be")
    with pytest.raises(Exception, match=STORE):
        state.open()
    assert in_thread(lambda: directory.lock(state.task_id)) is True


JAVA = """
import sys
from tests.streams.oracle.java import java
j = java()
settings = j.Properties()
for name, value in {"application.id": "app", "bootstrap.servers": "nowhere:1", "state.dir": sys.argv[1]}.items():
    settings.put(j.String(name), j.String(value))
theirs = j.StateDirectory(j.StreamsConfig(settings), j.Time.SYSTEM, True, False)
try:
    print(theirs.initializeProcessId(), flush=True)
    sys.stdin.read()
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


@pytest.mark.jvm
def test_java_s_state_directory_and_odradeks_exclude_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", JAVA, str(tmp_path)]
    directory = StateDirectory(tmp_path, "app")
    refused = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    assert "multiple instances of Kafka Streams are running in the same state directory" in refused.stdout
    directory.close()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == str(directory.process_id), "Java reads Odradek's file"
            with pytest.raises(LockError):
                StateDirectory(tmp_path, "app")
        finally:
            process.kill()
    again = StateDirectory(tmp_path, "app")
    again.close()
    assert again.process_id == directory.process_id


offsets = st.dictionaries(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 99)),
    st.integers(0, 2**63 - 1),
    min_size=1,
    max_size=4,
)


@pytest.mark.jvm
def test_checkpoints_are_read_by_java_and_java_s_by_odradek(java: Java, tmp_path: Path) -> None:
    file = java.find("java.io.File")
    partition = java.find("org.apache.kafka.common.TopicPartition")
    assert file is not None
    assert partition is not None
    theirs = java.OffsetCheckpoint(file(str(tmp_path / checkpoints.FILE)))

    @given(offsets)
    def check(wanted: dict[tuple[str, int], int]) -> None:
        checkpoints.write(tmp_path, wanted)
        read = theirs.read()
        assert {(str(each.topic()), int(each.partition())): int(read.get(each)) for each in read} == wanted
        made = java.HashMap()
        for place, offset in wanted.items():
            made.put(partition(*place), java.Long(offset))
        theirs.write(made)
        assert checkpoints.read(tmp_path) == wanted

    check()


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n", "0\n1\n", "0\nx\n", "0\n1\ntopic 0\n", "0\n2\ntopic 0 1\n"])
def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / checkpoints.FILE).write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read(tmp_path)


def test_a_checkpoint_without_offsets_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.read(tmp_path) == {}
    checkpoints.write(tmp_path, {("topic", 0): 1})
    checkpoints.write(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
