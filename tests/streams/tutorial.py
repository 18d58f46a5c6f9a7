"""The tutorial (docs/streams-tutorial.md): its applications, with their tests and sessions."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.streams import guide

PAGE: Final = guide.DOCS / "streams-tutorial.md"
BLOCK: Final = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP: Final = re.compile(r"^(\S+) (<-|->) (\S+): (.*)$")


class Step(NamedTuple):
    """A line of a session: a record that the user writes, or reads."""

    topic: str
    key: str
    value: str


class Application(NamedTuple):
    """A section: a program, its test, and a session."""

    name: str
    program: str
    test: str
    written: list[Step]
    read: list[Step]


def applications() -> list[Application]:
    """The sections that have a program."""
    found = []
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        blocks = BLOCK.findall(section)
        if not blocks:
            continue
        (_, program), (_, test), (_, session) = blocks
        name = re.match(r"# (\w+)\.py\n", program)
        assert name is not None, section[:40]
        assert test.startswith(f"# test_{name[1]}.py\n")
        steps = [STEP.match(line) for line in session.splitlines()]
        assert all(steps), session
        written, read = (
            [Step(step[1], step[3], step[4]) for step in steps if step is not None and step[2] == arrow]
            for arrow in ("<-", "->")
        )
        found.append(Application(name[1], program, test, written, read))
    return found
