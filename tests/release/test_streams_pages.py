"""The commands of docs/streams*.md run for a user who has installed the wheel, and nothing else.

The environment has the wheel with the extra `streams` and what it requires, by the wheel's own metadata: a package that
the wheel forgets to require is missing here. Tools of Kafka are not in it, so the pages cannot need them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from packaging.requirements import Requirement

from odradek.ports import free_port
from tests.release import wheel
from tests.streams import guide, tutorial
from tests.support.eventually import eventually

PAGES: Final = sorted({*guide.DOCS.glob("streams*.md")} - {guide.DOCS / "streams-connectors.md"})
"""`tests/streams/connectors/test_docs.py` runs the programs of the other page."""
BROKER: Final = "127.0.0.1:9092"
PAGE_PORT: Final = "9404"
TIMEOUT_S: Final = 60.0
PROGRAMS: Final = ("odradek", "python", "pip")
FOREIGN: Final = {
    "kafka-streams-application-reset.sh": "named as the tool of Kafka that `odradek streams reset` replaces",
    "kafka-streams": "a folder",
}
"""Commands that the pages name and that do not come with pip, with the reason."""
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HIDDEN: Final = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"(python -m odradek\.streams\.examples\.\w+)  +\S.*")


def commands() -> list[str]:
    """The commands of all pages: lines of indented blocks, and code in the text that has arguments."""
    found: dict[str, None] = {}
    for page in PAGES:
        text = _HIDDEN.sub("", page.read_text())
        for line in re.findall(r"^    (\S.*)$", text, re.MULTILINE):
            line = line.removeprefix("$ ")
            line = match[1] if (match := _EXAMPLE.fullmatch(line)) else line
            if is_command(line):
                found[line] = None
        for span in _SPAN.findall(text):
            if is_command(span) and len(span.split()) > 1:
                found[span] = None
    return list(found)


def is_command(text: str) -> bool:
    """Whether a text begins with a program; `odradek.streams` is a module."""
    first = text.split()[0]
    return (first in PROGRAMS or first.startswith("kafka-")) and not re.match(r"odradek \d", text)


COMMANDS: Final = commands()


class Installed:
    """An environment that has the wheel."""

    def __init__(self, folder: Path, built: Path) -> None:
        self.bin = folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=False)
        (self._packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        wheel.run([sys.executable, "-m", "pip", f"--python={self.bin / 'python'}", "install", *QUIET, str(built)])
        (own,) = metadata.distributions(name="odradek", path=[str(self._packages)])
        self._link(Requirement(f"odradek[{EXTRAS}]"), own.requires or [], set())
        self.work = folder / "work"
        self.work.mkdir()

    def _link(self, wanted: Requirement, requires: Sequence[str], seen: set[str]) -> None:
        """Link what a package requires: the files are those of this environment, which has them already."""
        for requirement in map(Requirement, requires):
            extras = wanted.extras or {""}
            if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": e}) for e in extras):
                continue
            found = metadata.distribution(requirement.name)
            assert requirement.specifier.contains(found.version, prereleases=True), (
                f"{requirement}, not {found.version}"
            )
            if found.name in seen:
                continue
            seen.add(found.name)
            for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
                link = self._packages / top
                if not link.exists():
                    link.symlink_to(Path(str(found.locate_file(top))))
            self._link(requirement, found.requires or [], seen)

    def command(self, text: str, **replaced: str) -> list[str]:
        """The arguments of a documented command, with the program of this environment."""
        for before, after in replaced.items():
            assert before in VARIABLES
            text = text.replace(VARIABLES[before], after)
        program, *arguments = shlex.split(text)
        return [str(self.bin / program), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """Variables without a path to this clone."""
        return {"PATH": str(self.bin), "HOME": str(self.work), "TMPDIR": str(self.work), "LANG": "C.UTF-8"}

    def run(self, command: Sequence[str], answer: str = "") -> str:
        """Run a command to its end. Returns its output; its status has to be 0."""
        ended = subprocess.run(
            command,
            input=answer,
            capture_output=True,
            text=True,
            cwd=self.work,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    @contextmanager
    def running(
        self, command: Sequence[str], *, end: signal.Signals = signal.SIGINT
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command during the block; a signal then ends it with status 0."""
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=self.work, env=self.environment, start_new_session=True
        )
        with started:
            try:
                yield started
                started.send_signal(end)
                assert started.wait(TIMEOUT_S) == 0, command
            finally:
                if started.poll() is None:
                    os.killpg(started.pid, signal.SIGKILL)


EXTRAS: Final = "streams"
QUIET: Final = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
VARIABLES: Final = {"broker": BROKER, "page": PAGE_PORT, "state": "/var/lib"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, release: tuple[Path, Path]) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"), release[1])


