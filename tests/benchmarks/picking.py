"""The choice of cases by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    """A case."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


def pick_from(cases: Sequence[C], names: Sequence[str]) -> tuple[list[C], list[str]]:
    """The cases of these names, all if there are none, and the names that are not of a case here."""
    known = {case.name: case for case in cases}
    if not names:
        return list(cases), []
    return [known[name] for name in names if name in known], [name for name in names if name not in known]
