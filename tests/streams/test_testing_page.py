"""docs/testing.md, its part about stream applications: its tests pass, and its message is the one that they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.streams.testing.golden import difference
from tests.streams import guide

pytest_plugins = ["pytester"]
SECTION = (guide.DOCS / "testing.md").read_text().partition("\n## Test a stream application\n")[2].partition("\n## ")[0]
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
CONFTEST = """
from hypothesis import settings
settings.register_profile("few", max_examples=5)
settings.load_profile("few")
"""
QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist")


@pytest.mark.slow
def test_its_tests_pass(pytester: pytest.Pytester) -> None:
    assert len(PROGRAMS) == 3
    pytester.makepyfile(**{f"test_page_{number}": program for number, program in enumerate(PROGRAMS)})
    pytester.makeconftest(CONFTEST)
    pytester.runpytest(*QUIET, "--update-golden").assert_outcomes(passed=4)
    golden = Path(pytester.path / "golden" / "words.txt")
    before = golden.read_text()
    pytester.runpytest(*QUIET).assert_outcomes(passed=4)
    prose = re.sub(r"^```.*?^```$", "", SECTION, flags=re.MULTILINE | re.DOTALL)
    shown = re.sub(r"\s+", " ", "\n".join(re.findall(r"^    (.*)$", prose, re.MULTILINE)))
    printed = re.sub(r"\s+", " ", difference(before, before.replace("word-counts", "totals")))
    lines = [each for each in re.split(r" (?=- |\+ |For )", shown) if each.strip()]
    assert [line for line in lines if line.strip() not in printed] == []
    assert len(lines) >= 5
