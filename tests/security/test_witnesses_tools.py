"""Kafka's tools over TLS: console tools of three releases with every mechanism; users, ACLs and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from odradek.client_configs import properties_text
from tests.jvm.process import QUICK_START, QUIET, Result, run_java
from tests.jvm.tools import VERSIONS, run_tool, tool_command
from tests.security.token_requests import rows_of
from tests.security.witnesses import LOGINS, MTLS, OAUTH, PASSWORD, USER, SecuredBrokers, running_secured_brokers

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OAUTH_HANDLER_OF_4 = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
# Kafka 2.8 has no client of OAuth servers (KIP-768).
CELLS = [(release, login) for release in VERSIONS for login in LOGINS if (release, login) != ("2.8.2", OAUTH)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with running_secured_brokers(tmp_path_factory.mktemp("secured")) as running:
        yield running


class ConsoleTools:
    """The console tools of one release with one login; files of properties in `folder`."""

    def __init__(self, folder: Path, brokers: SecuredBrokers, release: str, login: str) -> None:
        self._folder, self._brokers, self._release, self._login = folder, brokers, release, login

    def run(self, tool: str, *arguments: str, wrong: bool = False, stdin: str = "") -> Result:
        """The result of a tool on the topic of this release and login, with a login that is wrong on request."""
        config = self._wrong_properties() if wrong else self._properties()
        path = self._folder / "client.properties"
        path.write_text(properties_text(config))
        option = f"--{tool.removeprefix('kafka-console-')}.config" if self._release < "4" else "--command-config"
        bootstrap = self._brokers.of(self._login).bootstrap
        topic = f"{self._login}-{self._release}"
        words = ["--bootstrap-server", bootstrap, "--topic", topic, option, str(path), *arguments]
        if (self._release, self._login) == ("4.3.0", OAUTH):
            return run_java(self._with_allowed_urls(tool, words, config), stdin=stdin, timeout_s=60)
        return run_tool(self._release, tool, words, stdin=stdin)

    def _properties(self) -> dict[str, Any]:
        config = self._brokers.config(self._login, "java")
        if self._login == OAUTH and self._release == "4.3.0":
            config["sasl.login.callback.handler.class"] = OAUTH_HANDLER_OF_4
        if self._login == MTLS and self._release == "2.8.2":
            config |= self._pkcs12(Path(config["ssl.keystore.location"]))
        return config

    def _wrong_properties(self) -> dict[str, Any]:
        if self._login != OAUTH:
            return self._brokers.wrong_config(self._login, "java")
        token = self._folder / "token"
        token.write_text(self._brokers.sasl.issuer.token(USER, aud="another-service"))
        return self._properties() | {"sasl.oauthbearer.token.endpoint.url": token.as_uri()}

    def _pkcs12(self, keystore: Path) -> dict[str, str]:
        """A key store that is not PEM: in PEM Kafka 2.8 takes encrypted keys only."""
        key = load_pem_private_key(keystore.read_bytes(), None)
        certificate = load_pem_x509_certificate(keystore.read_bytes())
        path, encryption = self._folder / "keystore.p12", BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, encryption))  # type: ignore[arg-type]
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(path),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        }

    def _with_allowed_urls(self, tool: str, arguments: Sequence[str], config: dict[str, Any]) -> list[str]:
        """Since 4.0 a property of Java lists the URLs and files of tokens (CVE-2025-27817)."""
        url = config["sasl.oauthbearer.token.endpoint.url"]
        allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"]
        allowed += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={self._folder / 'token'}"]
        return tool_command(self._release, tool, arguments, (*QUICK_START, *QUIET, *allowed))


@pytest.mark.parametrize(("release", "login"), CELLS)
def test_console_tools(brokers: SecuredBrokers, tmp_path: Path, release: str, login: str) -> None:
    tools = ConsoleTools(tmp_path, brokers, release, login)
    tools.run("kafka-console-producer", stdin="from alice\n")
    ends = ["--from-beginning", "--max-messages", "1", "--timeout-ms", "30000", "--partition", "0"]
    assert tools.run("kafka-console-consumer", *ends).stdout == "from alice\n"
    rejected = tools.run("kafka-console-consumer", *ends, wrong=True)
    assert rejected.stdout == ""
    expected = "SslAuthenticationException" if login == MTLS else "SaslAuthenticationException"
    assert expected in rejected.stderr


@pytest.mark.parametrize("release", ["3.9.2", "4.3.0"])
def test_tools_make_users_acls_and_tokens(brokers: SecuredBrokers, tmp_path: Path, release: str) -> None:
    user, mechanism, topic = f"user-{release}", "SCRAM-SHA-512", f"orders-{release}"
    config = brokers.config(mechanism, "java")
    server = ["--bootstrap-server", brokers.sasl.bootstrap]

    def run(tool: str, name: str, *arguments: str, properties: dict[str, Any], check: bool = True) -> Result:
        path = tmp_path / f"{name}.properties"
        path.write_text(properties_text(properties))
        return run_tool(release, tool, [*server, "--command-config", str(path), *arguments], check=check)

    def by_admin(tool: str, *arguments: str) -> str:
        return run(tool, "admin", *arguments, properties=config).stdout

    password = "orders-secret"
    entity = ["--entity-type", "users", "--entity-name", user]
    by_admin("kafka-configs", "--alter", "--add-config", f"{mechanism}=[iterations=4096,password={password}]", *entity)
    assert f"{mechanism}=iterations=4096" in by_admin("kafka-configs", "--describe", *entity)
    own = {**config, "sasl.jaas.config": scram_login(user, password)}
    create = ["--create", "--topic", topic]

    deny = ["--deny-principal", f"User:{user}", "--operation", "Create", "--cluster"]
    deny_topic = ["--deny-principal", f"User:{user}", "--operation", "Create", "--topic", topic]
    by_admin("kafka-acls", "--add", *deny)
    by_admin("kafka-acls", "--add", *deny_topic)
    assert f"User:{user}" in by_admin("kafka-acls", "--list", "--principal", f"User:{user}")
    refused = run("kafka-topics", "own", *create, properties=own, check=False)
    assert "TopicAuthorizationException" in refused.stdout + refused.stderr
    by_admin("kafka-acls", "--remove", "--force", *deny)
    by_admin("kafka-acls", "--remove", "--force", *deny_topic)

    made = run("kafka-delegation-tokens", "own", "--create", "--max-life-time-period", "-1", properties=own).stdout
    (token,) = rows_of(made)
    assert token["OWNER"] == f"User:{user}"
    with_token = {**config, "sasl.jaas.config": scram_login(token["TOKENID"], token["HMAC"], "tokenauth=true")}
    assert "Created topic" in run("kafka-topics", "token", *create, properties=with_token).stdout
    by_admin("kafka-configs", "--alter", "--delete-config", mechanism, *entity)
    refused = run("kafka-topics", "own", "--list", properties=own, check=False)
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


def scram_login(user: str, password: str, *options: str) -> str:
    words = [f'username="{user}"', f'password="{password}"', *options]
    return f"org.apache.kafka.common.security.scram.ScramLoginModule required {' '.join(words)};"
