"""Replicated cluster of processes for tests: brokers with ids from 1, and a registry, on one machine.

    with ClusterProcess(tmp_path, brokers=3) as cluster:
        leader = cluster.leader_of("orders", 0)
        cluster.kill(leader)
        cluster.await_leader("orders", 0, other_than=leader)

Every call blocks until its effect is complete. A broker's metadata can lag behind, so leaders, ISR and controller are
read from the registry, which is authoritative. Brokers connect to each other, and to the registry, through relays
(`cluster_links`), so that `cut` can partition them; clients connect to every broker directly.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from odradek.broker.registry import znodes
from odradek.broker_process import BrokerProcess
from odradek.cluster_links import REGISTRY, Links, Node
from odradek.cluster_security import ClusterSecurity
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.ready_process import HOST, BrokerError, ReadyProcess
from odradek.registry_login import ensure_jaas_file, environment
from odradek.registry_service import users_in
from odradek.secured import Secured
from odradek.security import Security

__all__ = ["CLUSTER_OVERRIDES", "REGISTRY", "BrokerError", "ClusterProcess", "RegistryProcess"]

CLUSTER_OVERRIDES: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "15000",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "200",
}
"""Properties that differ from Kafka's defaults unless a test overrides them: failures are detected in seconds."""

LOOK_AGAIN_S: Final = 1.0
"""The interval of additional reads: a watch can be lost with its connection."""
POLL_S: Final = 0.01
Found = TypeVar("Found")


class RegistryProcess(ReadyProcess):
    """The registry in a separate process: `odradek registry`."""

    KIND = "registry"

    def __init__(self, folder: Path, *, tick_ms: int, jaas_file: Path | None = None, timeout_s: float = 60.0) -> None:
        self._jaas_file = jaas_file
        super().__init__(folder / "registry.log", None, timeout_s)
        self._folder = folder / REGISTRY
        self._tick_ms = tick_ms

    def _arguments(self) -> list[str]:
        return [
            "registry",
            f"--data={self._folder}",
            f"--host={self.host}",
            f"--port={self._port}",
            f"--tick-ms={self._tick_ms}",
            *([f"--jaas={self._jaas_file}"] if self._jaas_file is not None else []),
        ]


class RegistryWatcher:
    """Waits for the contents of nodes of the registry; its connection begins with the first wait."""

    def __init__(self, connect: Callable[[], str], timeout_s: float, jaas_file: Path | None = None) -> None:
        """`connect` returns the address of the registry (host:port and a chroot), to reach within `timeout_s`;
        `jaas_file` has the login.
        """
        self._jaas_file = jaas_file
        self._connect = connect
        self._timeout_s = timeout_s
        self._client: KazooClient | None = None

    def until(
        self,
        path: str,
        decode: Callable[[bytes | None], Found],
        holds: Callable[[Found], bool],
        what: str,
        timeout_s: float,
    ) -> Found:
        """Wait until the node exists and holds the expected data, for at most `timeout_s`. Raises BrokerError."""
        deadline = time.monotonic() + timeout_s
        seen: Found | str = "nothing"
        while (left_s := deadline - time.monotonic()) > 0:
            changed = threading.Event()
            try:
                data = self._read(path, changed)
            except (KazooException, KazooTimeoutError) as error:
                seen = f"a registry that does not answer: {error!r}"
            else:
                if data is not None:
                    seen = decode(data)
                    if holds(seen):
                        return seen
            changed.wait(min(left_s, LOOK_AGAIN_S))
        raise BrokerError(f"not {what} within {timeout_s:g} s; there is {seen}")

    def _read(self, path: str, changed: threading.Event) -> bytes | None:
        """The node's data, or None if it does not exist; `changed` is set at its next change."""
        client = self.client()
        try:
            data, _ = client.get(path, watch=lambda event: changed.set())
        except NoNodeError:
            if client.exists(path, watch=lambda event: changed.set()) is not None:
                changed.set()
            return None
        return bytes(data)

    def client(self) -> KazooClient:
        """The connection to the registry, which the first call opens."""
        if self._client is None:
            # Its own would double the pause between two attempts for as long as the registry is unavailable.
            retry = KazooRetry(max_tries=-1, delay=POLL_S, max_delay=LOOK_AGAIN_S / 4)
            logins = users_in(self._jaas_file).items() if self._jaas_file is not None else ()
            sasl = [{"mechanism": "DIGEST-MD5", "username": user, "password": password} for user, password in logins]
            client = KazooClient(
                self._connect(), timeout=10.0, connection_retry=retry, sasl_options=sasl[0] if sasl else None
            )
            client.start(timeout=self._timeout_s)
            self._client = client
        return self._client

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.stop()
            self._client.close()
            self._client = None


