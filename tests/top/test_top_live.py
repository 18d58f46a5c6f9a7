"""`odradek top` on a broker: the command on a pseudo-terminal, and one group by the pilot."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.broker_process import BrokerProcess
from odradek.console.workspace import ClusterWorkspace
from odradek.top.app import ClusterTop
from tests.commands.running import TIMEOUT_S, Running
from tests.support.eventually import eventually
from tests.support.terminal import Terminal
from tests.top.panes import SIZE, about, context_of, report_rows, rows

pytestmark = pytest.mark.slow


def terminal_of(*arguments: str) -> Terminal:
    return Terminal([sys.executable, "-m", "odradek", *arguments])


def test_the_command_on_a_terminal(odradek_broker: BrokerProcess) -> None:
    side = Running(odradek_broker.bootstrap)
    side.done("topic", "create", "first-topic")
    with terminal_of("top", "-b", odradek_broker.bootstrap, "--interval", "0.1") as terminal:
        eventually(terminal.printed, lambda text: "controller" in text and "All is well" in text)
        terminal.press("2")
        eventually(terminal.printed, lambda text: "first-topic" in text)
        side.done("topic", "create", "second-topic")
        eventually(terminal.printed, lambda text: "second-topic" in text)
        terminal.press("6")
        eventually(terminal.printed, lambda text: "the topic was created" in text)
        terminal.press("q")
        assert terminal.process.wait(TIMEOUT_S) == 0, terminal.printed()
    with terminal_of("top", "-b", "127.0.0.1:1") as terminal:
        assert terminal.process.wait(TIMEOUT_S) == 5
        assert "no broker answers at 127.0.0.1:1" in terminal.printed()


async def test_a_group_with_lag(odradek_broker: BrokerProcess) -> None:
    Running(odradek_broker.bootstrap).done("topic", "create", "orders")
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
    for number in range(10):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": odradek_broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    consumer.close()

    workspace = ClusterWorkspace(odradek_broker.bootstrap, {}, interval_s=0.1)
    eventually(lambda: workspace.history.lags_of("billing"), lambda lags: lags is not None and len(lags) > 1)
    app = ClusterTop(context_of(workspace))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("4")
        assert rows(app, "groups") == [["billing", "Empty", "classic", "0", "1", "6", "0"]]
        await pilot.press("enter")
        assert "lag 6" in await about(pilot)
        assert report_rows(app)[0][:5] == ["orders", "0", "4", "10", "6"]
        await pilot.press("enter")
        assert "partition 0   from offset 4   6 of 6 that were read, up to the end" in await about(pilot)
        assert [row[4] for row in report_rows(app)] == ["4", "5", "6", "7", "8", "9"]
    workspace.close()
