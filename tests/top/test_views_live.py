"""The views of `odradek top` on Odradek and on Apache Kafka 3.9.2: each shows what the stock tool prints."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.console.workspace import ClusterWorkspace
from odradek.protocol.errors import KafkaError
from odradek.top.access_report import access_report
from odradek.top.app import ClusterTop
from odradek.top.broker_report import broker_report
from odradek.top.context import TopContext
from odradek.top.group_report import group_report
from odradek.top.log_reports import log_report, segment_report
from odradek.top.message_screen import MessageScreen
from odradek.top.topic_report import topic_report
from odradek.top.transaction_reports import transaction_report, transactions_report
from tests.commands.running import TIMEOUT_S, Running, described_topics, rows_of
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually
from tests.top.panes import SIZE, about, answer, context_of, report_rows, table_of

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

EVIL = "[red]evil[/red]"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("top"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture(params=["odradek", "kafka"])
def broker(request: pytest.FixtureRequest, ours: BrokerProcess, kafka: Kafka) -> BrokerProcess | Kafka:
    return ours if request.param == "odradek" else kafka


@pytest.fixture
def context(broker: BrokerProcess | Kafka) -> Iterator[TopContext]:
    workspace = ClusterWorkspace(broker.bootstrap, {}, interval_s=0.2, client_id="odradek-top")
    workspace.ensure()
    yield context_of(workspace, [broker.data_dir] if isinstance(broker, BrokerProcess) else [])
    workspace.close()


async def test_views_show_what_stock_tools_print(broker: BrokerProcess | Kafka, context: TopContext) -> None:
    side, name = Running(broker.bootstrap), f"top-{uuid.uuid4().hex[:8]}"
    side.done("topic", "create", name, "--partitions", "2", "--config", "retention.ms=3600000")
    side.produce(name, ["a", EVIL, '{"amount": 7}'], headers={"source": EVIL.encode()})
    topic = topic_report(context, name)
    stock = described_topics(side.stock("kafka-topics", "--describe", "--topic", name))[name]
    shown = table_of(topic, "partitions")
    assert [(int(row[0]), int(row[1]), row[3]) for row in shown] == [
        (each["partition"], each["leader"], str(each["replicas"][0])) for each in stock["partitions"]
    ]
    assert [row[6:8] for row in shown] == [["0", "3"], ["0", "0"]]
    assert ["retention.ms", "3600000", "this topic", "long", "yes"] in table_of(topic, "changed configs")

    leader = int(shown[0][1])
    values = re.findall(
        r"^  (\S+?)=(\S*) sensitive=false",
        side.stock("kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", str(leader)),
        re.MULTILINE,
    )
    configs = {row[0]: row[1] for row in table_of(broker_report(context, leader), "all configs")}
    assert len(values) > 100
    assert {key: configs[key] for key, _ in values} == {key: value or configs[key] for key, value in values}
    directories = side.stock("kafka-log-dirs", "--describe", "--broker-list", str(leader))
    for row in table_of(broker_report(context, leader), "log directories"):
        assert f'"logDir":"{row[0]}"' in directories

    side.done("user", "set", name, "--password-stdin", stdin="secret\n")
    (user,) = table_of(access_report(context), "users", name)
    assert user[0] == name
    assert "SCRAM-SHA-256" in user[1] or "SCRAM-SHA-512" in user[1]
    side.done("user", "delete", name, "--yes")
    with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
        table_of(access_report(context), "ACLs")

    app = ClusterTop(context)
    async with app.run_test(size=SIZE) as pilot:
        app.push_screen(MessageScreen(context, name))
        assert "3 of 3 that were read, up to the end" in await about(pilot)
        assert sorted(row[4] for row in report_rows(app)) == [EVIL, "a", '{"amount": 7}']
        await answer(pilot, "slash", "where:value.amount > 6")
        assert "search" in await about(pilot)
        assert [row[2] for row in report_rows(app)] == ["2"]
        await pilot.press("enter")
        assert '"amount": 7' in await about(pilot, "text")
        await pilot.press("w")
        assert "source" in await about(pilot, "text")


def test_an_open_transaction_and_a_group(broker: BrokerProcess | Kafka, context: TopContext) -> None:
    side, name = Running(broker.bootstrap), f"top-{uuid.uuid4().hex[:8]}"
    side.done("topic", "create", name, "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    report = transactions_report(context)
    (row,) = table_of(report, "open", name)
    (stock,) = [each for each in rows_of(side.stock("kafka-transactions", "list")) if each["TransactionalId"] == name]
    assert row[:4] == [name, stock["TransactionState"], stock["ProducerId"], stock["Coordinator"]]
    assert row[4] == "1"
    assert table_of(transaction_report(context, name), "partitions") == [[name, "0"]]
    assert table_of(report, "hanging", name) == []
    if isinstance(broker, BrokerProcess):
        (segment,) = table_of(log_report(context, 0, f"{name}-0"), "segments")
        (batch,) = table_of(segment_report(context, 0, f"{name}-0", int(segment[0])), "batches")
        assert batch[9:] == ["transactional", "holds"]
    producer.commit_transaction(TIMEOUT_S)
    eventually(lambda: table_of(report, "open", name), lambda rows: rows == [])

    side.done("group", "reset", name, "--topic", name, "--to-earliest", "--yes")
    lags = context.workspace.history.lags_of
    eventually(lambda: lags(name), lambda series: series is not None and len(series) > 1)
    group = group_report(context, name)
    (stock,) = rows_of(side.stock("kafka-consumer-groups", "--describe", "--group", name))
    (row,) = table_of(group, "partitions")
    assert row[:5] == [stock[key] for key in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    assert [row[::3] for row in table_of(topic_report(context, name), "groups")] == [[name, stock["LAG"]]]
    assert set(group.series) == {float(stock["LAG"])}
