"""Worker processes: their results, failures and deaths; none of them outlives its parent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.protocol.batch import InvalidRecords
from odradek.protocol.errors import ErrorCode
from odradek.storage import worker
from odradek.storage.checkpoints import decode_uuid, encode_uuid
from odradek.storage.worker import WorkerDied, WorkerProcess
from tests.storage import worker_tasks
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """A worker that accepts the functions of the tests, too."""
    monkeypatch.setattr(worker, "_CALLABLE", "tests.storage.")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    started = WorkerProcess(nice=3)
    yield started
    started.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def begun(path: Path) -> int:
    """The process id of a worker, once it has begun to work on `path`."""
    eventually(lambda: path.exists() and path.read_text() != "")
    return int(path.read_text())


def test_it_calls_functions_of_storage_and_no_others() -> None:
    process = WorkerProcess()
    with pytest.raises(TypeError, match="is not a function of a module of"):
        process.call(worker_tasks.add, 1)
    with pytest.raises(TypeError):
        process.call(os.getpid)
    with pytest.raises(TypeError):
        process.call(process.close)
    assert process.pid is None
    text = process.call(encode_uuid, bytes(range(16)))
    assert decode_uuid(text) == bytes(range(16))
    assert process.pid not in (None, os.getpid())
    process.close()


def test_one_process_answers_call_after_call(process: WorkerProcess) -> None:
    assert process.call(worker_tasks.add, 1, 2, factor=3) == 9
    pid = process.pid
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda n: process.call(worker_tasks.add, n, 1), range(50))) == list(range(1, 51))
    assert process.pid == pid


def test_it_is_small_and_has_low_priority(process: WorkerProcess) -> None:
    has = process.call(worker_tasks.modules)
    assert {"asyncio", "uvloop", "odradek.protocol.messages"}.isdisjoint(has)
    assert not [name for name in has if name.startswith("odradek.broker")]
    assert has[-1] == f"nice {os.nice(0) + 3}"


def test_exceptions_are_passed_on_unchanged(process: WorkerProcess) -> None:
    with pytest.raises(InvalidRecords) as refused:
        process.call(worker_tasks.refuse)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_RECORD, "three of them")
    assert refused.value.record_errors == [(3, "no key")]
    assert "worker_tasks.py" in refused.value.__notes__[0]
    with pytest.raises(OSError, match="No space") as failed:
        process.call(worker_tasks.run_full, "/data/x-0")
    assert (failed.value.errno, failed.value.filename) == (28, "/data/x-0")
    assert not isinstance(failed.value, WorkerDied)
    with pytest.raises(RuntimeError, match="ValueError: held"):
        process.call(worker_tasks.raise_what_cannot_travel)
    with pytest.raises((AttributeError, TypeError)):
        process.call(worker_tasks.add, threading.Lock())  # type: ignore[arg-type]
    assert process.call(worker_tasks.add, 1) == 1


def test_stray_output_breaks_nothing_and_logs_reach_the_parent(
    process: WorkerProcess, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "odradek"):
        assert process.call(worker_tasks.chatter) == ""
    assert [(each.name, each.levelname, each.message) for each in caplog.records] == [
        ("odradek.storage.worker_tasks", "WARNING", "5 bytes of a torn write cut")
    ]
    output = capfd.readouterr()
    assert output.out == ""
    assert "a stray line\nand a stray byte\n" in output.err


def test_after_a_death_in_the_middle_the_next_call_has_another_process(process: WorkerProcess) -> None:
    assert process.call(worker_tasks.add, 1) == 1
    first = process.pid
    with pytest.raises(WorkerDied, match=r"status -9\) in die"):
        process.call(worker_tasks.die)
    assert process.pid is None
    assert process.call(worker_tasks.add, 2) == 2
    assert process.pid not in (None, first)
    idle = process.pid
    assert idle is not None
    os.kill(idle, 9)
    eventually(lambda: process.pid is None)
    assert process.call(worker_tasks.add, 3) == 3


@pytest.mark.parametrize("ends_for_good", [False, True])
def test_another_thread_ends_a_call(process: WorkerProcess, tmp_path: Path, ends_for_good: bool) -> None:
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(process.call, worker_tasks.work_on, str(tmp_path / "begun"))
        pid = begun(tmp_path / "begun")
        (process.close if ends_for_good else process.cancel)()
        with pytest.raises(WorkerDied, match="status -9"):
            call.result(DEADLINE_S)
    assert not is_alive(pid)
    if ends_for_good:
        with pytest.raises(WorkerDied, match="closed"):
            process.call(worker_tasks.add, 1)
        process.close()
    else:
        assert process.call(worker_tasks.add, 1) == 1


def test_a_killed_parent_leaves_no_orphan_behind(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from odradek.storage import worker\n"
        "from tests.storage import worker_tasks\n"
        "worker._CALLABLE = 'tests.storage.'\n"
        "worker.WorkerProcess().call(worker_tasks.work_on, sys.argv[1])\n"
    )
    path = tmp_path / "begun"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program, str(path)], env=environment) as parent:
        child = begun(path)
        assert is_alive(child)
        parent.kill()
        parent.wait()
    eventually(lambda: not is_alive(child))


def test_signals_for_the_whole_group_do_not_stop_it(process: WorkerProcess) -> None:
    assert process.call(worker_tasks.add, 1) == 1
    pid = process.pid
    assert pid is not None
    for number in (2, 15):
        os.kill(pid, number)
    assert process.call(worker_tasks.add, 2) == 2
    assert process.pid == pid


def test_a_process_that_cannot_start_counts_as_dead(process: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(WorkerDied, match="cannot start a worker process"):
        process.call(worker_tasks.add, 1)
    monkeypatch.undo()
