"""Kafka Connect 3.9.2 as the oracle: the headers and stages of dead letters, and the bytes of source offsets."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from odradek.streams.connectors.dead_letters import PREFIX, ErrorStage, dead_letter
from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.connectors.source_offsets import offset_key, offset_value
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

pytestmark = pytest.mark.jvm


def test_names_and_bytes_are_those_of_kafka_connect() -> None:
    program = Path(__file__).with_name("ConnectFormats.java")
    done = run_java(java_command("connect-3.9.2", str(program), [], [*QUICK_START, *QUIET]), timeout_s=60)
    found: dict[str, list[str]] = defaultdict(list)
    for line in done.stdout.splitlines():
        kind, _, text = line.partition(" ")
        found[kind].append(text)
    letter = dead_letter(
        SinkRecord("t", 0, 1, b"k", b"v", 2), ValueError("x"), ErrorStage.TASK_PUT, "dead", "name", executed="Sink"
    )
    names = {name for name, _ in letter.headers or []}
    assert names == {name for name in found["header"] if name != PREFIX}
    assert {stage.name for stage in ErrorStage} <= set(found["stage"])
    assert [offset_key("files", {"folder": "bär", "file": "a"}).decode("latin-1")] == found["key"]
    assert [offset_value({"position": 4711}).decode("latin-1")] == found["value"]