@pytest.fixture(scope="module")
def broker(installed: Installed) -> Iterator[str]:
    """`odradek broker` of the environment, at a free port."""
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    overrides = {
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(installed.work / "data"),
        "group.initial.rebalance.delay.ms": "0",
    }
    options = [f"--override={name}={value}" for name, value in overrides.items()]
    with installed.running([*installed.command("odradek broker"), *options], end=signal.SIGTERM) as started:
        assert started.stdout is not None
        assert " ready: broker" in started.stdout.readline()
        yield address


def block(title: str, beginning: str) -> str:
    """The indented block of a section of the guide that begins so."""
    section = guide.PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
    return next(text for text in map(textwrap.dedent, blocks) if text.lstrip("\n").startswith(beginning)).strip("\n")


COVERED: Final = {
    "pip install '.[streams]'": "the fixture `installed`",
    "pip install .": "the fixture `installed`",
    "odradek broker": "the fixture `broker`",
    "python app.py": "a program of the reader's, as word_count.py is",
    "odradek streams run shout:topology --properties shout.properties --processes 4 --threads 1 "
    "--metrics 127.0.0.1:9404": "streams/test_streams_run.py, and the run of shop.py here",
}
"""Commands that no function below runs by their text."""
USED: Final[set[str]] = set()


def documented(beginning: str) -> str:
    """The only command with this beginning; it counts as run."""
    (found,) = [each for each in COMMANDS if each.startswith(beginning)]
    USED.add(found)
    return found


def test_no_page_needs_a_command_that_pip_does_not_bring() -> None:
    foreign = {each.split()[0] for each in COMMANDS if each.startswith("kafka-")}
    named = {span for page in PAGES for span in _SPAN.findall(page.read_text()) if span.startswith("kafka-")}
    assert foreign | {each.split()[0] for each in named} == {*FOREIGN}


@pytest.mark.slow
def test_the_examples_start(installed: Installed) -> None:
    modules = [each.split()[2] for each in COMMANDS if each.startswith("python -m odradek.streams.examples.")]
    assert len(modules) == 8
    script = (
        "import runpy, sys\n"
        "for module in sys.argv[1:]:\n"
        "    sys.argv[1:] = ['--help']\n"
        "    try: runpy.run_module(module, run_name='__main__')\n"
        "    except SystemExit as end: print(module, end.code)\n"
    )
    shown = installed.run([str(installed.bin / "python"), "-c", script, *modules])
    assert [line for line in shown.splitlines() if line.startswith("odradek.streams.examples.")] == [
        f"{module} 0" for module in modules
    ]
    USED.update(f"python -m {module}" for module in modules)


@pytest.mark.slow
def test_the_named_commands_exist(installed: Installed) -> None:
    """Names of commands in the text, without the arguments of a whole command."""
    named = [each for each in COMMANDS if re.fullmatch(r"odradek( [a-z]+)+( --[a-z]+)?", each)]
    assert len(named) >= 4
    for each in named:
        command, _, option = each.partition(" --")
        assert option in installed.run([*installed.command(command), "--help"])
    USED.update(named)


@pytest.mark.slow
def test_the_first_application(installed: Installed, broker: str) -> None:
    first = next(each for each in guide.scenarios(guide.PAGE.read_text()) if each.title == "A first application")
    (installed.work / "word_count.py").write_text(first.blocks[0].replace(BROKER, broker))
    created = installed.run([*installed.command(documented("odradek streams init word_count"), broker=broker), "--yes"])
    assert re.findall(r"created (\S+)", created) == ["text", "counts"]
    admin = AdminClient({"bootstrap.servers": broker})

    def state() -> ConsumerGroupState:
        described = admin.describe_consumer_groups(["word-count"])["word-count"]
        found: ConsumerGroupState = described.result(TIMEOUT_S).state
        return found

    with installed.running(installed.command(documented("python word_count.py"))):
        eventually(state, lambda found: found is ConsumerGroupState.STABLE)
    reset = documented("odradek streams reset").replace(
        " --application-id", f" --bootstrap-server {broker} --application-id"
    )
    assert "A dry run" in installed.run(installed.command(reset))


