"""Punctuation: callbacks of processors, scheduled by stream time or wall-clock time (Kafka: PunctuationQueue).

Stream time is aligned to 0, so the first call comes with the first record; a wall-clock schedule begins one interval
after the request. A punctuator that missed several intervals is called once, and then again at the next full interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.streams.context import TaskContext
from odradek.streams.errors import ProcessingError, ends_thread, of_task
from odradek.streams.priority_queue import PriorityQueue
from odradek.streams.processor import PunctuationType, Punctuator
from odradek.streams.recorded_metrics import RecordedStat
from odradek.streams.records import NO_TIMESTAMP

NO_PARTITION: Final = -1


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


class TaskPunctuations:
    """The punctuations of one task, by stream time and by wall-clock time."""

    def __init__(self, context: TaskContext, latencies: RecordedStat) -> None:
        """`latencies` records the duration of each call in ns."""
        self._context = context
        self._latencies = latencies
        self._stream_time = PunctuationQueue()
        self._system_time = PunctuationQueue()

    def schedule(self, node: str, interval_ms: int, kind: PunctuationType, callback: Punctuator) -> Punctuation:
        """Call `callback` at this interval from now on."""
        if kind is PunctuationType.STREAM_TIME:
            queue, due = self._stream_time, 0
        else:
            queue, due = self._system_time, self._context.system_time_ms() + interval_ms
        punctuation = Punctuation(node, due, interval_ms, callback)
        queue.add(punctuation)
        return punctuation

    def run_stream_time(self) -> bool:
        """Call the punctuators that are due by stream time. Returns whether there were any. Raises StreamsError."""
        now = self._context.stream_time
        return now != NO_TIMESTAMP and self._stream_time.run(now, lambda each: self._punctuate(each, now))

    def run_system_time(self) -> bool:
        """Call the punctuators that are due by wall-clock time. Returns whether there were any. Raises StreamsError."""
        now = self._context.system_time_ms()
        return self._system_time.run(now, lambda each: self._punctuate(each, now))

    @property
    def next_system_time_ms(self) -> int | None:
        """When the next wall-clock punctuator is due."""
        return self._system_time.next_due

    def _punctuate(self, punctuation: Punctuation, now: int) -> None:
        context = self._context
        context.topic, context.partition, context.offset = None, NO_PARTITION, -1
        context.source_message = None
        context.timestamp, context.headers = now, None
        context.commit_needed = True
        start = time.perf_counter_ns()
        with of_task(context.task_id):
            self._call(punctuation, now)
        self._latencies.record(time.perf_counter_ns() - start)

    def _call(self, punctuation: Punctuation, now: int) -> None:
        context = self._context
        try:
            punctuation.callback(now)
        except Exception as error:
            if ends_thread(error):
                raise
            if context.failed(context.handlers.processing, context.where(punctuation.node), None, error):
                raise ProcessingError(
                    f"task [{context.task_id}] Exception caught while punctuating processor '{punctuation.node}': "
                    f"{error!r}"
                ) from error
