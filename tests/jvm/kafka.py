"""Apache Kafka 3.9.2 with its ZooKeeper: the oracle of the tests, and the rival of the benchmarks.

3.9 is the last release with ZooKeeper mode, and the one whose layout in ZooKeeper and on disk Odradek follows. The
broker can be stopped, killed and started again; ZooKeeper stays.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.wire import Wire
from tests.jvm.gate import Gate
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, archive_options, java_command
from tests.jvm.zookeeper import START_TIMEOUT_S, VERSION, ZOOKEEPER_JVM, ZooKeeper, java_properties, shared_zookeeper
from tests.support.eventually import eventually

_METADATA_OF_OLD_RELEASES = 4
"""Kafka has it since 0.11."""

# bin/kafka-server-start.sh and bin/kafka-run-class.sh of the release: the options of a user's broker.
STOCK_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# Enough for a test, and a faster start.
SMALL_JVM = (*QUICK_START, "-Xmx512m")

_SMALL_BROKER = {
    "broker.id": "0",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
    # Its first try fails where it is the only broker, and it would wait 5 s for the next.
    "controlled.shutdown.retry.backoff.ms": "100",
}
_BROKER_LOGGER = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info"


class Kafka:
    """One broker, the first of a cluster in ZooKeeper. Nothing runs before `start`; `close` ends it.

    `properties` override the broker's; `jvm` are the options of the broker's Java. `data_dir` is its log directory.
    `zookeeper_jvm` are ZooKeeper's. With `zookeeper` the broker joins the cluster there.
    `version` is the release of both, a key of `tests.jvm.jars.PINNED`. One that is `gated` has a listener PEERS for
    brokers, and clients reach it when it has every topic (`gate`).
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
        zookeeper: str | None = None,
        zookeeper_jvm: tuple[str, ...] = ZOOKEEPER_JVM,
        *,
        gated: bool = False,
        version: str = VERSION,
    ) -> None:
        self._version = version
        self._folder = folder
        self._properties = dict(properties or {})
        self._jvm = jvm
        self._broker: BackgroundProcess | None = None
        self._outside = zookeeper
        # What is measured or traced, and the other releases, have a ZooKeeper for themselves.
        own = (version, jvm == STOCK_JVM, zookeeper_jvm) != (VERSION, False, ZOOKEEPER_JVM)
        self._own_zookeeper = ZooKeeper(folder / "zookeeper", version, zookeeper_jvm) if own and not zookeeper else None
        self._connect = self._own_zookeeper.connect if self._own_zookeeper else zookeeper
        self._has_run = False
        self.port = free_port()
        self._behind = (free_port(), free_port()) if gated else None
        self._gate: Gate | None = None
        self.data_dir = folder / "logs"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def zookeeper_connect(self) -> str:
        """The address of the cluster in ZooKeeper, host:port or host:port/chroot."""
        if self._connect is None:
            self._connect = shared_zookeeper().new_root()
        return self._connect

    @property
    def broker_id(self) -> int:
        return int(self._server_properties()["broker.id"])

    @property
    def pid(self) -> int:
        """The broker's process. Raises RuntimeError when it does not run."""
        return self._running().pid

    @property
    def output(self) -> str:
        """The broker's log since its last start: warnings, errors and its start."""
        return "\n".join(self._running().stderr.lines())

    def start(self) -> None:
        """Starts the broker, and ZooKeeper if it does not run yet, and waits until it serves."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._own_zookeeper is not None:
            self._own_zookeeper.start()
        if self._has_run or self._outside:
            self._await_old_session()
        self._has_run = True
        config = self._folder / "server.properties"
        config.write_text(java_properties(self._server_properties()))
        main = "kafka.Kafka"
        archive = archive_options(self._version, main) if _fits_archive(self._jvm) else ()
        command = java_command(self._version, main, [str(config)], (*self._jvm, *archive, *QUIET, _BROKER_LOGGER))
        self._broker = BackgroundProcess(command)
        # KafkaServer logs it once its listeners answer.
        self._broker.stderr.wait_for("] started", START_TIMEOUT_S)
        self._await_controller()
        if self._behind is not None:
            self._await_topics(self._behind[0])
            self._gate = Gate(self.port, self._behind[0])
            self._gate.open()

    def stop(self) -> None:
        """Stops the broker as an operator does (SIGTERM) and waits for the end of its controlled shutdown."""
        self._running().stop()
        self._ended()

    def kill(self) -> None:
        """Ends the broker without warning (SIGKILL)."""
        self._running().kill()
        self._ended()

    def restart(self) -> None:
        """Stops and starts the broker on the same port and data."""
        self.stop()
        self.start()

    def stop_zookeeper(self) -> None:
        """Stops the broker's own ZooKeeper, after the broker, and waits for its end."""
        assert self._own_zookeeper is not None, "other brokers use its ZooKeeper, too"
        self._own_zookeeper.stop()

    def close(self) -> None:
        """Ends the broker and its own ZooKeeper at once; for the end of the tests, when no one needs the data."""
        if self._broker is not None:
            self._broker.kill()
        if self._own_zookeeper is not None:
            self._own_zookeeper.kill()
        self._ended()

    def _ended(self) -> None:
        self._broker = None
        if self._gate is not None:
            self._gate.shut()
            self._gate = None

    def _running(self) -> BackgroundProcess:
        if self._broker is None:
            raise RuntimeError("the broker does not run")
        return self._broker

    def _server_properties(self) -> dict[str, str]:
        address = f"PLAINTEXT://127.0.0.1:{self.port}"
        own = {
            "listeners": address,
            "advertised.listeners": address,
            "log.dirs": str(self.data_dir),
            "zookeeper.connect": self.zookeeper_connect,
        }
        if self._behind is not None:
            clients, peers = self._behind
            own |= {
                "listeners": f"PLAINTEXT://127.0.0.1:{clients},PEERS://127.0.0.1:{peers}",
                "advertised.listeners": f"{address},PEERS://127.0.0.1:{peers}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
                "inter.broker.listener.name": "PEERS",
            }
        return {**_SMALL_BROKER, **own, **self._properties}

    def _await_controller(self) -> None:
        """A broker serves before it has received the id of a controller. Clients that get no controller from it may
        wait for minutes before they retry (librdkafka).
        """
        with Wire("127.0.0.1", self._behind[0] if self._behind else self.port, START_TIMEOUT_S) as wire:
            asked = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
            eventually(
                lambda: wire.ask(asked, _METADATA_OF_OLD_RELEASES).controller_id,
                lambda controller_id: controller_id >= 0,
                "the broker has received the id of a controller",
                timeout_s=START_TIMEOUT_S,
            )

    def _await_topics(self, port: int) -> None:
        """Wait until the broker at `port` returns a leader for every partition, of all topics that ZooKeeper
        has now.
        """
        client = KazooClient(self.zookeeper_connect)
        client.start(timeout=START_TIMEOUT_S)
        try:
            wanted = set(client.get_children("/brokers/topics"))
        finally:
            client.stop()
            client.close()
        with Wire("127.0.0.1", port, START_TIMEOUT_S) as wire:
            eventually(
                lambda: wanted - {each.name for each in wire.metadata(None).topics if _is_led(each)},
                lambda missing: not missing,
                "the broker has received a leader for every partition",
                timeout_s=START_TIMEOUT_S,
            )

    def _await_old_session(self) -> None:
        """A killed broker's registration lives until its session expires, and a start before that fails."""
        client = KazooClient(self.zookeeper_connect)
        client.start(timeout=START_TIMEOUT_S)
        try:
            own = f"/brokers/ids/{self._server_properties()['broker.id']}"
            for path in (own,) if self._outside is not None else (own, "/controller"):
                gone = threading.Event()
                if client.exists(path, watch=lambda event, gone=gone: gone.set()) and not gone.wait(30):
                    raise TimeoutError(f"{path} is still registered in ZooKeeper")
        finally:
            client.stop()
            client.close()


def _fits_archive(jvm: Sequence[str]) -> bool:
    """Whether Java's options are those of the archived classes; system properties may be among them."""
    return tuple(each for each in jvm if not each.startswith("-D")) == SMALL_JVM


def _is_led(topic: m.MetadataResponse.MetadataResponseTopic) -> bool:
    return topic.error_code == 0 and all(partition.leader_id >= 0 for partition in topic.partitions)


@contextmanager
def running_kafka(
    folder: Path, properties: Mapping[str, str] | None = None, jvm: tuple[str, ...] = SMALL_JVM
) -> Iterator[Kafka]:
    """A Kafka that runs within the `with` block. `folder` and all in it is removed afterwards."""
    kafka = Kafka(folder, properties, jvm)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)
