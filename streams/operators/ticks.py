"""Sources of ticks: records at the moments of a schedule.

A source of ticks has an internal topic of one partition. The topic stays empty: it makes one task of the application
the owner of the schedule, and the group moves that task as any other. The task makes a tick when the wall clock has
reached its moment, and the moment of the last tick is in the commit metadata of the topic's offset. So it moves with
the task, and with exactly-once processing it is in the transaction that has the results of the ticks: a former owner
that the group has replaced cannot commit it.

A tick has no source record, as what a punctuator forwards: its `record_metadata` is None.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from odradek.streams.nodes import NodeContext
from odradek.streams.processor import Cancellable, PunctuationType
from odradek.streams.records import Headers, Process
from odradek.streams.schedules import Schedule

CatchUp = Literal["skip", "once", "all"]
"""What becomes of moments at which no task ran: no tick, one tick for the latest of them, or one for each."""
MOST_AT_ONCE: Final = 1_000
"""The largest number of ticks of one punctuation, so that the thread commits and polls its group in between."""


class TickSource:
    """Makes the ticks in the task of the first partition; every other task of the sub-topology makes none."""

    def __init__(self, name: str, topic: str, schedule: Schedule, catch_up: CatchUp) -> None:
        """`name` is the key of the ticks; `topic` the internal topic, without the prefix of the application."""
        self.name = name
        self.topic = topic
        self.schedule = schedule
        self.catch_up = catch_up

    def bind(self, node: NodeContext) -> Process:
        """The function of one task: it drops records that others have written to the topic."""
        if node.task.task_id.partition == 0:
            node.on_init(_Ticker(node, self).begin)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            node.dropped()

        return process


class _Ticker:
    """The ticks of one task."""

    def __init__(self, node: NodeContext, source: TickSource) -> None:
        self._node = node
        self._context = node.task
        self._source = source
        self._punctuation: Cancellable | None = None
        self._context.committed_topics.add(f"{node.task.application_id}-{source.topic}")

    def begin(self) -> None:
        """Continue behind the last committed tick; the first start begins at the present time, which is committed, too:
        otherwise a crash before the first tick would move the begin.
        """
        context, progress, topic = self._context, self._context.processor_metadata, self._source.topic
        now_ms = context.system_time_ms()
        if topic not in progress or self._source.catch_up == "skip":
            progress[topic] = max(now_ms, progress.get(topic, now_ms))  # another instance's clock may be ahead
            context.commit_needed = True
        context.stream_time = max(context.stream_time, progress[topic])
        self._schedule_next()

    def _schedule_next(self) -> None:
        context = self._context
        moment = self._source.schedule.after(context.processor_metadata[self._source.topic])
        if moment is not None:
            wait_ms = max(1, moment - context.system_time_ms())
            self._punctuation = self._node.schedule(wait_ms, PunctuationType.WALL_CLOCK_TIME, self._make_ticks)

    def _make_ticks(self, now_ms: int) -> None:
        assert self._punctuation is not None
        self._punctuation.cancel()  # the next moment is not always one interval away
        progress, topic, schedule = self._context.processor_metadata, self._source.topic, self._source.schedule
        try:
            if self._source.catch_up == "all":
                for _ in range(MOST_AT_ONCE):
                    moment = schedule.after(progress[topic])
                    if moment is None or moment > now_ms:
                        break
                    progress[topic] = moment
                    self._forward(moment)
            else:
                latest = schedule.latest(progress[topic], now_ms)
                if latest is not None:
                    progress[topic] = latest
                    self._forward(latest)
        finally:
            self._schedule_next()

    def _forward(self, moment: int) -> None:
        context = self._context
        context.timestamp, context.headers = moment, None
        context.stream_time = max(context.stream_time, moment)
        self._node.forward(self._source.name, moment, moment, None)
