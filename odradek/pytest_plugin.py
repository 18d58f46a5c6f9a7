"""The pytest plugin of Odradek: a real broker for a test, in a process of its own, or a cluster of several.

    def test_orders(odradek_broker):
        producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})

It comes with every install of Odradek; no configuration is required. Each test gets a broker of its own, on a free
port, with its data in a temporary folder, and the broker ends with the test. A test that fails shows the broker's
log under "Captured broker log teardown".

- `odradek_broker` is one running broker.
- `odradek_broker_factory` makes several, or one with other properties:
  `odradek_broker_factory({"auto.create.topics.enable": "false"})`.

Both give `odradek.broker_process.BrokerProcess`: bootstrap, host, port, data_dir, pid, output, start(), stop(), kill(),
restart(), pause(), resume().

Either with `security` has TLS, users and ACLs, and the configuration of a client for each user:

    @pytest.mark.odradek_broker(security="tls+scram")
    def test_login(odradek_broker):
        producer = Producer(odradek_broker.client_config("alice"))

- `odradek_cluster` makes replicated clusters, each with a registry of its own, in about a second:

    def test_failover(odradek_cluster):
        cluster = odradek_cluster(brokers=3, min_insync_replicas=2)
        run_my_pipeline(cluster.bootstrap_servers)
        cluster.kill(cluster.leader_of("orders", 0))

It gives `odradek.cluster_process.ClusterProcess`: bootstrap_servers, brokers, kill(), stop(), restart(), pause(),
resume(), cut(), isolate(), heal(), controller(), leader_of(), await_leader(), isr_of(), await_isr(), await_brokers(),
await_topic().

Stream applications are tested without a broker:

    def test_totals(streams_driver, assert_topology_matches):
        driver = streams_driver(topology)
        driver.topic("orders").send("anna", {"country": "CZ", "total": 30})
        assert driver.read("revenue") == [("CZ", 30)]
        assert_topology_matches(topology, "golden/revenue.txt")

- `streams_driver` makes drivers that end with the test: `odradek.streams.testing.StreamsDriver`.
- `assert_topology_matches` compares a topology with its text in a file beside the test; `pytest --update-golden` writes
  the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:  # every test run imports this module, few of them start a broker
    from odradek.broker_process import BrokerProcess
    from odradek.cluster_process import ClusterProcess
    from odradek.security import Security
    from odradek.streams.testing import StreamsDriver
    from odradek.streams.testing.driver import TestedApplication


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of golden topologies."""
    with contextlib.suppress(ValueError):  # another plugin has an option of this name, and the same meaning
        parser.getgroup("odradek").addoption(
            "--update-golden", action="store_true", help="write the files of assert_topology_matches"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "odradek_broker(overrides, security): how the fixture odradek_broker starts")


class BrokerFactory(Protocol):
    """Makes brokers that end with the test."""

    def __call__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        security: Security | str | None = None,
        start: bool = True,
    ) -> BrokerProcess:
        """A broker with `overrides`, properties with Kafka's names; each is a cluster of its own.

        `security` is a text as "tls+scram", or `odradek.security.Security`. Without `start` the test has to start it.
        Raises BrokerError when it does not become ready.
        """


class ClusterFactory(Protocol):
    """Makes clusters that end with the test."""

    def __call__(
        self,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        racks: Sequence[str] = (),
        zookeeper: str | None = None,
        security: Security | str | None = None,
        start: bool = True,
        **properties: object,
    ) -> ClusterProcess:
        """A cluster of brokers 1 to `brokers`.

        Properties of every broker come by Kafka's names in `overrides`, or with underscores in place of dots:
        min_insync_replicas=2. `racks` go round. `zookeeper` is host:port/chroot of a real one in place of the cluster's
        own registry. `security` is a text as "tls+scram", or `odradek.security.Security`. Raises BrokerError when it
        does not come up.
        """


