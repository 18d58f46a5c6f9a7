"""Sources of ticks of the DSL: streams that get a record at the moments of a schedule.

Kafka Streams has punctuators only, which belong to a task: each instance calls its own, and forgets them when it ends.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Final

from odradek.streams.dsl.graph import Graph, validated
from odradek.streams.dsl.kstream import KStream
from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call
from odradek.streams.operators.repartition import SUFFIX
from odradek.streams.operators.ticks import CatchUp, TickSource
from odradek.streams.schedules import CronSchedule, IntervalSchedule, Schedule
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import InternalTopic, Topology
from odradek.streams.windows import Duration, to_ms

TICKS: Final = "KSTREAM-TICKS-"
_CATCH_UPS: Final = ("skip", "once", "all")


class TickSources:
    """The methods of StreamsBuilder for sources of ticks."""

    graph: Graph

    def interval(self, every: Duration, *, name: str | None = None, catch_up: CatchUp = "once") -> KStream[str, int]:
        """A record at every multiple of `every` (ms or a timedelta) since the epoch, once for the whole application.

        The key of a record is the name of the source, its value and its timestamp the moment in ms. `catch_up` decides
        about moments at which no instance ran: "skip" makes no record for them, "once" one for the latest of them,
        "all" one for each. The internal topic `<application.id>-<name>-ticks-repartition` makes one task the owner of
        the schedule; without a name, the source and its topic have a generated one.

        Raises ArgumentError for an interval below 1 ms, TopologyError for a name that is invalid in a topic.
        """
        return self._ticks(IntervalSchedule(to_ms(every, "every")), name, catch_up)

    def cron(
        self, expression: str, *, timezone: str | tzinfo = "UTC", name: str | None = None, catch_up: CatchUp = "once"
    ) -> KStream[str, int]:
        """A record at every moment of a cron expression, once for the whole application; see `interval`.

        The expression has five fields, or six that begin with seconds; `timezone` is an IANA name or a tzinfo. Requires
        the extra `cron`. Raises ArgumentError for an invalid expression or time zone, MissingExtraError.
        """
        return self._ticks(CronSchedule(expression, timezone), name, catch_up)

    def _ticks(self, schedule: Schedule, name: str | None, catch_up: CatchUp) -> KStream[str, int]:
        if catch_up not in _CATCH_UPS:
            raise ArgumentError(f"catch_up={catch_up!r} at {place_of_call()}; expected one of {', '.join(_CATCH_UPS)}")
        source, node = self.graph.new_name("KSTREAM-SOURCE-"), self.graph.new_name(TICKS)
        topic = f"{node}{SUFFIX}"
        if name is not None:
            topic, node = f"{validated(name)}-ticks{SUFFIX}", name
            source = f"{topic}-source"
        # The suffix is that of repartition topics, so that Kafka's application reset deletes the topic, and with it the
        # moment of the last tick.
        operator = TickSource(node, topic, schedule, catch_up)

        def write(topology: Topology) -> None:
            topology.add_internal_topic(InternalTopic(topic, 1))
            topology.add_source(source, topic, key=STRING, value=LONG, offset_reset="earliest")  # it is empty
            topology.add_processor(node, operator, source)

        self.graph.add(write, provides=node)
        return KStream(self.graph, node, STRING, LONG, frozenset((source,)))
