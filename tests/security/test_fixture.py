"""The fixtures with security=: clients of four kinds log in, and rights change while they are connected."""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from odradek.ready_process import BrokerError
from odradek.security import Security, allow, deny
from tests.jvm.tools import run_tool
from tests.support.eventually import eventually

PASSWORDS = {"alice": "alice-fixture-secret", "bob": 'a "quoted" \\ bob-secret; =, user_alice="x" ü'}
CERTIFICATE = ("ssl.certificate.location", "ssl.key.location")
SASL = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256")
pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def sasl(folder: Path) -> Iterator[BrokerProcess]:
    """TLS, and every mechanism with a password."""
    with BrokerProcess(folder / "sasl", security=Security("tls+plain+scram", users=PASSWORDS)) as broker:
        yield broker


@pytest.fixture(scope="module")
def mtls(folder: Path) -> Iterator[BrokerProcess]:
    """Certificates of clients, and ACLs."""
    security = Security(
        "mtls",
        users=["alice", "bob", "carol"],
        acls=[
            allow("alice", write="orders", create="orders", describe="orders"),
            [*allow("bob", read="or*", group="g*"), *deny("bob", read="orders-secret")],
        ],
    )
    with BrokerProcess(folder / "mtls", security=security) as broker:
        yield broker


def _write(config: dict[str, Any], topic: str, count: int = 1) -> list[str]:
    """The errors of records that a user writes; an empty text for a success."""
    producer = Producer({**config, "message.timeout.ms": 15_000})
    errors: list[str] = []
    for _ in range(count):
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error.name() if error else ""))
        assert producer.flush(30) == 0
    return errors


def _login_error(config: dict[str, Any]) -> str:
    """The error with which the broker rejects a client; an empty text for none."""
    errors: list[KafkaError] = []
    client = Producer({**config, "error_cb": errors.append})
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            client.list_topics(timeout=0.3)
            return ""
        client.poll(0)
        for error in errors:
            if error.code() == KafkaError._AUTHENTICATION or "certificate required" in error.str():
                return error.str()
    raise AssertionError(errors[:3])


@pytest.mark.parametrize("mechanism", SASL)
async def test_each_python_client_logs_in_with_each_mechanism(sasl: BrokerProcess, mechanism: str) -> None:
    topic = f"clients-{mechanism}"
    assert _write(sasl.client_config("alice", mechanism=mechanism), topic) == [""]
    producer = kafka.KafkaProducer(**sasl.client_config("alice", "kafka-python", mechanism=mechanism))
    assert producer.send(topic, b"value").get(30).offset == 1
    producer.close()
    async with aiokafka.AIOKafkaProducer(**sasl.client_config("bob", "aiokafka", mechanism=mechanism)) as writer:
        assert (await writer.send_and_wait(topic, b"value")).offset == 2


async def test_each_python_client_connects_with_its_certificate(mtls: BrokerProcess) -> None:
    assert _write(mtls.client_config("alice"), "orders") == [""]
    producer = kafka.KafkaProducer(**mtls.client_config("alice", "kafka-python"))
    assert producer.send("orders", b"value").get(30).offset == 1
    producer.close()
    async with aiokafka.AIOKafkaProducer(**mtls.client_config("alice", "aiokafka")) as writer:
        assert (await writer.send_and_wait("orders", b"value")).offset == 2


