"""Parts of a run that are processes of their own: `pytest --part 2/3` runs the second of three.

Each imports only its own test files, where every worker of pytest-xdist imports all of them, and no process distributes
tests and collects reports: a tenth of the work of `make check`. The price is that files are dealt beforehand.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests import selection

HERE: Final = Path(__file__).parent


class Part(NamedTuple):
    """One of `of` parts, the first of which is number 1."""

    number: int
    of: int


def add_option(parser: pytest.Parser) -> None:
    """Add `--part`."""
    parser.addoption("--part", type=parse, help="run the files of one of N parts, for example 2/3")


def parse(text: str) -> Part:
    """Parse `number/count`. Raises ValueError, which pytest reports."""
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"{text!r} is no part: 2/3 is the second of three")
    return Part(int(found[1]), int(found[2]))


def includes(part: Part, expression: str, path: Path) -> bool:
    """Whether a part of a run with this expression of marks (`-m`) has the file."""
    return _deal(part.of, expression, HERE)[path] == part.number


@cache
def _deal(count: int, expression: str, folder: Path) -> dict[Path, int]:
    """The part of each file: the largest file that is left goes to the smallest part. The bytes of a file are as
    good an estimate of the time of its tests as their number.
    """
    files = {path: path.stat().st_size for path in folder.rglob("test_*.py")}
    sizes, parts = [0] * count, {}
    for path in sorted(files, key=lambda path: (-files[path], path)):
        smallest = sizes.index(min(sizes))
        parts[path] = smallest + 1
        if selection.can_select(expression, path):
            sizes[smallest] += files[path]
    return parts
