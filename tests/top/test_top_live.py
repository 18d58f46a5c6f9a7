"""`odradek top` on a broker: the command on a pseudo-terminal, and one group by the pilot."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.admin.client import AdminClient
from odradek.broker_process import BrokerProcess
from odradek.commands.session import parse_bootstrap
from odradek.console.group_pages import group_detail
from odradek.console.sampler import ClusterSampler
from odradek.top.app import ClusterTop
from tests.commands.running import TIMEOUT_S, Running
from tests.support.eventually import eventually, eventually_async
from tests.support.terminal import Terminal
from tests.top.panes import SIZE, rows

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

    def connect() -> AdminClient:
        return AdminClient(parse_bootstrap(odradek_broker.bootstrap))

    def read(group_id: str) -> object:
        with connect() as client:
            return group_detail(client, group_id)

    sampler = ClusterSampler(connect)
    assert sampler.refresh() is not None, sampler.history.error
    app = ClusterTop(sampler.history, read)  # type: ignore[arg-type]
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("4")
        assert rows(app, "groups") == [["billing", "Empty", "classic", "0", "1", "6", "0"]]
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await eventually_async(lambda: "lag 6" in str(app.screen.query_one("#about").render()))
    sampler.close()
