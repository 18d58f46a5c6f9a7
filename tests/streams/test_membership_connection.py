"""The connection to the coordinator: brokers that are away, other brokers, or another kind of server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.pytest_plugin import ClusterFactory
from odradek.streams.errors import StreamsError
from odradek.streams.group.authentication import VersionsApartError
from odradek.streams.group.connection import CoordinatorLink, MemberConnection, parse_bootstrap
from odradek.streams.group.membership import Assigned, GroupMember, MembershipConfig, MembershipError
from tests.streams.group_member import deal
from tests.streams.membership_group import DEADLINE_S, Group, notified, numbers


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"group.max.size": "1"}) as running:
        yield running


def member_of(bootstrap: str, group: str = "group", **other: object) -> GroupMember:
    times = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 50, "max_poll_interval_ms": 20_000}
    config = MembershipConfig(bootstrap_servers=bootstrap, group_id=group, **(times | other))  # type: ignore[arg-type]
    return GroupMember(config, lambda: (["topic"], b""), lambda members: deal("topic", members))


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, int]]:
    """A server on a port that returns `answer` to its first input."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1024)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join(DEADLINE_S)


def test_bootstrap_servers() -> None:
    assert parse_bootstrap("a:1, b:22,") == [("a", 1), ("b", 22)]
    assert parse_bootstrap(["PLAINTEXT://[::1]:9092"]) == [("::1", 9092)]
    for wrong, why in (("a", "'a' is not host:port"), ("a:0", "is not host:port"), (" ,", "contains no broker")):
        with pytest.raises(StreamsError, match=why):
            parse_bootstrap(wrong)


def test_configuration_by_kafkas_names() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "application.id": "app",
        "session.timeout.ms": "9000",
        "group.instance.id": None,
        "internal.leave.group.on.close": "true",
        "num.stream.threads": 2,
    }
    assert MembershipConfig.of(given) == MembershipConfig(
        bootstrap_servers="b:1", group_id="app", session_timeout_ms=9000, leave_group_on_close=True
    )
    secured = {**given, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    config = MembershipConfig.of({**secured, "sasl.password": "alice-secret"})
    assert config.security.context is not None
    assert config.security.login is not None
    assert "alice-secret" not in repr(config)
    with pytest.raises(StreamsError, match=r"PLAIN requires sasl\.username and sasl\.password"):
        MembershipConfig.of(secured)
    with pytest.raises(StreamsError, match=r"heartbeat\.interval\.ms \(9000\) must be below"):
        MembershipConfig.of({**given, "heartbeat.interval.ms": 9000})


def test_a_server_that_is_no_broker() -> None:
    with answering(b"\x15\x03\x01\x00\x02\x02\x46") as address, pytest.raises(ProtocolError, match="it uses TLS"):
        MemberConnection(address, "test")
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n") as address,
        pytest.raises(ProtocolError, match=r"Kafka's protocol$"),
    ):
        MemberConnection(address, "test")
    with answering(b"") as address, pytest.raises(ConnectionResetError, match="requires SASL or TLS"):
        MemberConnection(address, "test")


@pytest.mark.slow
def test_unsupported_versions(broker: BrokerProcess) -> None:
    connection = MemberConnection((broker.host, broker.port), "test")
    try:
        answer = connection.ask(m.MetadataRequest(topics=[]), 5.0)
        assert [broker.port for broker in answer.brokers] == [broker.port]
        with pytest.raises(VersionsApartError, match="supports WriteTxnMarkersRequest in versions"):
            connection.ask(m.WriteTxnMarkersRequest(), 5.0, highest=-1)
    finally:
        connection.close()


