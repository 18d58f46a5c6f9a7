"""The word counts of `tests.streams.counting` as a process that prints its states, and ends cleanly at SIGTERM.

python -m tests.streams.apps.words '{"application.id": "counts", "bootstrap.servers": "localhost:9092", ...}'
"""

from __future__ import annotations

import json
import logging
import signal
import sys

from odradek.streams.runtime import KafkaStreams, State
from tests.streams.counting import word_counts

CLOSE_S = 30.0


def main(arguments: list[str]) -> int:
    """Run until SIGTERM. The status is 0 if the application ends well."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(message)s")
    logging.getLogger("odradek.streams.running.client").setLevel(logging.WARNING)  # librdkafka on each try to connect
    # The main thread waits for the signal itself, and the others, which inherit this, cannot receive it. With a handler
    # the system may interrupt another thread, and Python runs the handler only when the main thread ends its wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    streams = KafkaStreams(
        word_counts(),
        json.loads(arguments[0]),
        state_listener=lambda state, before: print(state.name, flush=True),
    )
    streams.start()
    signal.sigwait({signal.SIGTERM})
    streams.close(CLOSE_S, leave_group=True)
    return 0 if streams.state is State.NOT_RUNNING else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
