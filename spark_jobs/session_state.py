"""The sessions of one key as state of Spark's transformWithState: the rules of `session_window` in Python.

A session is (start, end, count), in ms since the epoch; its end is its last click + gap. Sessions that touch are one.
The processor writes a session and removes its state when the watermark has reached its end: at once where a batch has
clicks for a session that is closed already, else by a timer at its end. Spark runs the timers of a batch after its
rows, so the session includes a click of the batch that closes it.

These functions run on the workers: for the rows of a key in a batch the state is read and written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

Session = tuple[int, int, int]
"""start_ms, end_ms, count."""
STATE_TYPE: Final = "start_ms bigint, end_ms bigint, count bigint"


def merged(sessions: Iterable[Session]) -> list[Session]:
    """Merges sessions that touch; the result is in order, and its sessions are disjoint."""
    found: list[Session] = []
    for start, end, count in sorted(sessions):
        if found and start <= found[-1][1]:
            first, last, before = found[-1]
            found[-1] = (first, max(last, end), before + count)
        else:
            found.append((start, end, count))
    return found


class Sessions(StatefulProcessor):
    """The open sessions of a key; rows have `end_ms`, the end that a session of this click alone would have."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once for each task and batch."""
        self._handle = handle
        self._open = handle.getListState("open", STATE_TYPE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Adds the clicks of a batch."""
        before = self._sessions()
        clicks = ((row.end_ms - self._gap_ms, row.end_ms, 1) for row in rows)
        watermark = timerValues.getCurrentWatermarkInMs()
        sessions = merged([*before, *clicks])
        after = [each for each in sessions if each[1] > watermark]
        self._keep(after)
        ends_before, ends_after = {end for _, end, _ in before}, {end for _, end, _ in after}
        for end in ends_before - ends_after:
            self._handle.deleteTimer(end)
        for end in ends_after - ends_before:
            self._handle.registerTimer(end)
        return (_row(key, each) for each in sessions if each[1] <= watermark)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Writes the session whose end the watermark has reached."""
        at = expiredTimerInfo.getExpiryTimeInMs()
        sessions = self._sessions()
        self._keep([each for each in sessions if each[1] != at])
        return (_row(key, each) for each in sessions if each[1] == at)

    def close(self) -> None:
        """There is nothing to release."""

    def _sessions(self) -> list[Session]:
        if not self._open.exists():
            return []
        return [(start, end, count) for start, end, count in self._open.get()]

    def _keep(self, sessions: list[Session]) -> None:
        if sessions:
            self._open.put(sessions)
        else:
            self._open.clear()


def _row(key: Any, session: Session) -> Row:
    start, end, count = session
    return Row(key=key[0], start_ms=start, end_ms=end, count=count)
