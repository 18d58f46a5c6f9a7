"""OAUTHBEARER listeners: an issuer's tokens, the list of allowed URLs, keys that change, and unsecured tokens.

Unsecured tokens stand beside Kafka's OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jpype
import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security import sasl_oauth
from odradek.broker.security.sasl_oauth import ALLOW_UNSECURED, ALLOWED_FILES, ALLOWED_URLS, fetch_from_endpoint
from odradek.broker.security.sasl_oauth_http import LARGEST_RESPONSE_BYTES, IssuerError, Timeouts, read_url
from odradek.broker.security.state.unsecured_tokens import UnsecuredOptions, unsecured_token, validate_unsecured
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.oauthbearer import InitialResponse, TokenRejectedError
from odradek.token_issuer import TokenIssuer
from tests.broker.wire import Client, running_broker
from tests.security.kafka_classes import KafkaClasses, attempt, java_list, java_map
from tests.support.eventually import eventually_async

URL = "sasl.oauthbearer.jwks.endpoint.url"
LISTENER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


def properties(issuer: TokenIssuer, **others: str) -> dict[str, str]:
    own = {
        URL: issuer.jwks_url,
        ALLOWED_URLS: f"https://other.example/jwks,{issuer.jwks_url}",
        "sasl.oauthbearer.expected.audience": issuer.audience,
        "sasl.oauthbearer.expected.issuer": issuer.url,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    return LISTENER | own | others


async def status(broker: Broker, token: str) -> str:
    """How a broker answers a token: "", or the error that it has for the client."""
    client = await Client.connect(broker.port)
    try:
        await client.ask(m.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = await client.ask(m.SaslAuthenticateRequest(auth_bytes=InitialResponse(token).encode()), 2)
        if answer.error_code == 0 and not answer.auth_bytes:
            assert answer.session_lifetime_ms > 0
            assert (await client.ask(m.MetadataRequest(topics=[]), 12)).brokers
            return ""
        assert answer.error_code == 0
        end = await client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert end.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert end.error_message == answer.auth_bytes.decode()
        assert await client.is_closed()
        return str(json.loads(answer.auth_bytes)["status"])
    finally:
        client.close()


BAD: dict[str, Callable[[TokenIssuer], str]] = {
    "expired": lambda each: each.token("alice", valid_s=-5),
    "not yet valid": lambda each: each.token("alice", nbf=4_000_000_000),
    "issued in the future": lambda each: each.token("alice", iat=4_000_000_000, exp=4_000_000_100),
    "another audience": lambda each: each.token("alice", aud="other"),
    "another issuer": lambda each: each.token("alice", iss="http://other.example"),
    "no subject": lambda each: each.token("alice", sub=None),
    "no signature": lambda each: each.token_without_signature("alice"),
    "an unsecured token": lambda each: unsecured_token({"sub": "alice", "exp": 4_000_000_000}),
    "another key": lambda each: each.token_of_another_key("alice"),
    "an unknown key": lambda each: each.token_of_an_unknown_key("alice"),
    "the public key as secret": lambda each: each.token_with_the_public_key_as_secret("alice"),
    "altered": lambda each: each.altered(each.token("alice"), sub="admin"),
    "no token": lambda each: "a.b.c",
}


async def test_cve_2026_33557_and_110985_only_valid_tokens_authenticate(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with running_broker(tmp_path, properties(issuer)) as broker:
        assert await status(broker, issuer.token("alice")) == ""
        for name, make in BAD.items():
            assert await status(broker, make(issuer)) == "invalid_token", name
        assert await status(broker, issuer.token("alice")) == ""


async def test_tokens_never_appear_in_the_log(
    tmp_path: Path, issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = [make(issuer) for make in BAD.values() if make(issuer) != "a.b.c"]
    async with running_broker(tmp_path, properties(issuer)) as broker:
        for token in tokens[:5]:
            await status(broker, token)
    assert "authentication failed" in caplog.text
    assert not [token for token in tokens if any(part in caplog.text for part in token.split(".") if part)]


@pytest.mark.slow
async def test_librdkafka_authenticates_with_a_token(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with running_broker(tmp_path, properties(issuer)) as broker:

        def listed() -> set[int]:
            client = AdminClient(
                {
                    "bootstrap.servers": f"127.0.0.1:{broker.port}",
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (issuer.token("alice"), 4_000_000_000.0),  # type: ignore[dict-item]
                }
            )
            client.poll(0)
            return set(client.list_topics(timeout=20).brokers)

        assert await asyncio.to_thread(listed) == {0}


async def test_a_new_key_is_read_when_a_token_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_oauth, "SOONEST_EXPEDITED_MS", 1)
    with TokenIssuer() as issuer:
        async with running_broker(tmp_path, properties(issuer)) as broker:
            old = issuer.token("alice")
            assert await status(broker, old) == ""
            issuer.rotate(keep_old=False)

            async def is_valid() -> bool:
                return await status(broker, issuer.token("alice")) == ""

            await eventually_async(is_valid, timeout_s=20)
            assert await status(broker, old) == "invalid_token"


async def test_the_last_keys_stay_while_the_issuer_cannot_be_reached(tmp_path: Path) -> None:
    with TokenIssuer() as issuer:
        own = properties(issuer, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "20"})
        token = issuer.token("alice")
        running = running_broker(tmp_path, own)
        broker = await running.__aenter__()
    try:
        for _ in range(5):
            assert await status(broker, token) == ""
    finally:
        await running.__aexit__(None, None, None)


async def test_keys_in_a_file(tmp_path: Path, issuer: TokenIssuer) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(issuer.jwks))
    own = properties(issuer, **{URL: path.as_uri(), ALLOWED_FILES: str(path)})
    async with running_broker(tmp_path / "data", own) as broker:
        assert await status(broker, issuer.token("alice")) == ""


# ---- a start that fails


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({URL: "", ALLOW_UNSECURED: "false"}, "allowed: https:, http: and file:"),
        ({ALLOWED_URLS: ""}, "add http://.* to org.apache.kafka.sasl.oauthbearer.allowed.urls"),
        ({URL: "file:///etc/passwd"}, "add /etc/passwd to org.apache.kafka.sasl.oauthbearer.allowed.files"),
        ({URL: "ftp://127.0.0.1/jwks"}, "allowed: https:, http: and file:"),
        ({URL: "http://127.0.0.1:1/jwks", ALLOWED_URLS: "http://127.0.0.1:1/jwks"}, "the keys cannot be read"),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "com.example.Any"},
            "com.example.Any is not available",
        ),
    ],
)
async def test_cve_2025_27817_and_27818_a_start_without_allowed_keys_fails(
    tmp_path: Path, issuer: TokenIssuer, others: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with running_broker(tmp_path, properties(issuer) | others):
            pass


async def test_a_listener_without_keys_needs_a_property_to_accept_unsecured_tokens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"only with {ALLOW_UNSECURED}=true"):
        async with running_broker(tmp_path / "1", LISTENER):
            pass
    async with running_broker(tmp_path / "2", LISTENER | {ALLOW_UNSECURED: "true"}) as broker:
        assert await status(broker, unsecured_token({"sub": "alice", "exp": 4_000_000_000})) == ""
        assert await status(broker, unsecured_token({"sub": "alice", "exp": 1})) == "invalid_token"


def test_the_lists_are_known_properties() -> None:
    lists = {ALLOWED_URLS: "", ALLOWED_FILES: "", ALLOW_UNSECURED: "false"}
    assert BrokerConfig(lists | {"log.dirs": "x"}).unknown() == {}


# ---- the requests to an issuer


class Answers(BaseHTTPRequestHandler):
    """Responses that a client must not accept."""

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/large")
            self.end_headers()
        elif self.path == "/large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bytes(LARGEST_RESPONSE_BYTES + 1))
        else:
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()  # and no content

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["/redirect", "/large"])
def test_redirects_and_large_responses_are_failures(hostile: str, path: str) -> None:
    with pytest.raises(IssuerError):
        read_url(hostile + path, Timeouts(2, 2))


def test_the_secret_of_this_broker_is_in_no_message(hostile: str) -> None:
    for url in (f"{hostile}/redirect", "http://127.0.0.1:1/", "gopher://x/", "file:///tmp"):
        with pytest.raises(IssuerError) as raised:
            fetch_from_endpoint(url, Timeouts(1, 1), "broker", "broker-secret", None)
        assert "secret" not in f"{raised.value!r}{raised.value.__cause__!r}"


# ---- unsecured tokens beside Kafka's handler

NOW_S = SystemClock().now_ms() // 1000
VALUES: Any = ("alice", "", 7, None, NOW_S + 86_400, NOW_S - 86_400, NOW_S + 86_400.5, ["a", "b"], "a b", True)
values: Any = st.sampled_from(VALUES)
scopes: Any = values.filter(lambda each: each not in (True, None))  # texts for Kafka
subjects: Any = st.sampled_from(["alice", "a b"])  # Kafka makes users of numbers, of true and of nothing, too
claims = st.fixed_dictionaries(
    {"sub": subjects, "exp": st.just(NOW_S + 86_400) | values},
    optional={"iat": values, "scope": scopes},
)


@pytest.mark.jvm
@settings(max_examples=150, deadline=None)
@given(claims, st.sampled_from(["", "a", "a b"]))
def test_unsecured_tokens_are_accepted_as_by_kafka(classes: KafkaClasses, claims: Any, scope: str) -> None:
    options = {"unsecuredValidatorRequiredScope": scope} if scope else {}
    handler = classes.common("security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler")()
    entry = jpype.JClass("javax.security.auth.login.AppConfigurationEntry")
    flag = jpype.JClass("javax.security.auth.login.AppConfigurationEntry$LoginModuleControlFlag").REQUIRED
    name = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler.configure(java_map({}), "OAUTHBEARER", java_list([entry(name, flag, java_map(options))]))
    token = unsecured_token(claims)
    callback = classes.common("security.oauthbearer.OAuthBearerValidatorCallback")(token)
    callbacks = jpype.JArray(jpype.JClass("javax.security.auth.callback.Callback"))([callback])
    assert attempt(handler.handle, callbacks).error is None
    theirs = None if callback.token() is None else str(callback.token().principalName())
    status = None if theirs is not None else str(callback.errorStatus())
    assert _outcome(token, UnsecuredOptions.of_jaas(options)) == (theirs, status)


def _outcome(token: str, options: UnsecuredOptions) -> tuple[str | None, str | None]:
    """The principal of a token, or the error."""
    try:
        return validate_unsecured(token, options, NOW_S * 1000).principal_name, None
    except TokenRejectedError as error:
        return None, error.status
