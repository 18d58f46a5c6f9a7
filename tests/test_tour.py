"""docs/tour.md: its commands run as they are written, in its order, and print what it shows, with other numbers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.eventually import eventually
from tests.support.network import own_network
from tests.support.terminal import Terminal

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "tour.md").read_text()
MOST_COMMANDS = 15
PORTS = (9092, 9093, 9094, 8080)
TIMEOUT_S = 60
FAILOVER = (
    "the broker has left the cluster",
    r"\d+ partitions have new leaders|leads the partition; before, broker 2",
    r"the ISR of \d+ partitions changed|2 left the ISR",
)
"""What the timeline contains after the kill: many events of a kind become one."""
REPEATED = (("group", "lag"), ("cluster", "status"), ("topic", "describe"))
FETCH = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080/timeline').read().decode())"


class Step(NamedTuple):
    """A command of the page, and the lines that it shows below."""

    command: str
    terminal: int | None
    """The terminal in which it goes on running; None for a command that ends."""
    shown: tuple[str, ...]


def steps_of(page: str) -> list[Step]:
    """The commands of a page in their order."""
    found: list[Step] = []
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE):
        for line in block.splitlines():
            text = line.strip()
            if text.startswith(("pip install ", "odradek ")) and not re.match(r"odradek \d", text):
                number = re.search(r"# terminal (\d)$", text)
                found.append(Step(text, None if number is None else int(number[1]), ()))
            elif text:
                found[-1] = found[-1]._replace(shown=(*found[-1].shown, text))
    return found


def shape(line: str) -> re.Pattern[str]:
    """Lines with the same words: other numbers, other space between columns, anything for `…`."""
    words = [re.sub(r"\d+", r"\\d+", re.escape(word)).replace("…", ".*") for word in line.split()]
    return re.compile(r"\s+".join(words).replace(r"\s+.*", r"(?:\s.*)?") + r"\s*")


def missing(shown: Sequence[str], printed: str) -> list[str]:
    """The lines of the page without a line like them in the output."""
    lines = [line.strip() for line in printed.splitlines()]
    return [each for each in shown if not any(shape(each).fullmatch(line) for line in lines)]


STEPS = steps_of(PAGE)


def test_the_page_is_short_and_has_the_tour() -> None:
    assert len(STEPS) <= MOST_COMMANDS
    assert [step.terminal for step in STEPS if step.terminal] == [1, 2, 3, 4]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    install, *_ = STEPS
    (named,) = re.findall(r"\[(.*)\]", install.command)
    assert set(named.split(",")) <= set(extras)
    assert f"{('thirteen', 'fourteen', 'fifteen')[len(STEPS) - 13]} commands" in PAGE
    for kept in ("Press `6`", "Ctrl-C in the first terminal", "Stop the producer with Ctrl-C"):
        assert kept in PAGE, "the test does this"


def test_shapes() -> None:
    assert not missing(["orders  0  412  odradek-…"], "TOPIC  X\norders   7   1024  odradek-1f6c")
    assert not missing(["3  1,2  …"], "3 12,1\n")
    assert missing(["3  1,2,3"], "3  1,2")
    assert missing(["orders  0  412  odradek-…"], "orders  -  412  odradek-1f6c")
    assert steps_of("text\n\n    odradek a    # terminal 2\n\n    out\n\n    odradek b\n") == [
        Step("odradek a    # terminal 2", 2, ("out",)),
        Step("odradek b", None, ()),
    ]


class Tour:
    """The terminals of a newcomer, in one folder."""

    def __init__(self, folder: Path, prefix: Sequence[str], running: ExitStack) -> None:
        self._folder = folder
        self._prefix = list(prefix)
        self._running = running
        self.terminals: dict[int, Terminal] = {}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
        self._environment = {**kept, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config")}

    def run(self, step: Step) -> str:
        """A step to its end, or to the lines that it shows; the output."""
        if step.terminal is not None:
            made = Terminal(self._words(step), columns=150, folder=self._folder, environment=self._environment)
            self.terminals[step.terminal] = terminal = self._running.enter_context(made)
            return eventually(terminal.printed, lambda text: not missing(step.shown, text), step.command)
        words = shlex.split(step.command)
        if tuple(words[1:3]) not in REPEATED:
            printed = self.output(self._words(step))
            assert missing(step.shown, printed) == [], printed
            return printed
        # Lags and in-sync replicas change while the tour goes on: a reader who looks again sees them later.
        return eventually(
            lambda: self.output(self._words(step)), lambda text: not missing(step.shown, text), step.command
        )

    def fetch(self) -> str:
        """The timeline of the console."""
        return self.output([*self._prefix, sys.executable, "-c", FETCH])

    def output(self, command: Sequence[str]) -> str:
        """The output of a command that succeeds."""
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def interrupt(self, number: int) -> str:
        """Ctrl-C in a terminal; everything that it printed."""
        terminal = self.terminals[number]
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(TIMEOUT_S) == 0, terminal.printed()
        return terminal.printed()

    def _words(self, step: Step) -> list[str]:
        return [*self._prefix, "bash", "-c", f"exec {step.command}"]


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    with own_network() as prefix, ExitStack() as running:
        if prefix is None:
            for port in PORTS:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        pytest.skip(f"port {port} of the tour is in use, and this machine has no networks of its own")
        yield Tour(tmp_path, prefix or [], running)


def ids(printed: str) -> set[int]:
    """The ids of the orders in an output."""
    return {int(json.loads(line)["id"]) for line in printed.splitlines() if line.startswith("{") and line.endswith("}")}


@pytest.mark.slow
def test_the_tour(tour: Tour) -> None:
    written = 0
    for step in STEPS[1:]:  # the environment of the tests has the package
        words = shlex.split(step.command, comments=True)
        if words[1] == "get-offsets":
            (count,) = re.findall(r"^(\d+) records to orders$", tour.interrupt(2), re.MULTILINE)
            written = int(count)
        printed = tour.run(step)
        if words[1] == "top":
            tour.terminals[4].press("6")
            # A timeline begins with its first sample, at which a reader sees the name of the cluster.
            eventually(lambda: re.search(r"cluster \S+  \d\d:.*by newest", tour.terminals[4].printed()))
        elif words[1:3] == ["cluster", "kill"]:
            for text in FAILOVER:
                eventually(lambda text=text: re.search(text, tour.terminals[4].printed()), describe=text)
                eventually(lambda text=text: re.search(text, tour.fetch()), describe=text)
        elif words[1] == "get-offsets":
            records = [int(line.split()[-1]) for line in printed.splitlines() if line.startswith("orders")]
            assert len(records) == 6
            assert sum(records) >= written > 100
    every = set(range(written))
    eventually(lambda: ids(tour.terminals[3].printed()) >= every, describe="an order is not read")
    tour.terminals[4].press("q")
    assert tour.terminals[4].process.wait(TIMEOUT_S) == 0
    tour.interrupt(3)
    assert "stopping broker 2" in tour.interrupt(1)
