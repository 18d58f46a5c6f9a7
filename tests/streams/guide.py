"""The guide (docs/streams.md): its pieces of Python, its table of properties, its picture.

python -m tests.streams.guide    writes the table and the picture anew, after a change of streams/config.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.streams.config import REQUIRED, TABLE

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "streams.md"
PICTURE: Final = DOCS / "streams-topology.svg"
BROKER: Final = "127.0.0.1:9092"
"""The code pieces of the guide that need a broker."""
BEGIN: Final = "<!-- configuration -->\n"
END: Final = "<!-- /configuration -->\n"

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Scenario(NamedTuple):
    """A chapter that has pieces of Python, in their order; they share their names."""

    title: str
    blocks: tuple[str, ...]

    @property
    def needs_broker(self) -> bool:
        """Whether any of it connects to a broker."""
        return any(BROKER in block for block in self.blocks)

    def run(self, bootstrap: str) -> dict[str, Any]:
        """Run it with the broker at `bootstrap`. Returns the names that it has defined; passes on its exceptions."""
        names: dict[str, Any] = {"__name__": "guide"}
        for number, block in enumerate(self.blocks, start=1):
            place = f"{PAGE.name}, {self.title}, piece {number}"
            # Annotations in the page are types, though they are texts in this module.
            code = compile(block.replace(BROKER, bootstrap), place, "exec", dont_inherit=True)
            exec(code, names)
        return names


def scenarios(text: str) -> list[Scenario]:
    """The parts of the page that have pieces of Python."""
    found = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        blocks = tuple(match[1] for match in _BLOCK.finditer(body))
        if blocks:
            found.append(Scenario(title, blocks))
    return found


def table() -> str:
    """The properties, a row each."""
    rows = [f"| `{row.name}` | {_shown(row.name, row.default)} | {row.doc} |" for row in TABLE]
    return "\n".join(["| property | default | |", "|---|---|---|", *rows]) + "\n"


def _shown(name: str, default: Any) -> str:
    if default is REQUIRED:
        return "required"
    if name == "state.dir":
        return "`kafka-streams` in the temporary folder"
    if default is None or default == "" or default == ():
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{getattr(default, '__name__', default)}`"


def with_table(text: str) -> str:
    """The page with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def picture() -> str:
    """The picture of the topology of the first application."""
    first = next(scenario for scenario in scenarios(PAGE.read_text()) if scenario.title == "A first application")
    code, _, _ = first.blocks[0].partition("streams = ")
    names: dict[str, Any] = {}
    exec(code, names)
    made: str = names["topology"].picture()
    return made


def main() -> int:
    """Write both."""
    PAGE.write_text(with_table(PAGE.read_text()))
    PICTURE.write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
