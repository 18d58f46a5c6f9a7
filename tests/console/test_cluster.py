"""The data layer on a broker of Odradek and on Apache Kafka 3.9.2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import Consumer, Producer

from odradek.admin import topics
from odradek.admin.client import AdminClient
from odradek.admin.configs import ResourceKind
from odradek.commands.session import parse_bootstrap
from odradek.console.config_pages import OWN, change_config, configs_page, described_configs
from odradek.console.group_pages import group_detail, groups_page, plan_of_reset, reset_offsets
from odradek.console.messages import RecordBrowser, RecordQuery
from odradek.console.overview import overview_of
from odradek.console.paging import Listing
from odradek.console.sampler import ClusterSampler
from odradek.console.timeline import ChangeKind
from odradek.console.topic_pages import topic_detail, topics_page
from odradek.console.transaction_pages import transaction_detail, transactions_page
from odradek.protocol.errors import KafkaError
from odradek.records.consumed import ConsumedRecord

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


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


def older_pages(browser: RecordBrowser, client: AdminClient, query: RecordQuery) -> list[ConsumedRecord]:
    """The newest records of a query, and those of the pages before them."""
    page = browser.browse(client, query)
    found = [*page.records]
    while page.older:
        page = browser.browse(client, replace(query, before=page.older))
        found += page.records
    return found


def test_records_are_browsed_filtered_continued_and_written(bootstrap: str, client: AdminClient, name: str) -> None:
    topics.create_topics(client, [topics.CreatableTopic(name, 2, 1)])
    browser = RecordBrowser({"bootstrap.servers": bootstrap})
    try:
        for number in range(8):
            place = browser.write(name, number % 2, b"k", f'{{"n":{number}}}'.encode(), [("source", b"test")])
            assert place == (f"{name}-{number % 2}", number // 2)
        newest = browser.browse(client, RecordQuery(name, limit=3))
        times = [each.timestamp for each in newest.records]
        assert times == sorted(times, reverse=True)
        assert {each.offset for each in newest.records} <= {2, 3}
        assert (len(times), newest.at_end) == (3, True)
        pages = older_pages(browser, client, RecordQuery(name, limit=3))
        assert (len(pages), {each.value for each in pages}) == (8, {b'{"n":%d}' % n for n in range(8)})
        first = browser.browse(client, RecordQuery(name, start="beginning", limit=3))
        assert len(first.records) == 3
        assert not first.at_end
        rest = browser.browse(client, RecordQuery(name, limit=50, positions=first.positions))
        assert {each.value for each in (*first.records, *rest.records)} == {b'{"n":%d}' % n for n in range(8)}
        assert rest.at_end
        assert browser.browse(client, RecordQuery(name, positions=rest.positions)).records == ()
        one = browser.browse(client, RecordQuery(name, partition=1, start="offset", amount=2))
        assert [(each.partition, each.offset) for each in one.records] == [(1, 2), (1, 3)]
        found = browser.browse(client, RecordQuery(name, start="beginning", where="value.n > 5"))
        assert {each.value for each in found.records} == {b'{"n":6}', b'{"n":7}'}
        assert found.scanned == 8
        assert len(browser.browse(client, RecordQuery(name, text='N":3')).records) == 1
        late = RecordQuery(name, start="time", amount=one.records[0].timestamp)
        assert {each.value for each in browser.browse(client, late).records} >= {b'{"n":7}'}
        record = browser.record_at(client, (name, 1), 3)
        assert record is not None
        assert (record.value, record.headers) == (b'{"n":7}', (("source", b"test"),))
        assert browser.record_at(client, (name, 1), 4) is None
        internal = browser.browse(client, RecordQuery("__consumer_offsets", limit=5))
        assert all(each.key is None or each.key.startswith(b"{") for each in internal.records)
    finally:
        browser.close()


def test_a_search_for_the_newest_reads_no_more_than_it_needs(
    bootstrap: str, client: AdminClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds is what a search through all records finds, with partitions of different pace."""
    monkeypatch.setattr("odradek.console.messages.WINDOWS", (20, 100, 20_000))
    topics.create_topics(client, [topics.CreatableTopic(name, 3, 1)])
    producer, draw, now_ms = Producer({"bootstrap.servers": bootstrap}), Random(5), 1_700_000_000_000
    written = [(now_ms + number, draw.choice("abcd"), min(draw.randrange(9), 2)) for number in range(500)]
    for timestamp, value, partition in written:
        producer.produce(name, value.encode(), partition=partition, timestamp=timestamp)
    assert producer.flush(30) == 0
    browser = RecordBrowser({"bootstrap.servers": bootstrap})
    try:
        for text, limit, most in (("a", 3, 150), ("b", 10, 499), ("c", 200, 500), ("e", 5, 500)):
            found = browser.browse(client, RecordQuery(name, text=text, limit=limit))
            wanted = [timestamp for timestamp, value, _ in reversed(written) if value == text][:limit]
            assert [each.timestamp for each in found.records] == wanted, text
            every = [timestamp for timestamp, value, _ in reversed(written) if value == text]
            assert [
                each.timestamp for each in older_pages(browser, client, RecordQuery(name, text=text, limit=limit * 4))
            ] == every
            assert (found.at_end, 0 < found.scanned <= most) == (True, True), found.scanned
        assert found.scanned == len(written)
    finally:
        browser.close()


def test_transactions_that_are_open_and_aborted_are_shown(bootstrap: str, client: AdminClient, name: str) -> None:
    topics.create_topics(client, [topics.CreatableTopic(name, 1, 1)])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    browser = RecordBrowser({"bootstrap.servers": bootstrap})
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, b"open")
        producer.flush(30)
        page = transactions_page(client, Listing(search=name), only_open=True)
        assert [(each.transactional_id, each.state) for each in page.listed.rows] == [(name, "Ongoing")]
        assert page.described[name].partitions == ((name, 0),)
        assert transaction_detail(client, name).state == "Ongoing"
        assert browser.browse(client, RecordQuery(name)).records == ()
        assert len(browser.browse(client, RecordQuery(name, read_committed=False)).records) == 1
        producer.abort_transaction(30)
        assert browser.browse(client, RecordQuery(name)).records == ()
    finally:
        browser.close()


def test_configs_are_shown_with_their_source_and_changed(client: AdminClient, name: str) -> None:
    topics.create_topics(client, [topics.CreatableTopic(name, 1, 1)])
    entries = described_configs(client, ResourceKind.TOPIC, name)
    assert all(each.documentation for each in entries)
    change_config(client, ResourceKind.TOPIC, name, "retention.ms", "60000")
    page = configs_page(described_configs(client, ResourceKind.TOPIC, name), Listing(), changed=True)
    assert ("retention.ms", "60000") in [(each.name, each.value) for each in page.rows if each.source in OWN]
    change_config(client, ResourceKind.TOPIC, name, "retention.ms", None)
    page = configs_page(described_configs(client, ResourceKind.TOPIC, name), Listing(), changed=True)
    assert not [each for each in page.rows if each.source in OWN]
    with pytest.raises(KafkaError):
        change_config(client, ResourceKind.TOPIC, name, "retention.ms", "soon")


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
