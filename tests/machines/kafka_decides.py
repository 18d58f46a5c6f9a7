"""What Apache Kafka decides: its own classes for placement and elections, asked many questions in one process.

The questions and answers are lines, explained at the head of KafkaDecides.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

RELEASE = "3.9.2"
TIMEOUT_S = 120


def numbers(items: Iterable[int]) -> str:
    """A list as a word of a question or an answer."""
    return ",".join(map(str, items)) or "-"


def ask(questions: Sequence[str]) -> list[str]:
    """An answer for each question. Raises ToolError."""
    program = str(Path(__file__).with_name("KafkaDecides.java"))
    command = java_command(RELEASE, program, [], [*QUICK_START, *QUIET])
    answers = run_java(command, stdin="".join(f"{each}\n" for each in questions), timeout_s=TIMEOUT_S).stdout
    return answers.splitlines()
