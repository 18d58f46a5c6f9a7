"""Times and durations on the command line."""

from __future__ import annotations

import re
from typing import Final

from odradek.commands.session import usage

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def duration_ms(text: str, option: str) -> int:
    """A duration in milliseconds: `90s`, `2h`, `1d12h`, or `PT2H` as for Kafka's tools. Raises click.UsageError."""
    iso = _ISO.fullmatch(text)
    if iso is not None and any(iso.groups()):
        return round(sum(float(value) * _UNITS[unit] for unit, value in iso.groupdict().items() if value))
    parts = _SHORT.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        usage(f"{option}: {text!r} is not a duration as 90s, 2h, 1d12h or PT2H are")
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def timestamp_ms(text: str, option: str) -> int:
    """Milliseconds since the epoch: a number of them, or a time as 2026-01-31T12:00:00, in UTC unless it has an offset.

    Raises click.UsageError.
    """
    if text.isdigit():
        return int(text)
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        usage(f"{option}: {text!r} is neither milliseconds nor a time as 2026-01-31T12:00:00 or 2026-01-31T12:00:00Z")
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