def test_acls_are_per_user_and_a_denial_overrides_a_prefix(mtls: BrokerProcess) -> None:
    assert _write(mtls.client_config("alice"), "orders") == [""]
    assert _write(mtls.client_config("bob"), "orders") == ["TOPIC_AUTHORIZATION_FAILED"]
    assert _write(mtls.client_config("carol"), "orders") == ["TOPIC_AUTHORIZATION_FAILED"]
    consumer = Consumer({**mtls.client_config("bob"), "group.id": "g1", "auto.offset.reset": "earliest"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"value"
    mtls.allow("alice", create="orders-secret", write="orders-secret")
    assert _write(mtls.client_config("alice"), "orders-secret") == [""]
    with contextlib.closing(Consumer({**mtls.client_config("bob"), "group.id": "g2"})) as other:
        other.assign([TopicPartition("orders-secret", 0, 0)])
        message = other.poll(30)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("mechanism", SASL)
def test_a_wrong_password_is_rejected(sasl: BrokerProcess, mechanism: str) -> None:
    config = sasl.client_config("alice", mechanism=mechanism)
    assert _login_error(config) == ""
    assert "Authentication failed" in _login_error({**config, "sasl.password": PASSWORDS["bob"]})


@pytest.fixture(scope="module")
def oauth(folder: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(folder / "oauth", security="tls+oauth") as broker:
        yield broker


async def test_each_python_client_logs_in_with_a_token(oauth: BrokerProcess) -> None:
    assert _write(oauth.client_config("alice"), "tokens") == [""]
    producer = kafka.KafkaProducer(**oauth.client_config("alice", "kafka-python"))
    assert producer.send("tokens", b"value").get(30).offset == 1
    producer.close()
    async with aiokafka.AIOKafkaProducer(**oauth.client_config("bob", "aiokafka")) as writer:
        assert (await writer.send_and_wait("tokens", b"value")).offset == 2


def test_only_valid_tokens_are_accepted(oauth: BrokerProcess) -> None:
    issuer = oauth.issuer
    tokens = {
        "expired": issuer.token("alice", valid_s=-60),
        "another key": issuer.token_of_another_key("alice"),
        "an unknown key": issuer.token_of_an_unknown_key("alice"),
        "no signature": issuer.token_without_signature("alice"),
        "the public key as secret": issuer.token_with_the_public_key_as_secret("alice"),
        "another audience": issuer.token("alice", aud="other"),
        "another issuer": issuer.token("alice", iss="https://other"),
        "altered": issuer.altered(issuer.token("bob"), sub="alice"),
    }
    accepted = [name for name, token in tokens.items() if not _login_error(oauth.client_config("alice", token=token))]
    assert accepted == []
    assert _login_error(oauth.client_config("alice", token=issuer.token("alice"))) == ""


def test_a_token_of_a_new_key_is_accepted(oauth: BrokerProcess) -> None:
    """The token of the first client makes the broker read the keys; as in Kafka that client may still be rejected."""
    oauth.issuer.rotate()
    eventually(lambda: _login_error(oauth.client_config("alice")), lambda error: error == "")


def test_a_client_without_a_certificate_is_rejected(mtls: BrokerProcess) -> None:
    config = mtls.client_config("alice")
    assert _login_error(config) == ""
    stranger = {name: value for name, value in config.items() if name not in CERTIFICATE}
    assert len(stranger) == len(config) - len(CERTIFICATE)
    assert "certificate required" in _login_error(stranger)


def test_denials_and_revocations_reach_open_connections(folder: Path) -> None:
    with BrokerProcess(folder / "changes", security="tls+scram") as broker:
        errors: list[str] = []
        producer = Producer({**broker.client_config("alice"), "message.timeout.ms": 15_000})

        def write(topic: str) -> None:
            producer.produce(topic, b"", on_delivery=lambda error, _: errors.append(error.name() if error else ""))
            assert producer.flush(30) == 0

        write("orders")
        write("others")
        broker.deny("alice", topic="orders")
        write("orders")
        write("others")
        broker.revoke("alice")
        write("others")
        assert errors == ["", "", "TOPIC_AUTHORIZATION_FAILED", "", "TOPIC_AUTHORIZATION_FAILED"]
        assert "invalid credentials" in _login_error(broker.client_config("alice"))
        assert _write(broker.client_config("bob"), "orders") == [""]
        broker.restart()
        assert _write(broker.client_config("bob"), "orders") == [""]
        assert "invalid credentials" in _login_error(broker.client_config("alice"))


def test_certificates_rotate_beside_open_connections(sasl: BrokerProcess) -> None:
    def served() -> str:
        with sasl.admin() as wire:
            assert wire.peer_certificate is not None
            return ssl.DER_cert_to_PEM_cert(wire.peer_certificate)

    with sasl.admin() as before:
        old = served()
        sasl.rotate_certificates()
        assert served() != old
        assert before.metadata([]).brokers  # the connection from before


def test_passwords_are_in_no_log_and_no_command_line(sasl: BrokerProcess) -> None:
    command = Path(f"/proc/{sasl.pid}/cmdline")
    shown = sasl.output + repr(sasl.client_properties("alice"))
    if command.exists():
        shown += command.read_text()
    security = Security("plain", users=PASSWORDS)
    shown += repr(security) + str(security)
    assert not [password for password in PASSWORDS.values() if password in shown]
    for path in (sasl.log_path.with_name("server.properties"), sasl.client_properties("alice")):
        assert path.stat().st_mode & 0o077 == 0


def test_errors_name_what_is_allowed(sasl: BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="no user 'stranger'; there are alice, bob"):
        sasl.client_config("stranger")
    with pytest.raises(BrokerError, match="'OAUTHBEARER' is not enabled; enabled: PLAIN, SCRAM-SHA-512, SCRAM-SHA-256"):
        sasl.client_config("alice", mechanism="OAUTHBEARER")
    with pytest.raises(ValueError, match="client 'ruby'; allowed are confluent-kafka, aiokafka, kafka-python, java"):
        sasl.client_config("alice", "ruby")
    with pytest.raises(BrokerError, match="no tokens; add oauth"):
        _ = sasl.issuer
    with pytest.raises(ValueError, match="'tls,scram': allowed are tls, mtls, plain, scram, oauth"):
        Security("tls,scram")
    with pytest.raises(ValueError, match=r"user 'a/b': allowed are letters, digits"):
        Security("plain", users=["a/b"])
    with pytest.raises(ValueError, match="names no resource"):
        allow("alice")
    with pytest.raises(BrokerError, match="there is no security"):
        BrokerProcess(tmp_path).client_config("alice")


def test_a_cluster_replicates_and_its_registry_serves_no_stranger(folder: Path) -> None:
    with ClusterProcess(folder / "cluster", brokers=3, security="tls+scram") as cluster:
        config = {**cluster.client_config("alice"), "acks": "all"}
        assert _write(config, "orders", 3) == ["", "", ""]
        cluster.await_isr("orders", 0, {1, 2, 3})
        leader = cluster.leader_of("orders")
        cluster.kill(leader)
        cluster.await_leader("orders", other_than=leader)
        assert _write(config, "orders") == [""]
        cluster.restart(leader)
        cluster.await_isr("orders", 0, {1, 2, 3})
        follower = next(each for each in (1, 2, 3) if each != cluster.leader_of("orders"))
        cluster.isolate(follower)
        cluster.await_isr("orders", 0, {1, 2, 3} - {follower})
        cluster.heal()
        cluster.rotate_certificates()
        cluster.deny("alice", topic="orders")
        assert _write(config, "orders") == ["TOPIC_AUTHORIZATION_FAILED"]
        assert _is_refused(cluster.zookeeper_connect)


def _is_refused(zookeeper_connect: str) -> bool:
    """Whether the registry ends the session of a client that has not authenticated."""
    stranger = KazooClient(zookeeper_connect, connection_retry={"max_tries": 1})
    try:
        stranger.start(timeout=10)
        stranger.get("/brokers")
    except KazooException:
        return True
    finally:
        stranger.stop()
        stranger.close()
    return False


@pytest.mark.jvm
@pytest.mark.parametrize("version", ["3.9.2"])  # test_witnesses_tools has the other releases
@pytest.mark.parametrize(
    ("user", "mechanism"), [("bob", "PLAIN"), ("alice", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-256")]
)
def test_kafkas_tools_log_in(sasl: BrokerProcess, version: str, user: str, mechanism: str) -> None:
    config = str(sasl.client_properties(user, mechanism=mechanism))
    topics = ["--bootstrap-server", sasl.bootstrap, "--command-config", config, "--list"]
    assert _write(sasl.client_config("alice"), "listed") == [""]
    assert "listed" in run_tool(version, "kafka-topics", topics).stdout.split()


@pytest.mark.jvm
def test_kafkas_tools_connect_with_a_certificate(mtls: BrokerProcess) -> None:
    assert _write(mtls.client_config("alice"), "orders") == [""]
    config = str(mtls.client_properties("bob"))
    consume = ["--bootstrap-server", mtls.bootstrap, "--consumer.config", config, "--group", "g3", "--topic", "orders"]
    options = ["--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"]
    assert run_tool("3.9.2", "kafka-console-consumer", [*consume, *options]).stdout.strip() == "value"


@pytest.mark.jvm
def test_kafkas_tools_log_in_with_a_token(oauth: BrokerProcess) -> None:
    assert _write(oauth.client_config("alice"), "tokens") == [""]
    config = str(oauth.client_properties("alice"))
    topics = ["--bootstrap-server", oauth.bootstrap, "--command-config", config, "--list"]
    assert "tokens" in run_tool("3.9.2", "kafka-topics", topics).stdout.split()


def test_the_examples_of_the_page_run(pytester: pytest.Pytester) -> None:
    text, _, _ = PAGE.read_text().partition("\n## Test a stream application\n")  # tests/streams/test_testing_page.py
    examples = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def test_" in code]
    assert len(examples) == 4
    for number, code in enumerate(examples):
        pytester.makepyfile(**{f"test_example_{number}": code})
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=4)
