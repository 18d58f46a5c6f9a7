"""An application on odradek.streams as a process, to be measured: streams_topologies.py with KafkaStreams.

    python -m tests.benchmarks.streams_ours kind=wordcount input=… output=… table=… application.id=… …

The counterpart of StreamsLoad.java: names with a dot go to the configuration. It prints RUNNING when it begins to read,
and how long a restoration took; it ends with its standard input.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from odradek.streams.running.restoration import RestoreListener
from odradek.streams.runtime import KafkaStreams, State
from tests.benchmarks.streams_topologies import build


class Restoration(RestoreListener):
    """Prints how long a restoration took."""

    def __init__(self) -> None:
        self._began = 0.0

    def on_restore_start(self, changelog: tuple[str, int], store: str, start: int, end: int) -> None:
        """A restoration begins."""
        self._began = time.perf_counter()

    def on_restore_end(self, changelog: tuple[str, int], store: str, total: int) -> None:
        """A restoration ends."""
        print(f"RESTORED {total} {time.perf_counter() - self._began}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run until standard input ends."""
    options: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        (config if "." in name else options)[name] = value

    def tell(state: State, before: State) -> None:
        print(state.name, flush=True)
        if state is State.ERROR:
            print(f"ended by {streams.failure!r}", file=sys.stderr, flush=True)
            os._exit(1)

    streams = KafkaStreams(
        build(options["kind"], options["input"], options["output"], options["table"]),
        config,
        state_listener=tell,
        restore_listener=Restoration(),
    )
    streams.start()
    sys.stdin.read()
    streams.close(20)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
