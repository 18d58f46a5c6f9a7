"""Windows: their length, their start, and how long they accept late records (Kafka: Windows).

Lengths are given as timedelta or as ms. A window is closed when stream time has reached its end plus its grace period;
a record that belongs to closed windows only is dropped. The grace period has no default: it is always explicit
(KIP-633).

    TimeWindows       fixed length, aligned to 0; hopping where they advance by less than their length
    SlidingWindows    as long as the greatest difference in time of two records in it (KIP-450); both ends are inside
    SessionWindows    grow with their records until no record arrives for longer than the gap
    UnlimitedWindows  one window, from a start to the end of time
    Windows           the base of a user's own
    JoinWindows       how much earlier or later than a record its partners may be
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Final

from odradek.streams.java_names import JavaNamed, JavaNames
from odradek.streams.records import Window

Duration = int | timedelta
"""Milliseconds, or a timedelta."""
_MS: Final = timedelta(milliseconds=1)
END_OF_TIME: Final = 2**63 - 1


def to_ms(duration: Duration, name: str) -> int:
    """A duration in whole ms. Raises TypeError, with the name of its purpose."""
    if isinstance(duration, timedelta):
        return duration // _MS
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    raise TypeError(f"{name} must be a timedelta or a number of ms, not {duration!r}")


def end_of(start: int, size_ms: int) -> int:
    """The end of a window, at most the largest timestamp."""
    return min(start + size_ms, END_OF_TIME)


def _no_grace_below_zero(grace_ms: int) -> None:
    if grace_ms < 0:
        raise ValueError("Grace period must not be negative.")


class EmitStrategy(Enum):
    """When a window emits its result: at each of its records, or once, when it is closed (KIP-825)."""

    ON_WINDOW_UPDATE = "onWindowUpdate"
    ON_WINDOW_CLOSE = "onWindowClose"


class Windows(JavaNames, abc.ABC):
    """Windows of a user's own, such as days in a time zone (Kafka: Windows).

    A window starts at one moment only once, and contains its start.
    """

    @abc.abstractmethod
    def windows_for(self, timestamp: int) -> list[Window]:
        """The windows that contain a timestamp, in the order in which their results are updated; the end is outside."""

    @property
    @abc.abstractmethod
    def size_ms(self) -> int:
        """The length of the longest window: the store keeps windows so long, and rows read from it, or from its cache,
        have windows of this length, as in Java.
        """

    @property
    @abc.abstractmethod
    def grace_ms(self) -> int:
        """How long after its end a window accepts late records."""

    def starts_for(self, timestamp: int) -> list[int]:
        """The starts of the windows that contain a timestamp."""
        return [each.start for each in self.windows_for(timestamp)]


@dataclass(frozen=True, slots=True)
class TimeWindows(JavaNames, metaclass=JavaNamed):
    """Windows of one length, the start inside, the end outside."""

    size_ms: int
    advance_ms: int
    grace_ms: int

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        """Tumbling windows that accept no late records. Raises ValueError for a length that is not above 0."""
        return cls.of_size_and_grace(size, 0)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        """Tumbling windows that stay open for `grace` after their end. Raises ValueError."""
        size_ms, grace_ms = to_ms(size, "size"), to_ms(grace, "grace")
        if size_ms <= 0:
            raise ValueError("Window size (sizeMs) must be larger than zero.")
        _no_grace_below_zero(grace_ms)
        return cls(size_ms, size_ms, grace_ms)

    def advance_by(self, advance: Duration) -> TimeWindows:
        """Hopping windows: one begins every `advance`. Raises ValueError unless it is above 0 and at most the size."""
        advance_ms = to_ms(advance, "advance")
        if not 0 < advance_ms <= self.size_ms:
            raise ValueError(
                "Window advancement interval should be more than zero and less than window duration which is "
                f"{self.size_ms} ms, but given advancement interval is: {advance_ms} ms"
            )
        return replace(self, advance_ms=advance_ms)

    def starts_for(self, timestamp: int) -> range:
        """The starts of the windows that contain a timestamp; none is below 0."""
        advance = self.advance_ms
        return range(max(0, timestamp - self.size_ms + advance) // advance * advance, timestamp + 1, advance)

    def windows_for(self, timestamp: int) -> list[Window]:
        """All windows that contain a timestamp, by their start."""
        return [Window(each, each + self.size_ms) for each in self.starts_for(timestamp)]


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(JavaNames, metaclass=JavaNamed):
    """One window that never ends, and contains no record from before its start."""

    start_ms: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """The window that begins at 0."""
        return cls()

    def start_on(self, start_ms: int) -> UnlimitedWindows:
        """Begin at `start_ms`, in ms since the epoch. Raises ValueError below 0."""
        if start_ms < 0:
            raise ValueError("Window start time (startMs) cannot be negative.")
        return UnlimitedWindows(start_ms)

    @property
    def size_ms(self) -> int:
        """The largest timestamp."""
        return END_OF_TIME

    @property
    def grace_ms(self) -> int:
        """The window is never closed, so no record is late."""
        return 0

    def starts_for(self, timestamp: int) -> range:
        """The start of the window, unless the timestamp is before it."""
        return range(self.start_ms, self.start_ms + 1 if timestamp >= self.start_ms else self.start_ms)

    def windows_for(self, timestamp: int) -> list[Window]:
        """The window, unless the timestamp is before it."""
        return [Window(each, END_OF_TIME) for each in self.starts_for(timestamp)]


@dataclass(frozen=True, slots=True)
class SlidingWindows(JavaNames, metaclass=JavaNamed):
    """Windows around records; both ends are inside."""

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        """Records that are at most `difference` apart share a window. Raises ValueError below 0."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        """The same, staying open for `grace`. Raises ValueError below 0."""
        difference_ms, grace_ms = to_ms(difference, "time difference"), to_ms(grace, "grace")
        if difference_ms < 0:
            raise ValueError("Window time difference must not be negative.")
        _no_grace_below_zero(grace_ms)
        return cls(difference_ms, grace_ms)


@dataclass(frozen=True, slots=True)
class SessionWindows(JavaNames, metaclass=JavaNamed):
    """Windows that last as long as records arrive; a gap equal to the inactivity gap does not end one."""

    inactivity_gap_ms: int
    grace_ms: int

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        """Sessions that accept no late records. Raises ValueError for a gap that is not above 0."""
        return cls.of_inactivity_gap_and_grace(gap, 0)

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        """Sessions that stay open for gap and grace after their last record. Raises ValueError."""
        gap_ms, grace_ms = to_ms(gap, "inactivity gap"), to_ms(grace, "grace")
        if gap_ms <= 0:
            raise ValueError("Gap time cannot be zero or negative.")
        _no_grace_below_zero(grace_ms)
        return cls(gap_ms, grace_ms)


@dataclass(frozen=True, slots=True)
class JoinWindows(JavaNames, metaclass=JavaNamed):
    """A record joins others that are at most `before_ms` earlier and `after_ms` later than it."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        """Partners at most `difference` apart, no late records. Raises ValueError below 0."""
        return cls.of_time_difference_and_grace(difference, 0)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        """The same, with a grace period. Raises ValueError below 0."""
        difference_ms, grace_ms = to_ms(difference, "time difference"), to_ms(grace, "grace")
        _no_grace_below_zero(grace_ms)
        return cls(difference_ms, difference_ms, grace_ms)._checked()

    def before(self, difference: Duration) -> JoinWindows:
        """Partners at most `difference` earlier. Raises ValueError for a window of negative size."""
        return replace(self, before_ms=to_ms(difference, "time difference"))._checked()

    def after(self, difference: Duration) -> JoinWindows:
        """Partners at most `difference` later. Raises ValueError for a window of negative size."""
        return replace(self, after_ms=to_ms(difference, "time difference"))._checked()

    @property
    def size_ms(self) -> int:
        """The time from the earliest to the latest partner."""
        return self.before_ms + self.after_ms

    def _checked(self) -> JoinWindows:
        if self.size_ms < 0:
            raise ValueError("Window interval (ie, beforeMs+afterMs) must not be negative.")
        return self
