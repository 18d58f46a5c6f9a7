"""kaskade, a terminal program that shows topics and records: the tests run it in a terminal, and parse its screen."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.clients.toolchain import AbsentError, kaskade_command
from tests.compatibility.brokers import Broker, create_topic

pytestmark = pytest.mark.slow

TOPIC: Final = "ode"
"""Three letters: a longer name has to share the line with the other columns."""
PARTITIONS: Final = 3
RECORDS: Final = 5
TIMEOUT_S: Final = 120.0
LINE_BYTES: Final = 1 << 13
"""More than a line of the screen takes with all its colors."""
SIZE: Final = (50, 160)
QUIT: Final = b"\x03"  # Ctrl-C, a key as any other to a program that draws the screen
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]")


def drained(terminal: int) -> bytes:
    """The output that a program has written to its terminal, after a wait of a second at most."""
    written = b""
    while select.select([terminal], [], [], 0.0 if written else 1.0)[0]:
        written += os.read(terminal, 65536)
    return written


def log_of(home: Path) -> str:
    """The end of kaskade's log."""
    path = home / ".local" / "state" / "kaskade" / "kaskade.log"
    return path.read_text()[-2000:] if path.exists() else ""


def screen_until(arguments: list[str], wanted: list[str], home: Path) -> None:
    """Run kaskade until its screen has shown a match for each pattern; then quit, which must end it with status 0."""
    try:
        command = [*kaskade_command(), *arguments]
    except AbsentError as reason:
        pytest.skip(str(reason))
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, SIZE)
    lines, columns = SIZE
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "HOME": str(home),
        # pytest-xdist sets both for its workers, and they come before the size of the terminal.
        "LINES": str(lines),
        "COLUMNS": str(columns),
    }
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            # Its spinner draws 140 KB a second, and a program whose terminal is not read as fast stands still. So
            # available output is read first, and searched once; a line may have begun in the part searched before.
            missing, tail, shown = list(wanted), b"", ""
            deadline = time.monotonic() + TIMEOUT_S
            while missing:
                assert time.monotonic() < deadline, f"not shown: {missing}\n{log_of(home)}\n{shown[-2000:]}"
                written = tail + drained(ours)
                shown = re.sub(r"\s+", " ", _ESCAPES.sub(" ", written.decode(errors="replace")))
                missing = [pattern for pattern in missing if not re.search(pattern, shown)]
                tail = written[-LINE_BYTES:]
            os.write(ours, QUIT)
            while process.poll() is None:
                assert time.monotonic() < deadline, "it does not quit"
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        os.read(ours, 65536)
                    except OSError:
                        break  # the other end is closed
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
            os.close(ours)


def test_kaskade_shows_topics_and_records(broker: Broker, tmp_path: Path) -> None:
    create_topic(broker, TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"value-{number}", f"key-{number}", partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    # Name, partitions, replicas, in sync, groups, members, records (from offsets, so the column is "about").
    row = rf"\b{TOPIC} {PARTITIONS} 1 1 0 0 ≈{RECORDS}\b"
    screen_until(["admin", "-b", broker.bootstrap], [row], tmp_path)
    how = ["--earliest", "-k", "string", "-v", "string"]
    shown = [rf"\b{kind}-{number}\b" for kind in ("key", "value") for number in range(RECORDS)]
    screen_until(["consumer", "-b", broker.bootstrap, "-t", TOPIC, *how], shown, tmp_path)
