"""Real clients of the consumer protocol (KIP-848): librdkafka and Java 4.3.0, alone, together, and with classic
members.

A group of them has to meet the conditions of test_groups: no record missed, none read twice after a clean leave. The
oracle's broker has no such protocol with ZooKeeper, so these run on Odradek only.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.pytest_plugin import BrokerFactory
from tests.compatibility.brokers import create_topic
from tests.compatibility.group_members import PARTITIONS, Group
from tests.jvm.tools import run_tool

JAVA = [pytest.mark.jvm, pytest.mark.slow]
TRIOS = [
    pytest.param(("confluent+consumer",) * 3, id="confluent", marks=pytest.mark.slow),
    pytest.param(("4.3.0+consumer",) * 3, id="java", marks=JAVA),
    pytest.param(("confluent+consumer", "4.3.0+consumer", "confluent+consumer"), id="both", marks=JAVA),
]


@pytest.fixture
def broker(odradek_broker_factory: BrokerFactory) -> BrokerProcess:
    return odradek_broker_factory(
        {
            "group.consumer.min.session.timeout.ms": "3000",
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "500",
        }
    )


@pytest.fixture
def consumers(broker: BrokerProcess, topic: str, group: str) -> Iterator[Group]:
    create_topic(broker, topic, PARTITIONS)
    running = Group(broker, group, topic)
    yield running
    running.close()


@pytest.mark.parametrize("kinds", TRIOS)
def test_members_join_leave_and_die(consumers: Group, kinds: tuple[str, str, str]) -> None:
    first, second, third = kinds
    consumers.join("first", first)
    consumers.settle_on("first")
    consumers.join("second", second)
    consumers.settle_on("first", "second")
    consumers.join("third", third)
    consumers.settle_on("first", "second", "third")

    consumers.leave("second")
    consumers.settle_on("first", "third")
    assert consumers.repeated() == []

    consumers.die("third")
    consumers.settle_on("first")
    assert set(consumers.repeated()) <= consumers.reads_of("third")

    before = set(consumers.repeated())
    consumers.leave("first")
    consumers.join("heir", first)
    consumers.settle_on("heir")
    assert set(consumers.repeated()) == before
    consumers.assert_nothing_missed()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("confluent", "confluent+consumer", id="confluent", marks=pytest.mark.slow),
        pytest.param("3.9.2", "4.3.0+consumer", id="java", marks=JAVA),
    ],
)
def test_a_group_moves_to_the_new_protocol_and_back_while_it_runs(
    broker: BrokerProcess, group: str, consumers: Group, old: str, new: str
) -> None:

    def kind() -> ConsumerGroupType:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found: ConsumerGroupType = admin.describe_consumer_groups([group])[group].result(30).type
        return found

    consumers.join("old", old)
    consumers.settle_on("old")
    assert kind() is ConsumerGroupType.CLASSIC
    consumers.join("new", new)
    consumers.settle_on("old", "new")
    assert kind() is ConsumerGroupType.CONSUMER
    broker.restart()
    consumers.settle_on("old", "new")
    consumers.leave("new")
    consumers.settle_on("old")
    assert kind() is ConsumerGroupType.CLASSIC
    consumers.join("new again", new)
    consumers.settle_on("old", "new again")
    consumers.leave("old")
    consumers.settle_on("new again")
    assert kind() is ConsumerGroupType.CONSUMER
    consumers.assert_nothing_missed()


def test_a_group_is_described_from_outside_and_its_offsets_stay(broker: BrokerProcess, topic: str, group: str) -> None:
    create_topic(broker, topic, 3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    while len(consumer.assignment()) < 3:
        consumer.poll(0.1)
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (member,) = described.members
    assert sorted(each.partition for each in member.assignment.topic_partitions) == [0, 1, 2]
    (listed,) = [each for each in admin.list_consumer_groups().result(30).valid if each.group_id == group]
    assert listed.type is ConsumerGroupType.CONSUMER
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(30)
    assert [each.group_id for each in admin.list_consumer_groups().result(30).valid] == []


@pytest.mark.jvm
@pytest.mark.slow
def test_kafkas_tools_read_the_group_and_its_records(
    broker: BrokerProcess, topic: str, group: str, consumers: Group
) -> None:
    consumers.join("a", "confluent+consumer")
    consumers.settle_on("a")
    shown = run_tool(
        "4.3.0",
        "kafka-consumer-groups",
        ["--bootstrap-server", broker.bootstrap, "--describe", "--group", group, "--members", "--verbose"],
    ).stdout
    assert topic in shown
    state = run_tool(
        "4.3.0",
        "kafka-consumer-groups",
        ["--bootstrap-server", broker.bootstrap, "--describe", "--group", group, "--state"],
    ).stdout
    assert "uniform" in state
    assert "Stable" in state
    consumers.leave("a")
    broker.stop()
    logs = sorted(str(path) for path in broker.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size)
    for release in ("3.9.2", "4.3.0"):
        dumped = run_tool(release, "kafka-dump-log", ["--offsets-decoder", "--files", ",".join(logs)]).stdout
        for kind in ('"type":"3"', '"type":"5"', '"type":"6"', '"type":"7"', '"type":"8"'):
            assert kind in dumped.replace(" ", ""), dumped
        assert group in dumped
        assert topic in dumped
