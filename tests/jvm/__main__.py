"""`python -m tests.jvm fetch` gets Java and the pinned jars ahead of the tests; quick when all is there."""

from __future__ import annotations

import sys
import time

from tests.jvm.archives import make_archives
from tests.jvm.cache import FetchError
from tests.jvm.jars import APICURIO, PINNED, fetch_all, unpacked
from tests.jvm.java import find_java
from tests.jvm.process import ToolError


def main(arguments: list[str]) -> int:
    if arguments != ["fetch"]:
        print("usage: python -m tests.jvm fetch", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        java = find_java(print)
        jars = fetch_all(print)
        make_archives(print)
        fetch_apicurio()
    except (FetchError, TimeoutError, EOFError, ToolError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"ready in {time.monotonic() - started:.1f} s: {java}, Kafka {', '.join(PINNED)} ({jars} jars)")
    return 0


def fetch_apicurio() -> None:
    """Only one file of tests needs it, and skips them with this reason."""
    try:
        unpacked(APICURIO, print)
    except FetchError as error:
        print(f"without Apicurio Registry: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
