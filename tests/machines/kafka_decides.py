"""Decisions of Apache Kafka: its own classes for placement and elections, with many requests in one process.

Requests and responses are lines, explained at the head of KafkaDecides.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

RELEASE = "3.9.2"
TIMEOUT_S = 120


def numbers(items: Iterable[int]) -> str:
    """A list as a word of a request or a response."""
    return ",".join(map(str, items)) or "-"


def ask(questions: Sequence[str]) -> list[str]:
    """A response for each request. Raises ToolError."""
    program = str(Path(__file__).with_name("KafkaDecides.java"))
    command = java_command(RELEASE, program, [], [*QUICK_START, *QUIET])
    answers = run_java(command, stdin="".join(f"{each}\n" for each in questions), timeout_s=TIMEOUT_S).stdout
    return answers.splitlines()
