"""kafka-topics of three releases: every action and option, printed as against Apache Kafka 3.9.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.side_by_side import Sides, Tools, assert_the_same, both
from tests.jvm.kafka import Kafka
from tests.jvm.tools import VERSIONS

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("topics-tool"), kafka) as running:
        yield running


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_created_grown_described_and_deleted(sides: Sides, topic: str, version: str) -> None:
    def scenario(tools: Tools) -> None:
        def topics(*arguments: str) -> list[str]:
            return tools("kafka-topics", *arguments, unordered="--describe" in arguments)

        plain, placed = ("--topic", topic), ("--topic", f"{topic}.placed")
        settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
        topics("--create", *plain, "--partitions", "3", "--replication-factor", "1", *settings)
        topics("--create", *placed, "--replica-assignment", "0,0", "--config", "min.insync.replicas=2")
        topics("--create", "--topic", f"{topic}-defaults")
        topics("--create", *plain)
        topics("--create", *plain, "--if-not-exists")
        topics("--create", "--topic", f"{topic}_placed")  # collides with the dot
        topics("--create", "--topic", f"{topic}-wrong", "--config", "retention.ms=soon")
        topics("--create", "--topic", f"{topic}-wrong", "--config", "no.such.setting=1")
        topics("--create", "--topic", f"{topic}-wrong", "--partitions", "0")
        topics("--create", "--topic", f"{topic}-wrong", "--replication-factor", "2")
        topics("--create", "--topic", f"{topic}-wrong", "--replica-assignment", "0,0:0")
        topics("--create", "--topic", "no/such name")
        topics("--create", "--topic", "n" * 250)

        topics("--describe", *plain)
        topics("--describe", "--topic", f"{topic}.*")
        topics("--describe", "--topic", f"{topic}.*", "--topics-with-overrides")
        for kind in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
            topics("--describe", "--topic", f"{topic}.*", f"--{kind}-partitions")
        topics("--list", "--topic", f"{topic}.*")
        topics("--list", "--topic", f"{topic}[.-].*", "--exclude-internal")

        topics("--alter", *plain, "--partitions", "5")
        topics("--alter", *placed, "--partitions", "3", "--replica-assignment", "0,0,0")
        topics("--alter", *plain, "--partitions", "5")
        topics("--alter", *plain, "--partitions", "4")
        topics("--alter", *placed, "--partitions", "4", "--replica-assignment", "0,0,0,9")
        topics("--alter", "--topic", f"{topic}-none", "--partitions", "5")
        topics("--alter", "--topic", f"{topic}-none", "--partitions", "5", "--if-exists")
        topics("--describe", "--topic", f"{topic}.*")

        topics("--delete", *placed)
        topics("--delete", *placed)
        topics("--delete", *placed, "--if-exists")
        topics("--describe", *placed)
        topics("--describe", *placed, "--if-exists")
        topics("--delete", "--topic", f"{topic}.*")
        topics("--list", "--topic", f"{topic}.*")

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert f"Created topic {topic}." in transcript
    assert "Partition: 4\tLeader: 0\tReplicas: 0\tIsr: 0" in transcript
