"""The applications of streams_topologies.py with faust-streaming, run by an environment that has it (streams_fetch.py).

    PYTHON streams_faust.py kind=wordcount bootstrap=… application=… input=… output=… table=… state=… guarantee=… …

Counts are texts. It prints RUNNING at the first record, and ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import faust

MINUTE_S = 60.0
STEP_S = 20.0


def stateless(app: Any, source: Any, output: Any) -> None:
    """Filter, map values, map."""

    @app.agent(source)
    async def process(stream: Any) -> None:
        first = True
        async for value in stream:
            if first:
                first = _running()
            if value[0] != "0":
                value = value.upper()
                await output.send(key=value[:4], value=value)


def wordcount(app: Any, source: Any, output: Any) -> None:
    """Count by key."""
    counts = app.Table("counts", default=int, partitions=1, key_type=str, value_type=int)

    @app.agent(source)
    async def process(stream: Any) -> None:
        first = True
        async for event in stream.events():
            key = event.key
            if first:
                first = _running()
            counts[key] += 1
            await output.send(key=key, value=str(counts[key]))


def windowed(app: Any, source: Any, output: Any, step_s: float | None) -> None:
    """Count by key and window."""
    plain = app.Table("counts", default=int, partitions=1, key_type=str, value_type=int)
    made = plain.tumbling(MINUTE_S, expires=2 * MINUTE_S) if step_s is None else plain.hopping(MINUTE_S, step_s)
    counts = made.relative_to_stream()

    @app.agent(source)
    async def process(stream: Any) -> None:
        first = True
        async for event in stream.events():
            if first:
                first = _running()
            key = event.key
            counts[key] += 1
            for window in plain.window.ranges(event.message.timestamp):
                count = plain[(key, window)]
                await output.send(key=f"{key}@{round(window[0] * 1000)}", value=str(count))


def join(app: Any, source: Any, rows: Any, output: Any) -> None:
    """Each record with the row of its key; faust has no join of its own, and its guide shows this way."""
    table = app.Table("rows", default=str, partitions=1, key_type=str, value_type=str)
    everything = threading.Event()

    @app.agent(rows)
    async def fill(stream: Any) -> None:
        async for key, value in stream.items():
            table[key] = value
            if len(table) == 10_000:
                everything.set()

    @app.agent(source)
    async def process(stream: Any) -> None:
        first = True
        async for key, value in stream.items():
            if first:
                while not everything.is_set():  # rows come first, as they are older
                    await app.sleep(0.01)
                first = _running()
            row = table.get(key)
            if row is not None:
                await output.send(key=key, value=value[:40] + row)


def _running() -> bool:
    os.write(1, b"RUNNING\n")  # the worker's log gets what is printed
    return False


def _await_end() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str]) -> None:
    """Run until standard input ends."""
    options = dict(argument.split("=", 1) for argument in arguments)
    app = faust.App(
        options["application"],
        broker=f"kafka://{options['bootstrap']}",
        store="memory://",
        datadir=options["state"],
        processing_guarantee=options["guarantee"].replace("-", "_"),
        broker_commit_interval=float(options["commit_s"]),
        consumer_auto_offset_reset="earliest",
        topic_partitions=1,
        topic_disable_leader=True,
        stream_wait_empty=False,
        web_enabled=False,
        producer_linger=0.1,
        # Otherwise records that wait for rows would keep the rows from being read.
        stream_buffer_maxsize=1_000_000 if options["kind"] == "join" else 4_096,
    )
    texts = {"key_type": str, "value_type": str, "key_serializer": "raw", "value_serializer": "raw"}
    source = app.topic(options["input"], partitions=1, **texts)
    output = app.topic(options["output"], partitions=1, **texts)
    kind = options["kind"]
    if kind == "stateless":
        stateless(app, source, output)
    elif kind == "wordcount":
        wordcount(app, source, output)
    elif kind == "join":
        join(app, source, app.topic(options["table"], partitions=1, **texts), output)
    else:
        windowed(app, source, output, STEP_S if kind == "hopping" else None)
    threading.Thread(target=_await_end, daemon=True).start()
    app.finalize()
    worker = faust.Worker(app, loglevel="WARNING")
    worker.execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1:])
