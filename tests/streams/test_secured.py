"""The streams runtime and a broker with TLS and SASL: a word count, the connections of its members, failed logins."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.protocol import messages as m
from odradek.security import Security, allow
from odradek.streams.errors import StreamsError
from odradek.streams.group.authentication import AuthenticationFailedError, security_of
from odradek.streams.group.connection import MemberConnection
from odradek.streams.reset import Reset, ResetError, reset
from odradek.streams.runtime import KafkaStreams, State
from tests.streams.counting import BROKER, COUNTS, QUICK, WORDS, word_counts
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

APPLICATION = "counts"
PASSWORD = "alice-secret"
TIMEOUT_S = 60.0
SESSION_MS = 1_500
OVER_A_SESSION_S = 2.0
HALF = 175
ALICE = Security(
    "tls+scram+plain+oauth",
    users={"alice": PASSWORD},
    acls=[allow("alice", topic=[WORDS, COUNTS, f"{APPLICATION}-*"], group=f"{APPLICATION}*", cluster=True)],
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    properties = {
        **BROKER,
        "connection.failed.authentication.delay.ms": "10",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with BrokerProcess(tmp_path_factory.mktemp("secured"), {**BROKER, **properties}, security=ALICE) as running:
        yield running


def read_counts(client: dict[str, Any], words: Counter[str]) -> dict[str, list[int]]:
    """The counts of each word in their order, as soon as each is as high as in `words`."""
    consumer = Consumer({**client, "group.id": f"{APPLICATION}-reader"})
    consumer.assign([Position(COUNTS, 0, OFFSET_BEGINNING)])
    found: dict[str, list[int]] = {word: [] for word in words}

    def read() -> dict[str, list[int]]:
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            found[key.decode()].append(int.from_bytes(value, "big"))
        return found

    eventually(read, lambda counts: all(len(counts[word]) >= count for word, count in words.items()))
    consumer.close()
    return found


def test_words_are_counted_over_tls_and_scram(broker: BrokerProcess, tmp_path: Path) -> None:
    """The user may use the topics of the application and no others; sessions end within the test."""
    client = broker.client_config("alice")
    admin = AdminClient(client)
    for future in admin.create_topics([NewTopic(WORDS, 2, 1), NewTopic(COUNTS, 1, 1)]).values():
        future.result(TIMEOUT_S)
    words = [f"word{number % 7}" for number in range(2 * HALF)]
    producer = Producer(client)
    config = {**QUICK, **client, "application.id": APPLICATION, "state.dir": str(tmp_path)}
    with KafkaStreams(word_counts(), config) as streams:
        streams.wait_until(State.RUNNING, TIMEOUT_S)
        begin_s = time.monotonic()
        for start in (0, HALF):
            for word in words[start : start + HALF]:
                producer.produce(WORDS, word.encode())
            assert producer.flush(TIMEOUT_S) == 0
            found = read_counts(client, Counter(words[: start + HALF]))
            # Members send heartbeats over the end of a session.
            eventually(lambda: time.monotonic() - begin_s, lambda passed_s: passed_s > OVER_A_SESSION_S)
            assert streams.state is State.RUNNING
    assert found == {word: list(range(1, count + 1)) for word, count in Counter(words).items()}
    actions: list[str] = []
    reset(Reset(APPLICATION, broker.bootstrap, [WORDS], client=client, force=True), actions.append)
    assert admin.list_topics(timeout=TIMEOUT_S).topics.keys() == {WORDS, COUNTS}


TOKENS: list[Callable[[str], tuple[str, float]]] = []


def token(argument: str) -> tuple[str, float]:
    """The current token, as a function that a property can name."""
    return TOKENS[-1](argument)


@pytest.mark.parametrize("mechanism", [*ALICE.mechanisms, "mtls"])
def test_an_application_runs_and_is_reset_with_the_same_properties(
    broker: BrokerProcess, tmp_path: Path, mechanism: str
) -> None:
    with ExitStack() as stack:
        if mechanism == "mtls":
            broker = stack.enter_context(BrokerProcess(tmp_path / "mtls", BROKER, security="mtls"))
            client = broker.client_config("alice")
        else:
            client = broker.client_config("alice", mechanism=mechanism)
        if "oauth_cb" in client:
            TOKENS.append(client["oauth_cb"])
            client["oauth_cb"] = f"{__name__}.token"
        topics = AdminClient(resolved(client))
        for name, future in topics.create_topics([NewTopic(WORDS, 2, 1), NewTopic(COUNTS, 1, 1)]).items():
            with suppress(KafkaException):  # the broker of the module has them
                assert future.result(TIMEOUT_S) is None, name
        application = f"{APPLICATION}-{mechanism}"
        config = {**QUICK, **client, "application.id": application, "state.dir": str(tmp_path)}
        with KafkaStreams(word_counts(), config) as streams:
            streams.wait_until(State.RUNNING, TIMEOUT_S)
        assert streams.failure is None
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        arguments = ["--application-id", application, "--input-topics", WORDS, "--config-file", str(file)]
        result = CliRunner().invoke(main, ["streams", "reset", *arguments])
        assert result.exit_code == 0, result.output
        left = topics.list_topics(timeout=TIMEOUT_S).topics
        assert not [name for name in left if name.startswith(application)]


def resolved(client: dict[str, Any]) -> dict[str, Any]:
    return {**client, "oauth_cb": token} if "oauth_cb" in client else client


def test_a_wrong_property_is_an_error_of_the_reset_and_of_the_application(tmp_path: Path) -> None:
    for properties, message in (
        ({"security.protocol": "TLS"}, "TLS"),
        ({"oauth_cb": "nowhere.token"}, "No module named 'nowhere'"),
    ):
        with pytest.raises(ResetError, match=message):
            reset(Reset(APPLICATION, "127.0.0.1:1", client=properties))
        config = {"application.id": APPLICATION, "bootstrap.servers": "127.0.0.1:1", "state.dir": str(tmp_path)}
        with pytest.raises(StreamsError, match=message):
            KafkaStreams(word_counts(), {**config, **properties})


def with_connection(broker: BrokerProcess, config: dict[str, Any], then: Callable[[MemberConnection], None]) -> None:
    connection = MemberConnection((broker.host, broker.port), "test", security_of(config))
    try:
        then(connection)
    finally:
        connection.close()


def ask(connection: MemberConnection) -> None:
    assert connection.ask(m.MetadataRequest(topics=[]), 5.0).brokers


@pytest.mark.parametrize("mechanism", ALICE.mechanisms)
def test_connections_authenticate_and_renew_their_sessions(broker: BrokerProcess, mechanism: str) -> None:
    def ask_over_a_session(connection: MemberConnection) -> None:
        begin_s = time.monotonic()
        eventually(lambda: ask(connection), lambda _: time.monotonic() - begin_s > OVER_A_SESSION_S)

    with_connection(broker, broker.client_config("alice", mechanism=mechanism), ask_over_a_session)


def test_client_certificates(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, security="mtls") as broker:
        config = broker.client_config("alice")
        with_connection(broker, config, ask)
        without = {name: value for name, value in config.items() if "certificate" not in name and "key" not in name}
        with pytest.raises((AuthenticationFailedError, OSError)):
            with_connection(broker, without, ask)


def oidc(broker: BrokerProcess, secret: str = "alice-token-secret") -> dict[str, Any]:
    config = broker.client_config("alice", mechanism="OAUTHBEARER")
    del config["oauth_cb"]
    return config | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": broker.issuer.token_url,
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
    }


def test_tokens_of_an_openid_provider_serve_all_connections(broker: BrokerProcess, tmp_path: Path) -> None:
    """librdkafka and group membership have the same properties; sessions end within the test."""
    client = oidc(broker)
    admin = AdminClient(client)
    for name, future in admin.create_topics([NewTopic(WORDS, 2, 1), NewTopic(COUNTS, 1, 1)]).items():
        with suppress(KafkaException):  # other tests of the module create them
            assert future.result(TIMEOUT_S) is None, name
    config = {**QUICK, **client, "application.id": f"{APPLICATION}-oidc", "state.dir": str(tmp_path)}
    with KafkaStreams(word_counts(), config) as streams:
        streams.wait_until(State.RUNNING, TIMEOUT_S)
        begin_s = time.monotonic()
        eventually(lambda: time.monotonic() - begin_s, lambda passed_s: passed_s > OVER_A_SESSION_S)
        assert streams.state is State.RUNNING
    assert streams.failure is None


def test_a_token_endpoint_without_a_token_is_a_failed_connection(broker: BrokerProcess) -> None:
    for endpoint, reason in ((f"{broker.issuer.url}/none", "returned 40"), (broker.issuer.jwks_url, "returned 4")):
        config = oidc(broker, "mallory-guess") | {"sasl.oauthbearer.token.endpoint.url": endpoint}
        with pytest.raises(OSError, match=reason) as raised:
            with_connection(broker, config, ask)
        assert "mallory-guess" not in str(raised.value)


def test_client_certificates_of_a_keystore_and_of_texts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, security="mtls") as broker:
        config = broker.client_config("alice")
        certificate, key = (Path(config.pop(f"ssl.{part}.location")) for part in ("certificate", "key"))
        texts = {"ssl.certificate.pem": certificate.read_text(), "ssl.key.pem": key.read_text()}
        with_connection(broker, {**config, **texts}, ask)
        keystore = tmp_path / "alice.p12"
        keystore.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"alice",
                cast("pkcs12.PKCS12PrivateKeyTypes", load_pem_private_key(key.read_bytes(), None)),
                load_pem_x509_certificate(certificate.read_bytes()),
                None,
                BestAvailableEncryption(b"store-secret"),
            )
        )
        config["ssl.keystore.location"] = str(keystore)
        with_connection(broker, {**config, "ssl.keystore.password": "store-secret"}, ask)
        assert AdminClient({**config, "ssl.keystore.password": "store-secret"}).list_topics(timeout=TIMEOUT_S).brokers
        with pytest.raises(StreamsError, match="cannot be applied") as raised:
            security_of({**config, "ssl.keystore.password": "mallory-guess"})
        assert "mallory-guess" not in str(raised.value)


def rejected(broker: BrokerProcess, mechanism: str = "SCRAM-SHA-512", **others: Any) -> str:
    config = broker.client_config("alice", mechanism=mechanism) | {
        name.replace("_", "."): value for name, value in others.items()
    }
    with pytest.raises(AuthenticationFailedError) as raised:
        with_connection(broker, config, ask)
    return str(raised.value)


def test_failed_logins_name_the_reason_and_no_secret(broker: BrokerProcess) -> None:
    for mechanism, reason in (("PLAIN", "Invalid username or password"), ("SCRAM-SHA-512", "invalid credentials")):
        text = rejected(broker, mechanism, sasl_password="mallory-guess")
        assert reason in text
        assert "mallory-guess" not in text
    token = broker.issuer.token("alice", aud="another")
    config = broker.client_config("alice", mechanism="OAUTHBEARER", token=token)
    with pytest.raises(AuthenticationFailedError, match="SASL/OAUTHBEARER"):
        with_connection(broker, config, ask)
    with pytest.raises(AuthenticationFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        with_connection(broker, {**broker.client_config("alice"), "ssl.ca.location": None}, ask)


def test_an_application_that_may_not_log_in_ends_with_the_reason(broker: BrokerProcess, tmp_path: Path) -> None:
    config = {**QUICK, **broker.client_config("alice"), "application.id": APPLICATION, "state.dir": str(tmp_path)}
    with KafkaStreams(word_counts(), {**config, "sasl.password": "mallory-guess"}) as streams:
        streams.wait_until(State.ERROR, TIMEOUT_S)
    assert isinstance(streams.failure, StreamsError)
    assert "mallory-guess" not in str(streams.failure)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS; allowed: PLAINTEXT, SSL"),
        ({"security.protocol": "ssl", "ssl.crl.location": "c"}, r"ssl\.crl\.location is not supported"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/none"}, r"ssl\.\* properties cannot be applied"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism=None is not supported"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "requires oauth_cb"),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
            "requires sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret",
        ),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "other"},
            "sasl.oauthbearer.method=other; allowed: default, oidc",
        ),
        ({"security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN"}, "requires sasl.username and sasl.password"),
    ],
)
def test_properties_that_cannot_be_applied(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        security_of(properties)
