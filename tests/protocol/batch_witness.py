"""Record batches in Kafka 3.9.2's own classes, with many requests in one JVM (tests/jvm/BatchWitness.java)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.protocol.batch import Record
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

_SOURCE = Path(__file__).parent.parent / "jvm" / "BatchWitness.java"


def ask(questions: Sequence[str]) -> list[str]:
    """The responses, one for each request."""
    # Output over 256 MB of records is not requested; the heap holds all responses until the end.
    command = java_command("3.9.2", str(_SOURCE), [], [*QUICK_START, "-Xmx768m", *QUIET])
    answers = run_java(command, stdin="".join(f"{question}\n" for question in questions), timeout_s=120)
    lines = answers.stdout.splitlines()
    assert len(lines) == len(questions), answers.stderr
    return lines


def as_text(record: Record) -> str:
    """A record in the witness's format."""
    headers = "".join(f"{_bytes_as_text(name.encode())}:{_bytes_as_text(value)};" for name, value in record.headers)
    key, value = _bytes_as_text(record.key), _bytes_as_text(record.value)
    return f"{record.offset},{record.timestamp_ms},{key},{value},{headers}"


def _bytes_as_text(content: bytes | None) -> str:
    return "-" if content is None else f"x{content.hex()}"
