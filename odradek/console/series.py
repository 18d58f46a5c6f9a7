"""Numbers over time in bounded memory: 16 bytes for each, the oldest removed first."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

SHORTEST: Final = 2


class Series:
    """At most `limit` pairs of a time (seconds since the epoch) and a number, in the order of time."""

    __slots__ = ("_limit", "_times", "_values")

    def __init__(self, limit: int) -> None:
        """`limit` is at least 2."""
        self._limit = max(SHORTEST, limit)
        self._times = array("d")
        self._values = array("d")

    def add(self, time_s: float, value: float) -> None:
        """Append a number. The arrays are cut when they are a quarter over the limit: most calls move nothing."""
        self._times.append(time_s)
        self._values.append(value)
        if len(self._times) > self._limit + self._limit // 4:
            del self._times[: -self._limit]
            del self._values[: -self._limit]

    def __len__(self) -> int:
        return min(len(self._times), self._limit)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(zip(self._times[-self._limit :], self._values[-self._limit :], strict=True))

    @property
    def last(self) -> float | None:
        """The newest number; None without one."""
        return self._values[-1] if self._values else None

    def values(self) -> list[float]:
        """The numbers, the oldest first."""
        return list(self._values[-self._limit :])
