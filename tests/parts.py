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
CPU_S: Final = {
    "protocol/test_codec_kio.py": 7,
    "test_architecture.py": 5,
    "broker/test_every_version.py": 4,
    "broker/test_large_requests.py": 4,
    "broker/test_decompression_bombs.py": 4,
    "test_cli.py": 3.5,
    "protocol/test_net.py": 3,
    "machines/test_controller_pauses.py": 2.5,
    "machines/test_group_log_and_memory.py": 2.5,
    "broker/test_bad_input.py": 2.5,
    "storage/test_power_loss.py": 2,
    "machines/test_consumer_group_invariants.py": 2,
    "protocol/test_compression.py": 2,
    "mutants/test_mutants.py": 2,
    "machines/test_replication.py": 2,
}
"""The CPU time of the quick tests of the files that take much longer than their size shows, in seconds."""
CPU_S_OF_A_BYTE: Final = 4.7e-5
"""That of the others, on average."""


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
    """The part of each file: the most expensive file that is left goes to the cheapest part."""
    files = {path: _cpu_s(path, folder) for path in folder.rglob("test_*.py")}
    totals, parts = [0.0] * count, {}
    for path in sorted(files, key=lambda path: (-files[path], path)):
        cheapest = totals.index(min(totals))
        parts[path] = cheapest + 1
        if selection.can_select(expression, path):
            totals[cheapest] += files[path]
    return parts


def _cpu_s(path: Path, folder: Path) -> float:
    return CPU_S.get(path.relative_to(folder).as_posix(), path.stat().st_size * CPU_S_OF_A_BYTE)
