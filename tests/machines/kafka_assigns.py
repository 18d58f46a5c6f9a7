"""The assignments of Apache Kafka's own server-side assignors: many requests, one process.

Requests and responses are lines, explained at the head of KafkaAssigns.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.broker.group.state.consumer_assignors import Assignment, MemberSpec
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

RELEASE = "4.3.0"
TIMEOUT_S = 120


class Question(NamedTuple):
    """The assignor, and its input; ids of topics are small numbers."""

    assignor: str
    members: Mapping[str, MemberSpec]
    counts: Mapping[bytes, int]

    def line(self) -> str:
        topics = ",".join(f"{_number(topic)}={count}" for topic, count in self.counts.items()) or "-"
        members = [
            "/".join(
                [
                    member_id,
                    spec.instance_id or "-",
                    ",".join(map(_number, spec.topics)) or "-",
                    text(spec.owned) or "-",
                ]
            )
            for member_id, spec in self.members.items()
        ]
        return " ".join([self.assignor, topics, *members])


def topic_id(number: int) -> bytes:
    """The id of a topic."""
    return number.to_bytes(16, "big")


def text(assignment: Assignment) -> str:
    """An assignment in the form of requests and responses."""
    return ",".join(
        f"{_number(topic)}:{index}" for topic, indexes in sorted(assignment.items()) for index in sorted(indexes)
    )


def ask(questions: Sequence[Question]) -> list[dict[str, str]]:
    """For each request the partitions that Kafka assigns to each member. Raises ToolError."""
    program = str(Path(__file__).with_name("KafkaAssigns.java"))
    command = java_command(RELEASE, program, [], [*QUICK_START, *QUIET])
    lines = "".join(f"{question.line()}\n" for question in questions)
    answers = run_java(command, stdin=lines, timeout_s=TIMEOUT_S).stdout.splitlines()
    return [dict(word.split("/", 1) for word in answer.split(" ")) for answer in answers]


def _number(topic: bytes) -> str:
    return str(int.from_bytes(topic, "big"))
