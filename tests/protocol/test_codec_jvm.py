"""Kafka's own classes read messages of Odradek and write the same bytes again: every message and version of two
releases.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.protocol import messages
from odradek.protocol.classes import BaseMessage
from tests.jvm.process import QUICK_START, java_command
from tests.protocol.jar_differences import DIFFERENT, OTHER_VERSIONS, OWN_FIELDS, RENAMED, TAGS, is_ours, our_version
from tests.protocol.kafka_definitions import RELEASES, Json, definitions, versions
from tests.protocol.samples import Nulls, sample

KINDS: tuple[Nulls, ...] = ("none", "all", "some", "some")
"""The kinds of objects of each message and version, besides the one of defaults."""

PACKAGES = {
    "request": "org.apache.kafka.common.message.{name}Data",
    "response": "org.apache.kafka.common.message.{name}Data",
    "header": "org.apache.kafka.common.message.{name}Data",
    "data": "org.apache.kafka.common.message.{name}",
}
REFUSALS = (
    "!org.apache.kafka.common.errors.UnsupportedVersionException",  # the version has no such field
    "!java.lang.NullPointerException",  # or no null for it
)
COORDINATORS = {
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated.{name}",
    "": "org.apache.kafka.coordinator.group.generated.{name}",
}


def java_class(definition: Json) -> str:
    """The class that Kafka's build generates from a definition."""
    name = definition["name"]
    if name.endswith(("Key", "Value")):
        return next(place for start, place in COORDINATORS.items() if name.startswith(start)).format(name=name)
    return PACKAGES[definition["type"]].format(name=name)


class Case(NamedTuple):
    """Bytes of a message in one version, and the expected bytes in another; None for a refusal."""

    java: str
    version: int
    to_version: int
    data: str
    expected: str | None


def cases(release: str) -> Iterator[Case]:
    """Each message from each version to itself, and from the newest and the oldest to each: plain, full and sparse."""
    rng = random.Random(20)
    for name, definition in sorted(definitions(release).items()):
        if not is_ours(name):
            continue
        valid = versions(definition["validVersions"])
        known, _ = OTHER_VERSIONS.get((release, name), (valid, ""))
        both = valid & known
        # A release cannot drop tags that are unknown to it.
        newer_tags = any(key[:2] == (release, name) and reason == TAGS for key, reason in DIFFERENT.items())
        ends = () if newer_tags else (both.first, both.last)
        ours, java = RENAMED.get(name, name), java_class(definition)
        for version in both:
            mine = our_version(definition, version)
            values = [sample(ours, mine, rng, nulls=nulls, without=own_tags(ours)) for nulls in KINDS]
            for value in (getattr(messages, ours)(), *values):
                for other in both if version in ends else [version]:
                    expected = written(value, our_version(definition, other))
                    yield Case(java, version, other, value.encode(mine).hex(), expected)
            if own_tags(ours):
                data = sample(ours, mine, rng, nulls="none").encode(mine).hex()
                yield Case(java, version, version, data, data)


def own_tags(name: str) -> set[str]:
    """Tagged fields of Odradek's own, which Kafka could not drop in a version that has no tags."""
    own = {path for message, path in OWN_FIELDS if message == name}
    return {path.rpartition(".")[2] for path in own if path.rpartition(".")[0] not in own}


def written(value: BaseMessage, version: int) -> str | None:
    """The bytes of a message in a version, in hex; None where it cannot be written."""
    try:
        return value.encode(version).hex()
    except ValueError:
        return None


@pytest.mark.jvm
@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_messages_of_odradek_and_writes_the_same(release: str) -> None:
    given = list(cases(release))
    program = str(Path(__file__).with_name("Recode.java"))
    run = subprocess.run(
        java_command(release, program, [], [*QUICK_START, "-Xmx512m"]),
        input="".join(f"{case.java} {case.version} {case.to_version} {case.data}\n" for case in given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    answers = run.stdout.splitlines()
    assert len(answers) == len(given)
    wrong = [
        (case, answer)
        for case, answer in zip(given, answers, strict=True)
        if answer != case.expected and not (case.expected is None and answer.startswith(REFUSALS))
    ]
    assert wrong == []
    assert sum(case.expected is None for case in given) > 100
