"""Process ids: the identity of one instance of an application (Kafka: processor.assignment.ProcessId).

An instance keeps its id in its state directory, so the id lasts as long as the state. The order of two ids is that of
java.util.UUID, which compares its halves as signed numbers: assignors process the instances in this order.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

_SIGN: Final = 1 << 63
_HALF: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The id of a process; ids are ordered as in Java."""

    id: uuid.UUID

    @classmethod
    def random_process_id(cls) -> ProcessId:
        """A new id."""
        return cls(uuid.uuid4())

    def __lt__(self, other: ProcessId) -> bool:
        return _rank(self.id) < _rank(other.id)

    def __str__(self) -> str:
        return str(self.id)


def _rank(of: uuid.UUID) -> tuple[int, int]:
    return of.int >> 64 ^ _SIGN, of.int & _HALF ^ _SIGN
