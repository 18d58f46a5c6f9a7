"""`odradek streams describe`: the command, with a page that a server of the test serves."""

from __future__ import annotations

import fcntl
import http.server
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.ready_process import OWN_COMMAND
from odradek.streams_cli import streams

pytestmark = pytest.mark.slow

MODULE: Final = """
from odradek.streams import *

def topology():
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    return builder
"""
SOURCE: Final = "KSTREAM-SOURCE-0000000000"
TIMEOUT_S: Final = 60.0


class MetricsHandler(http.server.BaseHTTPRequestHandler):
    """Serves the page of an application that processes a million records between two requests."""

    totals = itertools.count(0, 1_000_000)

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        name = "kafka_streams_stream_topic_metrics_records_consumed_total"
        labels = f'task_id="0_0",thread_id="t",topic="in",processor_node_id="{SOURCE}"'
        self.wfile.write(f"{name}{{{labels}}} {next(self.totals)}\n".encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    """The address of the page."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), MetricsHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    name = f"described_{tmp_path.name}"  # no other test has imported it
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return [*OWN_COMMAND, "streams", "describe", f"{name}:topology", f"--app-dir={tmp_path}"]


def run(command: list[str], *options: str) -> tuple[int, str]:
    """The exit status and the output of the command, in this process."""
    ended = CliRunner().invoke(streams, [*command[command.index("streams") + 1 :], *options])
    return ended.exit_code, ended.output


def test_rates_are_those_between_two_pages(command: list[str], page: str) -> None:
    shown = json.loads(run(command, "--from", page, "--format", "json")[1])
    measured = shown["measurements"]["nodes"][SOURCE]
    assert 0 < measured["rate"] <= 1_000_000, "a million in a second or more"
    assert shown["topology"]["subtopologies"][0]["nodes"][0]["topics"] == ["in"]


def test_the_drawing_is_refreshed_until_ctrl_c(command: list[str], page: str) -> None:
    terminal, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    watched = [*command, f"--metrics=http://{page}/metrics", "--watch"]
    with subprocess.Popen(watched, stdout=other, stderr=subprocess.PIPE) as process:
        os.close(other)
        shown = b""
        try:
            while shown.count(b"DEBUG measures all nodes") < 2:
                shown += os.read(terminal, 65_536)
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 0, process.stderr and process.stderr.read()
        finally:
            process.kill()
    os.close(terminal)
    assert shown.count(b"\x1b[H\x1b[J") == 2


def test_a_terminal_without_unicode_gets_a_tree_of_its_characters(command: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    plain = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    assert (plain.returncode, plain.stdout.isascii()) == (0, True), plain.stderr
    assert f"`- {SOURCE}\n   `- KSTREAM-SINK-0000000001 > out" in plain.stdout.replace("--", "-")


def test_errors_have_a_status_and_a_reason(command: list[str], tmp_path: Path) -> None:
    for options, status, reason in (
        (["--watch"], 2, "--watch needs --metrics or --from"),
        (["--from", "127.0.0.1:1"], 1, "cannot read http://127.0.0.1:1/metrics: "),
        (["--svg", str(tmp_path / "absent" / "x.svg")], 1, "No such file or directory"),
    ):
        ended, output = run(command, *options)
        assert (ended, reason in output) == (status, True), output
