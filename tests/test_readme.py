"""The commands of the README work for a new user."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_first_records_from_python(odradek_broker: BrokerProcess) -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Producer(" in block]
    assert "127.0.0.1:9092" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:9092", odradek_broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "b'greeting' b'hello from Python'"


PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.service")),
]
SOURCES = [
    path
    for folder in ("broker", "odradek", "protocol", "spark_jobs", "storage", "streams")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def installed_by(text: str) -> Iterator[str]:
    """The packages of each `pip install` in a text, without options."""
    for arguments in re.findall(r"pip install ([^`\n]*)", text):
        for argument in arguments.split():
            if not argument.startswith("-"):
                yield argument.strip("'\"();,:")


def test_without_a_release_everything_installs_from_a_clone() -> None:
    for path in (*PAGES, *SOURCES):
        installed = list(installed_by(path.read_text()))
        assert [each for each in installed if re.fullmatch(r"odradek(\[.*|[=<>~].*)?", each)] == [], path
        if any(each == "." or each.startswith(".[") for each in installed):
            assert "clone" in path.read_text(), path


def test_the_pages_with_install_commands_are_checked() -> None:
    found = {path.name for path in PAGES if any(each.startswith(".") for each in installed_by(path.read_text()))}
    pages = {"README.md", "tour.md", "streams.md", "streams-connectors.md", "spark.md", "kerberos.md", "console.md"}
    assert found == {*pages, "odradek.service"}
    arguments = "`pip install 'odradek[arrow]'`, pip install -q odradek\n"
    assert list(installed_by(arguments)) == ["odradek[arrow]", "odradek"]


def test_the_version_that_is_shown_is_this_one() -> None:
    assert f"odradek {odradek.__version__} ready: broker 0 at 127.0.0.1:9092, data in " in README


@pytest.mark.slow
def test_make_run_does_not_delay_the_first_consumer() -> None:
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "run"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    (command,) = [line for line in printed.stdout.replace("\\\n", "").splitlines() if "odradek broker" in line]
    overrides = shlex.split(command)[shlex.split(command).index("broker") + 1 :]
    config = BrokerConfig.load(None, overrides[1::2])
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert str(config.listeners[0]) == "PLAINTEXT://127.0.0.1:9092"


def test_every_linked_file_exists() -> None:
    root = Path(__file__).resolve().parents[1]
    for page in ("README.md", "ARCHITECTURE.md", "tests/README.md"):
        text = (root / page).read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (root / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_each_command_of_make_is_defined_once_and_documented() -> None:
    """GNU make replaces an earlier recipe of the same name with no more than a warning."""
    makefile = (ROOT / "Makefile").read_text()
    defined = re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE)
    assert sorted(defined) == sorted({*defined})
    phony = re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[0].split()
    assert sorted(phony) == sorted(defined)
    documented = re.findall(r"^    make ([a-z-]+)", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    assert {*documented} == {*defined} - {
        "run",
        "jars",
        "programs",
        "lint",
        "long",
        "branches",
        "memory",
        "quick",
        "quick-memory",
        "clean",
    }