@pytest.fixture
def odradek_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """Makes brokers for this test: `factory()`, or `factory({"num.partitions": "3"})`."""
    from odradek.broker_process import BrokerProcess

    brokers: list[BrokerProcess] = []

    def make(
        overrides: Mapping[str, str] | None = None,
        *,
        security: Security | str | None = None,
        start: bool = True,
    ) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("odradek"), overrides, security=security)
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
def odradek_broker(request: pytest.FixtureRequest, odradek_broker_factory: BrokerFactory) -> BrokerProcess:
    """A running broker with an empty data folder; see `odradek.broker_process.BrokerProcess`.

    `@pytest.mark.odradek_broker(overrides=…, security=…)` takes the arguments of the factory.
    """
    marker = request.node.get_closest_marker("odradek_broker")
    return odradek_broker_factory(*marker.args, **marker.kwargs) if marker is not None else odradek_broker_factory()


@pytest.fixture
def odradek_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes replicated clusters for this test: `odradek_cluster()`, or `odradek_cluster(5, num_partitions=3)`."""
    from odradek.cluster_process import ClusterProcess

    clusters: list[ClusterProcess] = []

    def make(
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        racks: Sequence[str] = (),
        zookeeper: str | None = None,
        security: Security | str | None = None,
        start: bool = True,
        **properties: object,
    ) -> ClusterProcess:
        named = {name.replace("_", "."): _as_property(value) for name, value in properties.items()}
        folder = tmp_path_factory.mktemp("odradek-cluster")
        merged = {**named, **(overrides or {})}
        cluster = ClusterProcess(folder, brokers, merged, racks=racks, zookeeper=zookeeper, security=security)
        clusters.append(cluster)
        if start:
            cluster.start()
        return cluster

    yield make
    try:
        _end(clusters)
    finally:
        for cluster in clusters:
            request.node.add_report_section("teardown", "cluster log", cluster.output)


def _as_property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _end(processes: Sequence[BrokerProcess | ClusterProcess]) -> None:
    """End every one, also after errors of others, and then raise the first error."""
    failure: AssertionError | None = None
    for process in processes:
        try:
            process.close()
        except AssertionError as error:
            failure = failure or error
    if failure is not None:
        raise failure


class StreamsDriverFactory(Protocol):
    """Makes drivers of stream applications that end with the test."""

    def __call__(
        self, application: TestedApplication, config: Mapping[str, Any] | None = None, start: int | datetime = 0
    ) -> StreamsDriver:
        """A driver of a Topology, a StreamsBuilder, or a function that returns one.

        `config` contains properties of the application. `start` is the driver's first time, in ms since the epoch or a
        datetime. Raises StreamsError for a topology that cannot run.
        """


class TopologyAssertion(Protocol):
    """Compares topologies with files."""

    def __call__(self, application: TestedApplication, golden: str | Path) -> None:
        """The topology has the text of the file `golden`, relative to the folder of the test. Raises AssertionError
        with the difference and what it means for a running application.
        """


@pytest.fixture
def streams_driver() -> Iterator[StreamsDriverFactory]:
    """Makes drivers of stream applications for this test: `streams_driver(topology)`. They need no broker."""
    from odradek.streams.testing import StreamsDriver

    with contextlib.ExitStack() as opened:

        def make(
            application: TestedApplication, config: Mapping[str, Any] | None = None, start: int | datetime = 0
        ) -> StreamsDriver:
            return opened.enter_context(StreamsDriver(application, config, start))

        yield make


@pytest.fixture
def assert_topology_matches(request: pytest.FixtureRequest) -> TopologyAssertion:
    """Compares a topology with a file: `assert_topology_matches(topology, "golden/app.txt")`."""
    from odradek.streams.supervisor.loading import topology_of
    from odradek.streams.testing import compare_with_golden

    update = bool(request.config.getoption("--update-golden"))

    def check(application: TestedApplication, golden: str | Path) -> None:
        __tracebackhide__ = True
        topology = topology_of(application, "the application")
        compare_with_golden(topology, request.path.parent / golden, update=update)

    return check
