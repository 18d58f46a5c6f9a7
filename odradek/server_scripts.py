"""`odradek-server-start` and `odradek-server-stop`, with the arguments of Kafka's kafka-server-start.sh and -stop.sh.

They are not installed under Kafka's names: those belong to the scripts of an Apache Kafka that may be on the PATH. A
clone has both in its folder bin, which is not on the PATH by default.
"""

from __future__ import annotations

import sys

from odradek.cli import main

_USAGE = "USAGE: {} [-daemon] server.properties [--override property=value]*"


def start() -> None:
    """kafka-server-start.sh: serve in the foreground, or with -daemon in the background."""
    arguments = sys.argv[1:]
    if not arguments:
        print(_USAGE.format("odradek-server-start"), file=sys.stderr)
        sys.exit(1)
    main(["broker", *arguments], prog_name="odradek")


def stop() -> None:
    """kafka-server-stop.sh: stop the broker that was started with -daemon and the same server.properties."""
    main(["stop", *sys.argv[1:]], prog_name="odradek")


if __name__ == "__main__":
    {"start": start, "stop": stop}[sys.argv.pop(1)]()