class ClusterProcess(Secured):
    """Brokers 1 to `brokers` and their registry, over the life of their data in `folder`.

    `overrides` are properties of every broker with Kafka's names, over CLUSTER_OVERRIDES; `racks` gives each its
    broker.rack. With `zookeeper` (host:port and a chroot) that is the registry, and REGISTRY cannot be killed, but cut.
    `timeout_s` bounds every wait. With `security` clients connect as one of its users (`client_config`), the brokers
    connect to each other with certificates, and the cluster's own registry serves its brokers only.
    """

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        racks: Sequence[str] = (),
        zookeeper: str | None = None,
        timeout_s: float = 30.0,
        security: Security | str | None = None,
    ) -> None:
        self._folder = Path(folder)
        self.timeout_s: float = timeout_s
        self._overrides = {**CLUSTER_OVERRIDES, **_copies(brokers), **(overrides or {})}
        self._racks = racks
        self._zookeeper = zookeeper
        self._links = Links()
        self._security = None if security is None else ClusterSecurity(self._folder / "security", security, timeout_s)
        self._jaas_file = ensure_jaas_file(self._folder) if security is not None and zookeeper is None else None
        self.registry_watcher = RegistryWatcher(lambda: self.zookeeper_connect, timeout_s, self._jaas_file)
        session_ms = int(self._overrides["zookeeper.session.timeout.ms"])
        # A session may last from 2 to 20 ticks.
        tick_ms = max(1, session_ms // 10)
        self._registry = (
            None if zookeeper else RegistryProcess(self._folder, tick_ms=tick_ms, jaas_file=self._jaas_file)
        )
        self.brokers: dict[int, BrokerProcess] = {
            broker_id: self._make_broker(broker_id) for broker_id in range(1, brokers + 1)
        }
        """The brokers' processes by id; each has data_dir, pid, output and bootstrap."""

    def __enter__(self) -> ClusterProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for a client's `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def zookeeper_connect(self) -> str:
        """The registry for tools: host:port, and a chroot where there is one. Through no relay."""
        if self._registry is None:
            assert self._zookeeper is not None
            return self._zookeeper
        return f"{HOST}:{self._registry.port}"

    @property
    def registry(self) -> RegistryProcess:
        """The registry's process. Raises BrokerError when it is not this cluster's own."""
        if self._registry is None:
            raise BrokerError(f"the registry at {self._zookeeper} is not a process of this cluster")
        return self._registry

    @property
    def output(self) -> str:
        """The logs of the brokers, one after the other."""
        return "\n".join(f"--- broker {number}\n{broker.output}" for number, broker in self.brokers.items())

    # Control

    def start(self) -> None:
        """Start everything; on return all brokers serve, have each other's addresses and have a controller."""
        if self._registry is not None:
            self._registry.launch()
        for broker in self.brokers.values():
            broker.launch()
        try:
            if self._registry is not None:
                self._registry.await_ready()
                self._links.registry_is_at(self._registry.port)
            else:
                hosts, _ = znodes.split_connect(self.zookeeper_connect)
                self._links.registry_is_at(int(hosts.rpartition(":")[2]))
            for broker in self.brokers.values():
                broker.await_ready()
            self.await_brokers(self.brokers)
            if self._security is not None:
                self._security.prepare(self._running_brokers())
        except BaseException:
            self._kill_all()
            raise

    def kill(self, node: Node) -> None:
        """SIGKILL to a broker, or to REGISTRY."""
        self._process(node).kill()

    def stop(self, node: Node) -> None:
        """SIGTERM, and wait for the end: a broker moves its leaderships to others before."""
        self._process(node).stop()

    def restart(self, node: Node) -> None:
        """Start it on its port and data, after a `stop` if it runs; on return the other brokers have it in their
        metadata.
        """
        process = self._process(node)
        if process.running:
            process.stop()
        process.start()
        if node == REGISTRY:
            self._links.registry_is_at(process.port)
        else:
            self.await_brokers(number for number, broker in self.brokers.items() if broker.running)

    def pause(self, node: Node) -> None:
        """SIGSTOP: it keeps its connections and sends nothing."""
        self._process(node).pause()

    def resume(self, node: Node) -> None:
        """SIGCONT: the end of `pause`."""
        self._process(node).resume()

    def cut(self, a: Node, b: Node, *, one_way: bool = False) -> None:
        """Let no packet pass between two brokers, or a broker and REGISTRY; `one_way` only those from `a` to `b`."""
        for node in (a, b):
            if node != REGISTRY and node not in self.brokers:
                raise BrokerError(f"there is no broker {node}; there are {', '.join(map(str, self.brokers))}")
        self._links.cut(a, b, one_way=one_way)

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from all others and from the registry; clients still reach it."""
        others: list[Node] = [*self.brokers, REGISTRY]
        for other in others:
            if other != broker_id:
                self.cut(broker_id, other)

    def heal(self) -> None:
        """The end of every `cut`: buffered bytes arrive."""
        self._links.heal()

    def close(self) -> None:
        """End everything at once. Raises BrokerError if a process had ended by itself, with an error."""
        processes = [*self.brokers.values(), *([self._registry] if self._registry is not None else [])]
        failure: BrokerError | None = None
        for process in processes:
            try:
                process.reap()
            except BrokerError as error:
                failure = failure or error
        self._kill_all()
        if failure is not None:
            raise failure

    # State

    def controller(self) -> int:
        """The id of the active controller; waits until there is one."""
        return self.registry_watcher.until(
            znodes.CONTROLLER, _controller, lambda found: True, "a controller", self.timeout_s
        )

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the partition's leader; waits until there is one."""
        return self.await_leader(topic, partition)

    def await_leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """Wait until a broker, `other_than` one, leads the partition; returns its id."""
        return self._await_state(
            topic, partition, lambda state: state.leader >= 0 and state.leader != other_than, "a leader"
        ).leader

    def isr_of(self, topic: str, partition: int = 0) -> set[int]:
        """The ids of the replicas in sync; waits until the partition exists."""
        return set(self._await_state(topic, partition, lambda state: True, "a state").isr)

    def await_isr(self, topic: str, partition: int, isr: Iterable[int]) -> None:
        """Wait until exactly these replicas are in sync."""
        wanted = set(isr)
        self._await_state(topic, partition, lambda state: set(state.isr) == wanted, f"the ISR {sorted(wanted)}")

    def await_brokers(self, ids: Iterable[int]) -> None:
        """Wait until the Metadata response of each of these brokers contains exactly these brokers and a controller."""
        wanted = set(ids)

        def knows_them(received: m.MetadataResponse) -> bool:
            seen = {each.node_id for each in received.brokers}
            return seen == wanted and received.controller_id in seen

        deadline = time.monotonic() + self.timeout_s
        for broker_id in sorted(wanted):
            self._await_metadata(self.brokers[broker_id], [], knows_them, f"brokers {sorted(wanted)}", deadline)

    def await_topic(self, topic: str) -> None:
        """Wait until the Metadata response of each running broker contains this topic and a leader for every partition.

        A client may create the topic through one broker; the controller notifies the other brokers a moment later.
        """

        def knows_it(received: m.MetadataResponse) -> bool:
            partitions = received.topics[0].partitions
            return bool(partitions) and all(each.error_code == ErrorCode.NONE for each in partitions)

        deadline = time.monotonic() + self.timeout_s
        for broker in self.brokers.values():
            if broker.running:
                self._await_metadata(broker, [topic], knows_it, f"topic {topic}", deadline)

    # ---- internals

    def _make_broker(self, broker_id: int) -> BrokerProcess:
        """A broker that registers the address of a relay with its peers."""
        port, for_peers = free_port(HOST), free_port(HOST)
        tls = None if self._security is None else self._security.link_tls()
        relay = self._links.to_broker(broker_id, for_peers, tls)
        _, slash, chroot = (self._zookeeper or "").partition("/")
        plain = {
            "listeners": f"PLAINTEXT://{HOST}:{port},PEERS://{HOST}:{for_peers}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},PEERS://{HOST}:{relay}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
            "inter.broker.listener.name": "PEERS",
        }
        overrides = {
            **self._overrides,
            "broker.id": str(broker_id),
            **(plain if self._security is None else self._security.listeners(port, for_peers, relay)),
            "zookeeper.connect": f"{HOST}:{self._links.to_registry(broker_id)}{slash}{chroot}",
        }
        if self._racks:
            overrides["broker.rack"] = self._racks[(broker_id - 1) % len(self._racks)]
        variables = {}
        if self._jaas_file is not None:
            overrides.setdefault("zookeeper.set.acl", "true")
            variables = environment(self._jaas_file, os.environ.get("KAFKA_OPTS", ""))
        return BrokerProcess(
            self._folder / str(broker_id),
            overrides,
            timeout_s=self.timeout_s,
            environment=variables,
            security=self._security,
            peers_port=for_peers,
        )

    def _await_metadata(
        self,
        broker: BrokerProcess,
        topics: list[str],
        holds: Callable[[m.MetadataResponse], bool],
        what: str,
        deadline: float,
    ) -> None:
        """Wait until the broker's metadata meets the condition. Raises BrokerError."""
        received: m.MetadataResponse | None = None
        while time.monotonic() < deadline:
            try:
                with broker.admin() as wire:
                    while time.monotonic() < deadline:
                        received = wire.metadata(topics)
                        if holds(received):
                            return
                        time.sleep(POLL_S)
            except (OSError, ProtocolError):
                time.sleep(POLL_S)
        brokers = sorted(each.node_id for each in received.brokers) if received is not None else []
        raise BrokerError(
            f"broker at {broker.bootstrap} does not return {what} after {self.timeout_s:g} s, but brokers {brokers}; "
            f"its log ends:\n{broker.output[-4096:]}"
        )

    def _await_state(
        self, topic: str, partition: int, holds: Callable[[znodes.PartitionState], bool], what: str
    ) -> znodes.PartitionState:
        path = znodes.partition_state_path(topic, partition)
        return self.registry_watcher.until(
            path, znodes.PartitionState.decode, holds, f"{what} for {topic}-{partition}", self.timeout_s
        )

    def _process(self, node: Node) -> ReadyProcess:
        if node == REGISTRY:
            return self.registry
        if node not in self.brokers:
            raise BrokerError(f"there is no broker {node}; there are {', '.join(map(str, self.brokers))}")
        return self.brokers[int(node)]

    def _kill_all(self) -> None:
        processes = [*self.brokers.values(), *([self._registry] if self._registry is not None else [])]
        for process in processes:
            process.discard()
        self.registry_watcher.close()
        self._links.close()
        if self._security is not None:
            self._security.close()

    def _running_brokers(self) -> Sequence[BrokerProcess]:
        return [broker for broker in self.brokers.values() if broker.running]


def _copies(brokers: int) -> dict[str, str]:
    copies = str(min(3, brokers))
    return {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }


def _controller(data: bytes | None) -> int:
    return znodes.ControllerZNode.decode(data).broker_id
