"""Which test files an expression of marks (`pytest -m`) can select a test of, from their text: the others need not be
imported, which is a sixth of the work of `make check`.

A file's tests have the marks of its `pytestmark`, and may have those that its text (`mark.slow`) or that of
a conftest.py above it names. Every run holds these two rules against the tests that it collects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, groupby
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from _pytest.mark.expression import Expression

HERE: Final = Path(__file__).parent
MARKS: Final = frozenset({"slow", "jvm", "memory"})
_OF_THE_FILE: Final = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)
_MARK: Final = re.compile(r"mark\.(\w+)")  # without \b, which takes ten times as long


class _Marks(NamedTuple):
    """The marks among MARKS of a text: those of its `pytestmark`, and all that it names."""

    certain: frozenset[str]
    named: frozenset[str]


@cache
def _marks_of_text(path: Path, written_ns: int) -> _Marks:
    """Of the text of a file that was written then."""
    text = path.read_text()
    found = _OF_THE_FILE.search(text)
    certain = frozenset(_MARK.findall(found.group(1))) & MARKS if found else frozenset()
    return _Marks(certain, frozenset(_MARK.findall(text)) & MARKS)


def certain_marks(path: Path) -> frozenset[str]:
    """The marks among MARKS that every test of a file has."""
    return _marks_of_text(path, path.stat().st_mtime_ns).certain


def possible_marks(path: Path) -> frozenset[str]:
    """The marks among MARKS that a test of a file may have."""
    texts = [path, *(folder / "conftest.py" for folder in path.parents[: _depth(path)])]
    found = (_marks_of_text(each, each.stat().st_mtime_ns) for each in texts if each.exists())
    return frozenset().union(*(marks.named for marks in found))


def can_select(expression: str, path: Path) -> bool:
    """Whether a test of the file may match.

    That of an expression with other names than MARKS does not depend on the marks alone: yes, as without one.
    """
    if not expression or set(re.findall(r"\w+", expression)) - MARKS - {"and", "or", "not"}:
        return True
    compiled = Expression.compile(expression)

    def matches(marks: frozenset[str]) -> bool:
        return compiled.evaluate(lambda name, /, **_: name in marks)

    return any(map(matches, _between(certain_marks(path), possible_marks(path))))


def check(items: Iterable[pytest.Item]) -> None:
    """Hold the two rules against collected tests.

    Raises pytest.UsageError for a test that has a mark which neither its file nor a conftest.py names.
    """
    for path, found in groupby(items, key=lambda item: item.path):
        certain, possible = certain_marks(path), possible_marks(path)
        for item in found:
            marks = {mark.name for mark in item.iter_markers()} & MARKS
            if not certain <= marks <= possible:
                raise pytest.UsageError(f"{item.nodeid} has the marks {sorted(marks)}, which {path} does not show")


def _between(least: frozenset[str], most: frozenset[str]) -> Iterator[frozenset[str]]:
    rest = sorted(most - least)
    for size in range(len(rest) + 1):
        for some in combinations(rest, size):
            yield least | frozenset(some)


def _depth(path: Path) -> int:
    """How many folders above a file are in that of the tests."""
    return len(path.relative_to(HERE).parts)
