"""What the client programs need, ahead of the tests.

python -m tests.clients fetch            modules, packages and builds, into the user's cache; quick when all is there
python -m tests.clients record [NAME …]  run the programs against Apache Kafka 3.9.2 and keep what they print

A toolchain that is missing is no error: the tests that need it are skipped with a reason.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.clients.toolchain import AbsentError, kaskade_command
from tests.clients.walks import TRANSCRIPTS, WALKS
from tests.jvm.cache import FetchError
from tests.jvm.kafka import running_kafka


def fetch() -> int:
    """Get and build everything that is available here; the status is 1 when something that is here fails."""
    started = time.monotonic()
    missing: dict[str, None] = {}
    try:
        for command in (*(walk.command for walk in WALKS), kaskade_command):
            try:
                command()
            except AbsentError as absent:
                missing[str(absent)] = None
    except (FetchError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for reason in missing:
        print(f"without some clients: {reason}")
    print(f"client programs ready in {time.monotonic() - started:.1f} s")
    return 0


def record(names: list[str]) -> int:
    """Write the transcripts of `names` (of all, if there are none)."""
    with running_kafka(Path(tempfile.mkdtemp())) as kafka:
        for walk in WALKS:
            if not names or walk.name in names:
                lines = walk.run(kafka.bootstrap, 1)
                (TRANSCRIPTS / f"{walk.name}.txt").write_text("".join(f"{line}\n" for line in lines))
                print(f"{walk.name}: {len(lines)} lines")
    return 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["fetch"]:
            return fetch()
        case ["record", *names]:
            return record(names)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
