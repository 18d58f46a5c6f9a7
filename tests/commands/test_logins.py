"""Commands that log in with a token (SASL/OAUTHBEARER) or with a certificate (mTLS), on Odradek and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client_configs import properties_text
from odradek.ports import free_port
from odradek.token_issuer import TokenIssuer
from tests.commands.running import SecuredRunning
from tests.jvm.kafka import SMALL_JVM, Kafka
from tests.security.tls_broker import Files
from tests.security.witnesses import MTLS, OAUTH, USER, SecuredBrokers, running_secured_brokers

pytestmark = pytest.mark.slow

LOGINS = (OAUTH, MTLS)
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
LISTENER = "listener.name.sasl_plaintext"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with running_secured_brokers(tmp_path_factory.mktemp("odradek")) as running:
        yield running


class SecuredKafka:
    """Apache Kafka with a listener for tokens and one for certificates."""

    def __init__(self, folder: Path, issuer: TokenIssuer) -> None:
        self._issuer = issuer
        self.files = Files(folder / "certificates")
        self.files.issue("broker", "127.0.0.1")
        self.files.issue(USER)
        plaintext, self.sasl, self.tls = (free_port() for _ in range(3))
        names = {"PLAINTEXT": plaintext, "SASL_PLAINTEXT": self.sasl, "SSL": self.tls}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items())
        properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": OAUTH,
            "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
            "sasl.oauthbearer.expected.audience": issuer.audience,
            f"{LISTENER}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            f"{LISTENER}.oauthbearer.sasl.jaas.config": f"{JAAS};",
            **self.files.stores("broker"),
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
        self.kafka = Kafka(folder / "kafka", properties, (*SMALL_JVM, allowed))
        self.kafka.port = plaintext

    def side(self, login: str, folder: Path) -> SecuredRunning:
        """The commands with the properties of a Java client."""
        if login == MTLS:
            return SecuredRunning(f"127.0.0.1:{self.tls}", self.files.java(USER))
        path = folder / "token.properties"
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": OAUTH,
            "sasl.jaas.config": f'{JAAS} clientId="{USER}" clientSecret="secret";',
            "sasl.oauthbearer.token.endpoint.url": self._issuer.token_url,
        }
        path.write_text(properties_text(properties))
        return SecuredRunning(f"127.0.0.1:{self.sasl}", path)


@pytest.fixture(scope="module")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with TokenIssuer() as issuer:
        made = SecuredKafka(tmp_path_factory.mktemp("kafka"), issuer)
        made.kafka.start()
        try:
            yield made
        finally:
            made.kafka.close()


def check(side: SecuredRunning, name: str) -> None:
    """Administration goes over our own client, records over librdkafka."""
    side.done("topic", "create", name, "--partitions", "2")
    assert side.data("topic", "describe", name)[0]["partition_count"] == 2
    side.done("produce", name, "--partition", "1", stdin=f"by {USER}\n")
    assert side.done("consume", name, "--exit") == f"by {USER}\n"
    assert [each["latest"] for each in side.data("get-offsets", name)] == [0, 1]
    side.done("topic", "delete", name, "--yes")


@pytest.mark.parametrize("login", LOGINS)
def test_commands_log_in(ours: SecuredBrokers, name: str, tmp_path: Path, login: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(properties_text(ours.config(login, "java")))
    check(SecuredRunning(ours.of(login).bootstrap, path), name)


def test_logins_that_are_rejected(ours: SecuredBrokers, tmp_path: Path) -> None:
    """A token of another issuer, none, and no certificate. Without one the broker ends the connection."""
    path = tmp_path / "client.properties"
    with TokenIssuer() as another:
        endpoint = "sasl.oauthbearer.token.endpoint.url"
        by_token = ours.config(OAUTH, "java")
        for login, config, code, reason in (
            (OAUTH, by_token | {endpoint: another.token_url}, 4, "SASL/OAUTHBEARER with "),
            (OAUTH, by_token | {endpoint: f"{another.url}/none"}, 5, "returned 404 Not Found"),
            (MTLS, ours.wrong_config(MTLS, "java"), 5, "no broker answers"),
        ):
            path.write_text(properties_text(config))
            status, text = SecuredRunning(ours.of(login).bootstrap, path).failure("topic", "list", "--timeout", "5")
            assert (status, text.count("\n")) == (code, 1), text
            assert reason in text


@pytest.mark.jvm
@pytest.mark.parametrize("login", LOGINS)
def test_commands_log_in_to_kafka(secured_kafka: SecuredKafka, name: str, tmp_path: Path, login: str) -> None:
    check(secured_kafka.side(login, tmp_path), name)
