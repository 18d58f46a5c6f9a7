"""The programs, and the output of each against Apache Kafka 3.9.2.

A program gets the broker's address, the prefix of its topics' names and their number of replicas. Its transcript is the
same on one broker and on three.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients.toolchain import go_command, java_command, node_command
from tests.jvm.process import run_java

TRANSCRIPTS: Final = Path(__file__).parent / "transcripts"
TIMEOUT_S: Final = 600.0
"""Longer than a walk that makes progress takes, however slow the machine: one that stops prints where within
`DEADLINE_S`.
"""


class Walk(NamedTuple):
    """One program and its command; `command` raises toolchain.AbsentError where it is not available."""

    name: str
    command: Callable[[], list[str]]

    def run(self, bootstrap: str, replication: int) -> list[str]:
        """Its output. Raises ToolError, with that, if it ends with an error."""
        stem = f"walk-{uuid.uuid4().hex[:12]}"
        done = run_java([*self.command(), bootstrap, stem, str(replication)], timeout_s=TIMEOUT_S)
        return done.stdout.splitlines()

    def expected(self) -> list[str]:
        """Its output on Apache Kafka 3.9.2."""
        return (TRANSCRIPTS / f"{self.name}.txt").read_text().splitlines()


def _sarama(version: str) -> Walk:
    return Walk(f"sarama-{version}", lambda: [*go_command("sarama"), version])


def _java(release: str) -> Walk:
    return Walk(f"java-{release}", lambda: java_command(release, "Walk"))


def _python(library: str) -> Walk:
    program = Path(__file__).parent / "python" / f"walk_{library.replace('-', '_')}.py"
    return Walk(library, lambda: [sys.executable, str(program)])


WALKS: Final = (
    _python("confluent"),
    _python("aiokafka"),
    _python("kafka-python"),
    Walk("franz", lambda: go_command("franz")),
    _sarama("0.10.2.0"),
    _sarama("0.11.0.0"),
    _sarama("1.1.0"),
    _sarama("4.3.0"),
    Walk("kafkajs", lambda: node_command("kafkajs.js")),
    _java("2.8.2"),
    _java("3.9.2"),
    _java("4.3.0"),
)
# A walk with KIP-848, which Kafka 3.9 with ZooKeeper does not have.
NEWEST: Final = Walk("franz-consumer", lambda: go_command("franz-consumer"))
