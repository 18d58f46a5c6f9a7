"""The data layer on a broker of Odradek and on Apache Kafka 3.9.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from odradek.admin import topics
from odradek.admin.client import AdminClient
from odradek.broker_process import BrokerProcess
from odradek.commands.session import parse_bootstrap
from odradek.console.group_pages import group_detail, groups_page, plan_of_reset, reset_offsets
from odradek.console.overview import overview_of
from odradek.console.paging import Listing
from odradek.console.sampler import ClusterSampler
from odradek.console.timeline import ChangeKind
from odradek.console.topic_pages import topic_detail, topics_page
from odradek.protocol.errors import KafkaError
from tests.jvm.kafka import Kafka

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture(params=["odradek", "kafka"])
def bootstrap(request: pytest.FixtureRequest, ours: BrokerProcess) -> str:
    if request.param == "odradek":
        return ours.bootstrap
    running: Kafka = request.getfixturevalue("kafka")
    return running.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[AdminClient]:
    with AdminClient(parse_bootstrap(bootstrap)) as opened:
        yield opened


def produce(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode(), partition=partition)
    assert producer.flush(30) == 0


def commit(bootstrap: str, group_id: str, topic: str, count: int) -> None:
    """Read `count` records as a member of the group, commit, and leave."""
    config = {"bootstrap.servers": bootstrap, "group.id": group_id, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        read = 0
        while read < count:
            messages = consumer.consume(count - read, 30)
            assert messages, "the group reads nothing"
            read += len(messages)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_samples_become_pages_rates_lags_and_a_timeline(bootstrap: str, client: AdminClient, name: str) -> None:
    sampler = ClusterSampler(lambda: AdminClient(parse_bootstrap(bootstrap)))
    try:
        assert sampler.refresh() is not None, sampler.history.error
        topics.create_topics(client, [topics.CreatableTopic(name, 2, 1)])
        assert sampler.refresh() is not None, sampler.history.error
        produce(bootstrap, name, 10)
        commit(bootstrap, name, name, 4)
        sample = sampler.refresh()
        assert sample is not None, sampler.history.error
        sampler.refresh_disk()
    finally:
        sampler.close()
    history = sampler.history
    assert not sample.problems
    assert sample.ends[name, 0] == 10
    assert sample.groups[name].lag == 6
    assert sample.groups[name].partitions == 1
    (row,) = topics_page(history, Listing(search=name)).rows
    assert (row.partitions, row.replication_factor, row.under_replicated, row.records) == (2, 1, 0, 10)
    assert row.records_per_s is not None
    assert row.records_per_s > 0
    assert row.size_bytes
    (group_row,) = groups_page(history, Listing(search=name)).rows
    assert (group_row.state, group_row.members, group_row.lag) == ("Empty", 0, 6)
    kinds = [(each.kind, each.subject) for each in history.timeline.newest(subject=name)]
    assert (ChangeKind.TOPIC, name) in kinds
    assert (ChangeKind.GROUP, name) in kinds
    overview = overview_of(history)
    assert overview is not None
    assert overview.controller_id in sample.broker_ids
    assert name in [each.topic for each in overview.busiest]


def test_a_topic_and_a_group_are_described_and_the_group_is_reset_by_a_plan(
    bootstrap: str, client: AdminClient, name: str
) -> None:
    topics.create_topics(client, [topics.CreatableTopic(name, 2, 1)])
    produce(bootstrap, name, 5)
    produce(bootstrap, name, 3, partition=1)
    commit(bootstrap, name, name, 8)
    detail = topic_detail(client, name)
    assert [(part.start_offset, part.end_offset, part.problem) for part in detail.partitions] == [
        (0, 5, ""),
        (0, 3, ""),
    ]
    assert detail.records == 8
    assert detail.size_bytes
    found = group_detail(client, name)
    assert (found.lag, found.can_be_reset) == (0, True)
    plan = plan_of_reset(client, name, "shift", -2)
    changes = {place: each for place, each in plan.items() if not isinstance(each, KafkaError)}
    assert {place: (each.current, each.new) for place, each in changes.items()} == {
        (name, 0): (5, 3),
        (name, 1): (3, 1),
    }
    assert group_detail(client, name).lag == 0
    assert reset_offsets(client, name, changes) == dict.fromkeys(changes)
    assert group_detail(client, name).lag == 4


def test_a_topic_that_does_not_exist_is_an_error(client: AdminClient, name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_detail(client, name)
    assert caught.value.code.name == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_cluster_that_does_not_answer_is_noted() -> None:
    sampler = ClusterSampler(lambda: AdminClient([("127.0.0.1", 1)], timeout_s=1))
    assert sampler.refresh() is None
    assert sampler.history.error is not None
    assert "127.0.0.1:1" in sampler.history.error
    sampler.close()
