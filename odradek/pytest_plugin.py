"""The pytest plugin of Odradek: a real broker for a test, in a process of its own.

    def test_orders(odradek_broker):
        producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})

It comes with `pip install odradek`; nothing needs to be switched on. Each test gets a broker of its own, on a free
port, with its data in a temporary folder, and the broker is gone when the test is. A test that fails shows the broker's
log under "Captured broker log teardown".

- `odradek_broker` is one running broker.
- `odradek_broker_factory` makes several, or one with other properties:
  `odradek_broker_factory({"auto.create.topics.enable": "false"})`.

Both give `odradek.broker_process.BrokerProcess`: bootstrap, host, port, data_dir, pid, output, start(), stop(), kill(),
restart(), pause(), resume().
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:  # every test run of a user imports this module, few of them start a broker
    from odradek.broker_process import BrokerProcess


class BrokerFactory(Protocol):
    """Makes brokers that end with the test."""

    def __call__(self, overrides: Mapping[str, str] | None = None, *, start: bool = True) -> BrokerProcess:
        """A broker with `overrides`, properties by Kafka's names; each is a cluster of its own.

        Without `start` it is left for the test to start. Raises BrokerError when it does not come up.
        """


@pytest.fixture
def odradek_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """Makes brokers for this test: `factory()`, or `factory({"num.partitions": "3"})`."""
    from odradek.broker_process import BrokerProcess

    brokers: list[BrokerProcess] = []

    def make(overrides: Mapping[str, str] | None = None, *, start: bool = True) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("odradek"), overrides)
        brokers.append(broker)
        if start:
            broker.start()
        return broker

    yield make
    try:
        _end(brokers)
    finally:
        for broker in brokers:
            request.node.add_report_section("teardown", "broker log", f"{broker.log_path}\n{broker.output}")


@pytest.fixture
def odradek_broker(odradek_broker_factory: BrokerFactory) -> BrokerProcess:
    """A running broker with an empty data folder; see `odradek.broker_process.BrokerProcess`."""
    return odradek_broker_factory()


def _end(brokers: list[BrokerProcess]) -> None:
    """End every broker, whatever becomes of the others, and then report the first that did not end well."""
    failure: AssertionError | None = None
    for broker in brokers:
        try:
            broker.close()
        except AssertionError as error:
            failure = failure or error
    if failure is not None:
        raise failure