@pytest.mark.slow
def test_the_tutorial(installed: Installed, broker: str) -> None:
    (application,) = [each for each in tutorial.applications() if each.name == "revenue"]
    (installed.work / "revenue.py").write_text(application.program.replace(BROKER, broker))
    create = installed.command(documented("odradek streams init revenue"))
    assert installed.run([*create, f"--bootstrap-server={broker}"]).count("created ") == 3
    records_program(installed, broker)
    with installed.running(installed.command(documented("python revenue.py"))):
        installed.run(installed.command(documented("python records.py orders")))
        shown = read(installed, installed.command(documented("python records.py revenue")), 2)
    assert shown in (["CZ: 30", "CZ: 42"], ["CZ: 12", "CZ: 42"])  # the orders are in different partitions
    enrich = next(each for each in tutorial.applications() if each.name == "enrich")
    (installed.work / "enrich.py").write_text(enrich.program.replace(BROKER, broker))
    planned = installed.command(documented("odradek streams init enrich"))
    assert installed.run([*planned, f"--bootstrap-server={broker}", "--yes"]).count("created ") == 3


@pytest.mark.slow
def test_topics_and_pictures(installed: Installed, broker: str) -> None:
    """The sessions of the guide, to the letter where no measurement is in them."""
    title, drawing = "Create the topics of an application", "Draw an application and its measurements"
    (installed.work / "shop.py").write_text(block(title, "from odradek.streams"))
    for topic in ("orders", "customers", "named-orders"):  # other programs have a topic of this name
        shop = (installed.work / "shop.py").read_text().replace(f'"{topic}"', f'"shop-{topic}"')
        (installed.work / "shop.py").write_text(shop)
    command, _, expected = block(title, "$ odradek streams init").partition("\n")
    USED.add(command.removeprefix("$ "))
    printed = installed.run(installed.command(command.removeprefix("$ "), broker=broker), answer="y\n")
    assert plain(printed) == plain(expected.replace(BROKER, broker).replace("[y/N]: y", "[y/N]:"))

    command, _, expected = block(drawing, "$ odradek streams describe shop:topology\n").partition("\n")
    USED.add(command.removeprefix("$ "))
    assert plain(installed.run(installed.command(command.removeprefix("$ ")))) == plain(expected)

    port = str(free_port("127.0.0.1"))
    settings = [f"--config=bootstrap.servers={broker}", "--config=application.id=shop", f"--metrics=127.0.0.1:{port}"]
    run = [*installed.command("odradek streams run shop:topology"), "--config=metrics.recording.level=DEBUG", *settings]
    with installed.running(run, end=signal.SIGTERM) as started:
        assert started.stdout is not None
        assert " ready: shop:topology" in started.stdout.readline()
        records = records_program(installed, broker)
        installed.run([*records, "shop-customers", 'c1: {"name":"Anna"}'])
        installed.run([*records, "shop-orders", 'c1: {"item":"spool"}'])
        command, _, expected = block(
            drawing, f"$ odradek streams describe shop:topology --from 127.0.0.1:{PAGE_PORT}"
        ).partition("\n")
        USED.add(command.removeprefix("$ "))
        describe = installed.command(command.removeprefix("$ "), page=port)
        shown = eventually(lambda: installed.run(describe), lambda text: text.count(":0") >= 12)
        assert names(shown) == names(expected)
        installed.run([*describe, "--svg", "shop.svg"])
        assert "<tspan" in (installed.work / "shop.svg").read_text()
        installed.run([*installed.command(documented("odradek streams top --port"), page=port), "--once"])


def plain(text: str) -> str:
    """A session with columns of any width, and with the topics of the page."""
    return (
        re.sub(r"[ \n]+", " ", text.replace("shop-orders", "orders").replace("shop-named-orders", "named-orders"))
        .replace("shop-customers ", "customers ")
        .strip()
    )


def names(text: str) -> list[str]:
    """The first word of each line, behind the lines of the tree."""
    return [
        found.removeprefix("shop-").replace("shop_", "").replace("_", "-")
        for found in re.findall(r"^[─└├│ ]*([\w-]+)", text, re.MULTILINE)
    ]


def records_program(installed: Installed, broker: str) -> list[str]:
    """The program of the tutorial that writes and reads records."""
    program = re.search(r"^```python\n(# records\.py\n.*?)^```$", tutorial.PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert program is not None
    (installed.work / "records.py").write_text(program[1].replace(BROKER, broker))
    return [str(installed.bin / "python"), "records.py"]


def read(installed: Installed, command: Sequence[str], count: int) -> list[str]:
    """The first lines of a command that reads until Ctrl-C."""
    with installed.running(command) as started:
        assert started.stdout is not None
        return [started.stdout.readline().rstrip("\n") for _ in range(count)]


@pytest.mark.slow
def test_every_command_has_been_run() -> None:
    """The tests above ran in this process, since a file is one group."""
    assert {*COMMANDS} >= USED | COVERED.keys()
    rest = [each for each in COMMANDS if each not in USED | COVERED.keys() and each.split()[0] not in FOREIGN]
    assert rest == []
