"""The applications of streams_topologies.py with quixstreams, run by an environment that has it (streams_fetch.py).

    PYTHON streams_quix.py kind=wordcount bootstrap=… application=… input=… output=… table=… state=… guarantee=… …

Counts are texts. It prints RUNNING at the first record, and ends with its standard input.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from quixstreams import Application
from quixstreams.models import Serializer

MINUTE = timedelta(minutes=1)


class Second(Serializer):
    """The text of a pair of key and value."""

    def __call__(self, value: tuple[str, str], ctx: Any) -> bytes:
        """Its bytes."""
        return value[1].encode()


def stateless(stream: Any, output: Any, first: Callable[[Any], bool]) -> None:
    """Filter, map values, map."""
    kept = stream.filter(first).filter(lambda value: value[0] != "0").apply(lambda value: value.upper())
    kept.to_topic(output, key=lambda value: value[:4])


def wordcount(stream: Any, output: Any, first: Callable[[Any], bool]) -> None:
    """Count by key."""

    def count(value: str, state: Any) -> str:
        total = state.get("count", 0) + 1
        state.set("count", total)
        return str(total)

    stream.filter(first).apply(count, stateful=True).to_topic(output)


def windowed(stream: Any, output: Any, first: Callable[[Any], bool], step: timedelta | None) -> None:
    """Count by key and window."""
    stream = stream.filter(first)
    if step is None:
        windows = stream.tumbling_window(MINUTE, grace_ms=MINUTE)
    else:
        windows = stream.hopping_window(MINUTE, step, grace_ms=MINUTE)
    counted = windows.count().current()
    notified = counted.apply(
        lambda row, key, timestamp, headers: (f"{_text(key)}@{row['start']}", str(row["value"])), metadata=True
    )
    notified.to_topic(output, key=lambda row: row[0])


def join(stream: Any, table: Any, output: Any, first: Callable[[Any], bool]) -> None:
    """Each record with the row of its key."""
    joined = stream.filter(first).join_asof(table, how="inner", on_merge=_merge, grace_ms=timedelta(days=1))
    joined.to_topic(output)


def _merge(value: str, row: str) -> str:
    return value[:40] + row


def _text(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def main(arguments: list[str]) -> None:
    """Run until standard input ends."""
    options = dict(argument.split("=", 1) for argument in arguments)
    application = Application(
        options["bootstrap"],
        consumer_group=options["application"],
        auto_offset_reset="earliest",
        commit_interval=float(options["commit_s"]),
        state_dir=options["state"],
        processing_guarantee=options["guarantee"],
        loglevel="WARNING",
        producer_extra_config={"linger.ms": 100},  # as Kafka Streams has it
    )
    source = application.topic(options["input"], key_deserializer="str", value_deserializer="str")
    serializer = Second() if options["kind"] in ("tumbling", "hopping") else "str"
    output = application.topic(options["output"], key_serializer="str", value_serializer=serializer)
    stream = application.dataframe(source)
    notified = False

    def first(_: Any) -> bool:
        nonlocal notified
        if not notified:
            notified = True
            print("RUNNING", flush=True)
        return True

    kind = options["kind"]
    if kind == "stateless":
        stateless(stream, output, first)
    elif kind == "wordcount":
        wordcount(stream, output, first)
    elif kind == "join":
        rows = application.topic(options["table"], key_deserializer="str", value_deserializer="str")
        join(stream, application.dataframe(rows), output, first)
    else:
        windowed(stream, output, first, timedelta(seconds=20) if kind == "hopping" else None)

    def await_end() -> None:
        sys.stdin.read()
        application.stop()

    threading.Thread(target=await_end, daemon=True).start()
    application.run()


if __name__ == "__main__":
    main(sys.argv[1:])
