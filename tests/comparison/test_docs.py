"""docs/compatibility.md lists every intended difference, with its reason, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.comparison.intended import INTENDED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
ENTRY = re.compile(r"^- \*\*(?P<name>.+?)\.\*\* (?P<reason>.+?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)


def test_the_page_lists_the_intended_differences() -> None:
    found = {each["name"]: " ".join(each["reason"].split()) for each in ENTRY.finditer(PAGE.read_text())}
    assert found == {each.name: each.reason for each in INTENDED}
