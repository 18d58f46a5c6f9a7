"""Times that a user types: 2026-01-31T12:00:00 in UTC, milliseconds, or how long ago: 2h."""

from __future__ import annotations

import click

from odradek.commands.times import duration_ms, timestamp_ms


class MomentError(ValueError):
    """A text that is neither a time nor a duration."""


def moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch. Raises MomentError."""
    try:
        return timestamp_ms(text, "time")
    except click.UsageError:
        pass
    try:
        return now_ms - duration_ms(text, "time")
    except click.UsageError:
        raise MomentError(f"{text!r} is neither a time as 2026-01-31T12:00:00 nor a duration as 2h") from None
