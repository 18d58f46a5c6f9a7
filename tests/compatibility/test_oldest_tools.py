"""Console tools and kafka-topics of the oldest releases that Odradek serves: Kafka 0.10.2, 0.11, 1.1 and 2.2.

kafka-topics of 2.2 is the first that uses a broker; the others create topics in ZooKeeper. Each release's producer
writes to a topic that its own kafka-topics has created, plain and compressed; its own consumer reads that in a group,
whose offsets its kafka-consumer-groups shows. The next release reads it, too, so that clients of message sets read
record batches, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from odradek.cluster_process import ClusterProcess
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RELEASES: Final = ("0.10.2.2", "0.11.0.3", "1.1.1", "2.2.2")
# The classes behind the scripts: kafka-topics, kafka-console-producer, kafka-console-consumer, kafka-consumer-groups.
TOPICS: Final = "kafka.admin.TopicCommand"
PRODUCER: Final = "kafka.tools.ConsoleProducer"
CONSUMER: Final = "kafka.tools.ConsoleConsumer"
GROUPS: Final = "kafka.admin.ConsumerGroupCommand"
CODECS: Final = ("none", "lz4")
PARTITIONS: Final = 3
LINES: Final = 100
"""For each codec."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """One broker and the registry that it shares with the tools."""
    with ClusterProcess(tmp_path_factory.mktemp("oldest-tools"), 1) as running:
        yield running


def run_tool(release: str, tool: str, arguments: list[str], *, stdin: str = "") -> str:
    """The output of a tool, in a process of its own: these releases end their clients in hooks of the JVM."""
    return run_java(java_command(release, tool, arguments, [*QUICK_START, *QUIET]), stdin=stdin, timeout_s=60).stdout


def topic_of(release: str) -> str:
    return f"made-by-{release}"


def lines_of(release: str, codec: str) -> list[str]:
    return [f"key-{number}\t{release} {codec} {number}" for number in range(LINES)]


ALL_LINES: Final = {
    release: sorted(line for codec in CODECS for line in lines_of(release, codec)) for release in RELEASES
}


def at(release: str, cluster: ClusterProcess) -> list[str]:
    """The option that gives kafka-topics the address of the cluster."""
    if release == "2.2.2":
        return ["--bootstrap-server", cluster.bootstrap_servers]
    return ["--zookeeper", cluster.zookeeper_connect]


def make_topic(release: str, cluster: ClusterProcess) -> None:
    size = ["--partitions", str(PARTITIONS), "--replication-factor", "1"]
    run_tool(release, TOPICS, [*at(release, cluster), "--create", "--topic", topic_of(release), *size])
    cluster.await_topic(topic_of(release))


def write(release: str, cluster: ClusterProcess) -> None:
    keyed = ["--property", "parse.key=true", "--request-required-acks", "all"]
    where = ["--broker-list", cluster.bootstrap_servers, "--topic", topic_of(release)]
    for codec in CODECS:
        text = "".join(f"{line}\n" for line in lines_of(release, codec))
        run_tool(release, PRODUCER, [*where, *keyed, "--compression-codec", codec], stdin=text)


def read(release: str, cluster: ClusterProcess, topic: str, group: str) -> list[str]:
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"]
    how = ["--property", "print.key=true", "--consumer-property", f"group.id={group}"]
    ends = ["--max-messages", str(LINES * len(CODECS)), "--timeout-ms", "30000"]
    return sorted(run_tool(release, CONSUMER, [*where, *how, *ends]).splitlines())


@pytest.mark.parametrize("release", RELEASES)
def test_topics_producer_and_consumer_of_an_old_release(release: str, cluster: ClusterProcess) -> None:
    make_topic(release, cluster)
    described = run_tool(release, TOPICS, [*at(release, cluster), "--describe", "--topic", topic_of(release)])
    assert described.count("Leader: 1") == PARTITIONS, described
    write(release, cluster)
    assert read(release, cluster, topic_of(release), f"group-{release}") == ALL_LINES[release]
    asked = ["--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", f"group-{release}"]
    shown = [line.split() for line in run_tool(release, GROUPS, asked).splitlines()]
    # TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …: the reader has committed all of it and left.
    rows = [row for row in shown if row[:1] == [topic_of(release)]]
    assert len(rows) == PARTITIONS
    assert {row[4] for row in rows} == {"0"}
    assert sum(int(row[2]) for row in rows) == LINES * len(CODECS)
    # Records that a consumer of present batches, or of older message sets, has not written itself.
    other = RELEASES[(RELEASES.index(release) + 1) % len(RELEASES)]
    assert read(other, cluster, topic_of(release), f"group-{release}-{other}") == ALL_LINES[release]
