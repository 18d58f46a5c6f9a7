"""docs/console.md: its commands have the options that it shows, and its tables name every option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from odradek.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "console.md").read_text()
COMMANDS = [line.strip() for line in PAGE.splitlines() if re.match(r"    odradek console( --|$)", line)]


def command() -> click.Command:
    found = main.get_command(click.Context(main), "console")
    assert found is not None
    return found


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_have_these_options(line: str) -> None:
    command().make_context("console", shlex.split(line)[2:], resilient_parsing=True)


def test_the_page_names_every_option() -> None:
    assert len(COMMANDS) >= 4
    options = {name for each in command().params if not getattr(each, "hidden", False) for name in each.opts}
    named = set(re.findall(r"--[a-z-]+", PAGE))
    assert {name for name in options if name.startswith("--")} <= named | {"--help"}


def test_the_page_shows_every_screenshot() -> None:
    shown = set(re.findall(r"\]\(console/(\w+\.png)\)", PAGE))
    assert shown == {path.name for path in (ROOT / "docs" / "console").glob("*.png")}
