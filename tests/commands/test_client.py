"""The client: retries, other brokers in the place of those that are down, and errors of requests to several brokers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.admin import client as admin_client
from odradek.admin import groups, offsets, topics
from odradek.admin.client import AdminClient, NoBrokerError
from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.client.connection import BrokerConnection
from odradek.protocol.client.errors import UnsupportedRequestError
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.pytest_plugin import ClusterFactory

THROTTLED = KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
INVALID = KafkaError(ErrorCode.INVALID_CONFIG)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> AdminClient:
    """A client whose backoffs take no time."""
    monkeypatch.setattr(admin_client, "FIRST_BACKOFF_S", 0.0001)
    return AdminClient([("127.0.0.1", 1)], timeout_s=30)


def test_only_items_with_an_error_of_the_moment_are_sent_again(client: AdminClient) -> None:
    sent: list[list[str]] = []

    def attempt(names: list[str]) -> dict[str, str | KafkaError]:
        sent.append(names)
        return {"a": "done", "b": THROTTLED if len(sent) < 3 else "late", "c": INVALID}

    assert client.each(["a", "b", "c", "a"], attempt) == {"a": "done", "b": "late", "c": INVALID}
    assert sent == [["a", "b", "c"], ["b"], ["b"]]


def test_an_error_of_the_request_is_that_of_every_item(client: AdminClient) -> None:
    failures: list[Exception] = [KafkaError(ErrorCode.NOT_CONTROLLER), ConnectionResetError("closed"), INVALID]

    def attempt(names: list[str]) -> dict[str, str | KafkaError]:
        raise failures.pop(0)

    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        client.each(["a"], attempt)
    assert failures == []


def test_retries_end_with_the_time(client: AdminClient) -> None:
    client.timeout_s = 0.0
    results = client.each(["a", "b"], lambda names: {"a": THROTTLED})
    assert [each.code for each in results.values() if isinstance(each, KafkaError)] == [
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
    ]

    def fail() -> None:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        client.call(fail)
    with pytest.raises(NoBrokerError, match=r"no broker answers at 127\.0\.0\.1:1: "):
        topics.list_topics(client)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_the_first_address_may_be_down(broker: BrokerProcess) -> None:
    with AdminClient([("127.0.0.1", 1), (broker.host, broker.port)]) as client:
        assert client.broker_ids() == [0]
        topics.create_topics(client, [topics.CreatableTopic("there")])
        assert client.version_at(0, m.WriteTxnMarkersRequest) >= 0
        with pytest.raises(KafkaError, match="broker 7 is not in the cluster; it has 0"):
            client.broker(7, m.DescribeLogDirsRequest(topics=None))
        with pytest.raises(UnsupportedRequestError, match="supports MetadataRequest in versions"):
            client.any_broker(m.MetadataRequest(topics=[]), highest=-1)


def test_partitions_that_do_not_exist_are_errors_of_their_own(broker: BrokerProcess) -> None:
    with AdminClient([(broker.host, broker.port)]) as client:
        topics.create_topics(client, [topics.CreatableTopic("one")])
        places = [("one", 0), ("one", 1), ("none", 0)]
        found = offsets.list_offsets(client, dict.fromkeys(places, offsets.LATEST))
        assert found["one", 0] == offsets.ListedOffset(0, -1, 0)
        for place in places[1:]:
            assert isinstance(error := found[place], KafkaError)
            assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_responses_of_a_connection_come_in_the_order_of_its_requests(broker: BrokerProcess) -> None:
    connection = BrokerConnection((broker.host, broker.port), "test")
    try:
        for names in (["a"], ["b", "c"]):
            connection.send(m.DescribeGroupsRequest(groups=names), 5.0)
        assert [each.group_id for each in connection.receive(5.0).groups] == ["a"]
        assert [each.group_id for each in connection.receive(5.0).groups] == ["b", "c"]
    finally:
        connection.close()


@contextmanager
def silent_server() -> Iterator[tuple[str, int]]:
    """A port that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def serve() -> None:
            connection, _ = server.accept()
            accepted.append(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        thread.join()
        for connection in accepted:
            connection.close()


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_given_up() -> None:
    with (
        silent_server() as address,
        AdminClient([address], timeout_s=0.05) as client,
        pytest.raises(NoBrokerError, match=r"does not answer within 0\.05 s"),
    ):
        client.metadata([])


@pytest.mark.slow
def test_coordinators_and_leaders_are_found_again_after_a_failover(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(3, offsets_topic_replication_factor=3, zookeeper_session_timeout_ms=2000)
    addresses = [(each.host, each.port) for each in cluster.brokers.values()]
    with AdminClient(addresses, timeout_s=60) as client:
        wanted = [topics.CreatableTopic("orders", 3, 3)]
        assert isinstance(topics.create_topics(client, wanted)["orders"], topics.CreatedTopic)
        for partition in range(3):
            cluster.await_isr("orders", partition, set(cluster.brokers))
        coordinator = groups.coordinator_of(client, "readers")
        places = {("orders", partition): offsets.LATEST for partition in range(3)}
        assert not [each for each in offsets.list_offsets(client, places).values() if isinstance(each, KafkaError)]
        cluster.kill(coordinator)
        cluster.await_brokers(set(cluster.brokers) - {coordinator})
        (absent,) = groups.describe_groups(client, ["readers"]).values()
        assert isinstance(absent, KafkaError)
        assert absent.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert groups.coordinator_of(client, "readers") != coordinator
        found = offsets.list_offsets(client, places)
        assert not [each for each in found.values() if isinstance(each, KafkaError)]