@pytest.mark.slow
def test_the_first_of_the_list_may_be_down(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unanswered:
        port = unanswered.getsockname()[1]
    link = CoordinatorLink(parse_bootstrap(f"127.0.0.1:{port},{broker.bootstrap}"), "g", "test", 5.0)
    answer = link.ask(m.DescribeGroupsRequest(groups=["g"]))
    assert answer.groups[0].group_id == "g"
    link.interrupt()
    with pytest.raises(OSError, match=r"closed the connection|Broken pipe"):
        link.ask(m.DescribeGroupsRequest(groups=["g"]))
    with pytest.raises(ConnectionAbortedError):
        link.ask(m.DescribeGroupsRequest(groups=["g"]))


@pytest.mark.slow
def test_a_member_waits_for_a_broker_that_has_not_started_yet(broker: BrokerProcess) -> None:
    broker.stop()
    member = member_of(broker.bootstrap, "patient")
    try:
        spent = time.process_time()
        member.rejoin()
        assert member.poll(1.0) is None
        assert time.process_time() - spent < 0.5, "it retries with a backoff"
        broker.start()
        event = member.poll(DEADLINE_S)
        assert isinstance(event, Assigned)
        broker.kill()
        assert member.poll(0.5) is None, "a missing response is no reason to give up tasks"
        broker.start()
        assert member.fetch_committed([("topic", 0)]) == {}
        assert member.poll(0.2) is None
        assert member.generation == event.generation
    finally:
        member.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session_timeout_ms", "code", "text"),
    [
        (6_000, ErrorCode.GROUP_MAX_SIZE_REACHED, r"group\.max\.size.*num\.stream\.threads"),
        (1_000, ErrorCode.INVALID_SESSION_TIMEOUT, r"does not allow session\.timeout\.ms=1000"),
    ],
)
def test_limits_of_the_broker_are_reported_clearly(
    broker: BrokerProcess, session_timeout_ms: int, code: ErrorCode, text: str
) -> None:
    group = f"limits-{code.name}"
    members = [
        member_of(broker.bootstrap, group),
        member_of(broker.bootstrap, group, session_timeout_ms=session_timeout_ms),
    ]
    try:
        members[0].rejoin()
        assert isinstance(members[0].poll(DEADLINE_S), Assigned)
        members[1].rejoin()
        with pytest.raises(MembershipError, match=text) as caught:
            members[1].poll(DEADLINE_S)
        assert caught.value.code is code
        with pytest.raises(MembershipError, match=text):
            members[1].rejoin()
    finally:
        for member in members:
            member.close()


@pytest.mark.slow
def test_an_exception_of_the_leader_is_raised_by_its_poll(broker: BrokerProcess) -> None:
    config = MembershipConfig(bootstrap_servers=broker.bootstrap, group_id="wrong")
    wrong: list[tuple[Callable[..., object], type[Exception], str]] = [
        (lambda members: dict[int, int]()[0], KeyError, "0"),
        (lambda members: {"who": ([], b"")}, StreamsError, "names members that are not in the group: who"),
    ]
    for number, (assign, kind, text) in enumerate(wrong):
        member = GroupMember(config, lambda: ([], b""), assign)  # type: ignore[arg-type]
        try:
            member.rejoin()
            with pytest.raises(kind, match=text):
                member.poll(DEADLINE_S)
        finally:
            member.leave() if number == 0 else member.close()


@pytest.mark.slow
def test_another_broker_replaces_a_dead_coordinator(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(
        brokers=3, offsets_topic_replication_factor=3, offsets_topic_num_partitions=1, zookeeper_session_timeout_ms=2000
    )
    group = Group(cluster.bootstrap_servers)
    try:
        first = group.member(session_timeout_ms=30_000)
        group.settle(first)
        second = group.member(session_timeout_ms=30_000)
        assert not notified(first, second).lost
        dead = cluster.leader_of("__consumer_offsets", 0)
        cluster.kill(dead)  # in the middle of a rebalance
        first.rejoin()
        assert sorted(map(numbers, group.settle(first, second))) == [[0, 2], [1, 3]]
        generation = first.generation
        cluster.await_isr("__consumer_offsets", 0, cluster.brokers.keys() - {dead})  # otherwise none could replace it
        cluster.kill(cluster.leader_of("__consumer_offsets", 0))  # while no rebalance is under way
        assert first.fetch_committed([("topic", 0)]) == {}
        assert first.poll(0.3) is None
        assert (first.generation, second.generation) == (generation, generation)
    finally:
        group.close()


@pytest.mark.slow
def test_a_member_leaves_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Over a connection that was last used before; otherwise others would wait for the end of its session."""
    with BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        group = Group(broker.bootstrap)
        try:
            lasting: dict[str, Any] = {"session_timeout_ms": 120_000, "max_poll_interval_ms": 120_000}
            first = group.member(**lasting)
            group.settle(first)
            assert first.fetch_committed([("membership", 0)]) == {}
            broker.restart()
            first.leave()
            group.settle(group.member(**lasting))
        finally:
            group.close()
