"""Amounts as short text: counts, rates, bytes and durations."""

from __future__ import annotations

import math
from typing import Final

ABSENT: Final = "-"
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def count(number: float | None) -> str:
    """A whole number with thousands separators."""
    return ABSENT if number is None else f"{number:,.0f}"


def rate(number: float | None) -> str:
    """A number for each second: whole from 10 on."""
    if number is None:
        return ABSENT
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def size(number: float | None) -> str:
    """Bytes with a unit: 512 B, 1.5 KiB, 20 MiB."""
    if number is None:
        return ABSENT
    if number < 1024:
        return f"{number:.0f} B"
    power = min(int(math.log(number, 1024)), len(_UNITS))
    number /= 1024**power
    return f"{number:.1f} {_UNITS[power - 1]}" if number < 10 else f"{number:,.0f} {_UNITS[power - 1]}"


def duration(nanoseconds: float | None) -> str:
    """A duration with a unit: 850 ns, 1.5 µs, 20 ms."""
    if nanoseconds is None:
        return ABSENT
    for unit, factor in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if nanoseconds < 1_000 * factor:
            number = nanoseconds / factor
            return f"{number:.1f} {unit}" if number < 10 and factor > 1 else f"{number:.0f} {unit}"
    return f"{nanoseconds / 1_000_000_000:.1f} s"
