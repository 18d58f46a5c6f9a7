"""An application beyond Kafka Streams as a process: `awaiting` maps records by a slow service, `ticking` makes ticks.

python -m tests.streams.apps.beyond awaiting '{"application.id": "a", "bootstrap.servers": "127.0.0.1:9092"}' in out
"""

from __future__ import annotations

import json
import sys

from odradek.streams import STRING, Consumed, KafkaStreams, Produced, StreamsBuilder, Topology
from tests.support.slow_service import respond


def awaiting(source: str, sink: str, least_s: float = 0.02, most_s: float = 0.1) -> Topology:
    """Values in upper case, by a service that takes a while."""

    async def upper(value: str) -> str:
        return await respond(value.upper(), least_s, most_s)

    builder = StreamsBuilder()
    values = builder.stream(source, Consumed(STRING, STRING)).map_values_async(upper)
    values.to(sink, Produced(STRING, STRING))
    return builder.build()


def ticking(sink: str, interval_ms: int) -> Topology:
    """Every moment of an interval, each once."""
    builder = StreamsBuilder()
    builder.interval(interval_ms, name="ticks", catch_up="all").to(sink)
    return builder.build()


def main(kind: str, config: str, *more: str) -> int:
    """Run until a signal. The status is that of the client."""
    topology = ticking(more[0], int(more[1])) if kind == "ticking" else awaiting(more[0], more[1])
    return KafkaStreams(
        topology, json.loads(config), state_listener=lambda state, before: print(state.name, flush=True)
    ).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
