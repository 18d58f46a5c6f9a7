"""A small application as a process: `run`, `start` without an end, or asyncio; it prints its states.

python -m tests.streams.apps.life run '{"application.id": "life", "bootstrap.servers": "localhost:9092", ...}' in out
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

from odradek.streams import STRING, Consumed, KafkaStreams, Produced, StreamsBuilder
from odradek.streams.runtime import State


def main(how: str, config: str, source: str, sink: str) -> int:
    """Run as described. The status is that of the client."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # one that may receive signals
    builder = StreamsBuilder()
    builder.stream(source, Consumed(STRING, STRING)).map_values(_checked).to(sink, Produced(STRING, STRING))
    streams = KafkaStreams(
        builder.build(), json.loads(config), state_listener=lambda state, before: print(state.name, flush=True)
    )
    if how == "run":
        return streams.run()
    if how == "start":
        streams.start()
        streams.wait_until(State.RUNNING, 60)
        return 7
    return asyncio.run(_on_a_loop(streams))


def _checked(value: str) -> str:
    if value == "bad":
        raise ZeroDivisionError("on purpose")
    return value


async def _on_a_loop(streams: KafkaStreams) -> int:
    async with streams:
        await streams.failed()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
