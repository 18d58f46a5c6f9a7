"""Stock clients and a real ZooKeeper as witnesses of authentication and access lists.

The embedded server with users serves ZooKeeper's shell by `addauth digest` and by the section Client of a JAAS file. On
a real ZooKeeper, a broker with zookeeper.set.acl gives its nodes the access lists that Apache Kafka gives to the same
paths, and each of the two can write the nodes of the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from odradek.broker_process import BrokerError, BrokerProcess
from odradek.registry_login import USER, ensure_jaas_file, environment
from odradek.registry_service import users_in
from tests.jvm.kafka import SMALL_JVM, Kafka
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java
from tests.registry.conftest import USERS, serving
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
JAAS_OPTION = "-Djava.security.auth.login.config="


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    """The embedded server with users, in a thread; yields host:port."""
    started, stop = threading.Event(), asyncio.Event()
    running: list[tuple[asyncio.AbstractEventLoop, str]] = []

    async def serve() -> None:
        async with serving(USERS) as connect:
            running.append((asyncio.get_running_loop(), connect))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        loop, connect = running[0]
        yield connect
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def _shell(connect: str, script: str, *options: str) -> str:
    command = java_command("3.9.2", SHELL, ["-server", connect], (*QUICK_START, *QUIET, *options))
    result = run_java(command, stdin=script, timeout_s=60, check=False)
    return result.stdout + result.stderr


def test_the_shell_logs_in_with_addauth(ours: str) -> None:
    script = "addauth digest kafka:broker-secret\ncreate /shell data auth::cdrwa\nget /shell\ngetAcl /shell\nquit\n"
    printed = _shell(ours, script)
    assert "Created /shell" in printed
    assert "'digest,'kafka:" in printed
    assert USERS["kafka"] not in printed


def test_the_shell_of_a_stranger_is_refused(ours: str) -> None:
    printed = _shell(ours, "create /stranger data\nquit\n")
    assert "Created /stranger" not in printed
    assert "Session closed because client failed to authenticate" in printed


def test_the_shell_logs_in_with_a_jaas_file(ours: str, tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Client {{ {module} required username="alice" password="{USERS["alice"]}"; }};\n')
    printed = _shell(ours, "create /alice data sasl:alice:cdrwa\ngetAcl /alice\nquit\n", f"{JAAS_OPTION}{jaas}")
    assert "Created /alice" in printed
    assert "'sasl,'alice" in printed


def _acls(connect: str, login: dict[str, str]) -> dict[str, list[tuple[int, str, str]]]:
    """The access lists of all nodes."""
    client = KazooClient(connect, sasl_options={"mechanism": "DIGEST-MD5", **login})
    client.start(timeout=30)
    try:
        found: dict[str, list[tuple[int, str, str]]] = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            acl, _ = client.get_acls(path)
            found[path] = [(each.perms, each.id.scheme, each.id.id) for each in acl]
            pending += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
        return found
    finally:
        client.stop()
        client.close()


def test_a_broker_sets_the_access_lists_of_kafka(tmp_path: Path) -> None:
    jaas = ensure_jaas_file(tmp_path)
    login = {"username": USER, "password": users_in(jaas)[USER]}
    options = ("-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",)
    zookeeper = ZooKeeperServer(tmp_path, tmp_path / "data", options=(f"{JAAS_OPTION}{jaas}", *options))
    properties = {"zookeeper.set.acl": "true", "broker.id": "1", "default.replication.factor": "1"}
    theirs, mine = f"{zookeeper.connect}/theirs", f"{zookeeper.connect}/mine"
    kafka = Kafka(tmp_path / "kafka", properties, (*SMALL_JVM, f"{JAAS_OPTION}{jaas}"), theirs)
    broker = BrokerProcess(
        tmp_path / "broker", {**properties, "zookeeper.connect": mine}, environment=environment(jaas)
    )
    try:
        zookeeper.start()
        with KazooUser(zookeeper.connect, login) as client:
            client.create("/theirs")
        kafka.start()
        broker.start()
        for bootstrap in (kafka.bootstrap, broker.bootstrap):
            _create_topic_and_user(bootstrap)
        found = _acls(zookeeper.connect, login)
        of_kafka = {path.removeprefix("/theirs"): acl for path, acl in found.items() if path.startswith("/theirs/")}
        of_ours = {path.removeprefix("/mine"): acl for path, acl in found.items() if path.startswith("/mine/")}
        common = of_kafka.keys() & of_ours.keys()
        assert {path: of_ours[path] for path in common} == {path: of_kafka[path] for path in common}
        assert {
            "/controller",
            "/consumers",
            "/config/users/alice",
            "/brokers/ids/1",
            "/brokers/topics/orders/partitions/0/state",
        } <= common
        assert of_ours["/config/users/alice"] == [(31, "sasl", USER)]
        with KazooUser(zookeeper.connect, None) as stranger:
            assert stranger.get("/mine/controller")
            with pytest.raises(NoAuthError):
                stranger.get("/mine/config/users/alice")
            with pytest.raises(NoAuthError):
                stranger.set("/mine/controller_epoch", b"9")
        assert login["password"] not in broker.output
    finally:
        broker.discard()
        kafka.close()
        zookeeper.stop()


class KazooUser:
    """A session of a user, or of a stranger."""

    def __init__(self, connect: str, login: dict[str, str] | None) -> None:
        options = None if login is None else {"mechanism": "DIGEST-MD5", **login}
        self._client = KazooClient(connect, sasl_options=options)

    def __enter__(self) -> KazooClient:
        self._client.start(timeout=30)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def _create_topic_and_user(bootstrap: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        NewTopic,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    changed = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"alice-secret")])
    changed["alice"].result(30)


def test_set_acl_without_a_login_is_an_error_of_the_start(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path,
        {"zookeeper.connect": "127.0.0.1:1", "zookeeper.set.acl": "true"},
        environment={"KAFKA_OPTS": ""},
    )
    with pytest.raises(BrokerError, match=r"zookeeper\.set\.acl is true, but the verification of the JAAS login"):
        broker.start()
