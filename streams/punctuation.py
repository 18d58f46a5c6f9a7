"""Punctuation: callbacks of processors, scheduled by stream time or wall-clock time (Kafka: PunctuationQueue).

Stream time is aligned to 0, so the first call comes with the first record; a wall-clock schedule begins one interval
after the request. A punctuator that missed several intervals is called once, and then again at the next full interval.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.streams.priority_queue import PriorityQueue
from odradek.streams.processor import Punctuator


class Punctuation:
    """One request."""

    __slots__ = ("callback", "cancelled", "due", "interval_ms", "node")

    def __init__(self, node: str, due: int, interval_ms: int, callback: Punctuator) -> None:
        self.node = node
        self.due = due
        self.interval_ms = interval_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Never call it again."""
        self.cancelled = True


class PunctuationQueue:
    """The punctuations of one task for one clock."""

    def __init__(self) -> None:
        self._queue: PriorityQueue[Punctuation] = PriorityQueue()

    def add(self, punctuation: Punctuation) -> None:
        """Call it when it is due."""
        self._queue.offer(punctuation.due, punctuation)

    @property
    def next_due(self) -> int | None:
        """When the next one is due, in ms of this clock."""
        first = self._queue.peek()
        return first[0] if first else None

    def run(self, now: int, call: Callable[[Punctuation], None]) -> bool:
        """Call all that are due. Returns whether there were any."""
        called = False
        while (first := self._queue.peek()) is not None and first[0] <= now:
            each = first[1]
            self._queue.poll()
            if each.cancelled:
                continue
            call(each)
            called = True
            if not each.cancelled:
                missed = max(0, now - each.due) // each.interval_ms
                each.due += (missed + 1) * each.interval_ms
                self.add(each)
        return called
