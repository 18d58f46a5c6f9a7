"""Processes beside the tests: their output is kept and waited for, and none outlives its starter."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jvm.process import BackgroundProcess, ToolError, run_java

ECHO = [sys.executable, "-u", "-c", "import sys\nfor line in sys.stdin: print('heard', line, end='')"]


def test_lines_are_waited_for() -> None:
    with BackgroundProcess(ECHO) as process:
        process.write_line("one")
        assert process.stdout.wait_for("one", 10) == "heard one"
        process.write_line("two")
        assert process.stdout.wait_until(lambda lines: len(lines) == 2, 10) == ["heard one", "heard two"]
        with pytest.raises(TimeoutError, match="not after 0 s; last lines:\nheard one\nheard two"):
            process.stdout.wait_for("three", 0)
        process.kill()
        with pytest.raises(EOFError, match="heard two"):
            process.stdout.wait_for("three", 10)
        assert not process.running


def test_a_tool_that_fails_is_reported_with_its_output() -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ToolError, match=r"exit status 3.*\nout\nerr"):
        run_java([sys.executable, "-c", script], timeout_s=30)


def test_a_tool_that_hangs_is_ended() -> None:
    with pytest.raises(ToolError, match=r"not done after 0\.5 s"):
        run_java([sys.executable, "-c", "import signal; signal.pause()"], timeout_s=0.5)


def test_input_and_output_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("one\ntwo\n")
    result = run_java(ECHO, stdin=tmp_path / "in", stdout=tmp_path / "out", timeout_s=30)
    assert (result.status, result.stdout) == (0, "")
    assert (tmp_path / "out").read_text() == "heard one\nheard two\n"


@pytest.mark.skipif(sys.platform != "linux", reason="waiting for a stranger's process takes Linux's pidfd")
def test_started_processes_end_with_a_starter_that_is_killed() -> None:
    starter = (
        "import signal, sys\n"
        "from tests.jvm.process import BackgroundProcess\n"
        "started = BackgroundProcess([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(started.pid, flush=True)\n"
        "signal.pause()\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        started = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        try:
            ended, _, _ = select.select([started], [], [], 10)  # a pidfd is readable once its process has ended
            assert ended, "it outlived its starter"
        finally:
            os.close(started)
