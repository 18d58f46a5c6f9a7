"""The login of the console by a token: the form without a cluster, and a broker with SASL/OAUTHBEARER."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.client_configs import properties_text
from odradek.console.web.logins import LoginFormError, login_of
from odradek.console.web.settings import ConsoleSettings
from odradek.protocol.client.errors import LoginFailedError
from odradek.security import Security
from odradek.token_issuer import TokenIssuer
from tests.console.console_process import running_console
from tests.console.workspaces import GivenWorkspace, browser_of, token_of
from tests.support.eventually import eventually

OAUTH = "OAUTHBEARER"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": OAUTH}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
JAAS = {"sasl.jaas.config": 'a.OAuthBearerLoginModule required clientId="console" clientSecret="configured";'}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


def settings_of(**properties: str) -> ConsoleSettings:
    return ConsoleSettings("127.0.0.1:1", {**SASL, **properties})


def test_a_token_is_taken_as_it_is_until_it_expires(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = issuer.token("alice", valid_s=60)
    login = login_of(settings_of(**ENDPOINT, **JAAS), {"token": f" Bearer {token}\n"})
    assert login.user == "alice"
    assert login.expires_s == pytest.approx(time.time() + 60, abs=5)
    assert set(login.properties) == {*SASL, "oauth_cb"}, "neither the provider nor the console's own credentials"
    assert login.properties["oauth_cb"]("") == (token, login.expires_s)
    assert token not in repr(login)
    now_s = time.time()
    monkeypatch.setattr("odradek.console.web.logins.time.time", lambda: now_s + 70)
    with pytest.raises(LoginFailedError, match="The token expired at "):
        login.properties["oauth_cb"]("")
    with pytest.raises(LoginFormError, match=r"The token expired at .*Z\. Log in with a new one\."):
        login_of(settings_of(), {"token": token})


@pytest.mark.parametrize(
    "token", ["opaque", "a.b.c", "e30.e30.", "e30.W10.", "e30.eyJleHAiOiJ4In0.", "e30.eyJleHAiOjFlNDAwfQ."]
)
def test_a_token_without_a_time_is_taken_as_well(token: str) -> None:
    login = login_of(settings_of(), {"token": token})
    assert (login.user, login.expires_s) == ("token", None)
    assert login.properties["oauth_cb"]("")[0] == token


@pytest.mark.parametrize("token", ["", " ", "a b", "a\x01auth=Bearer b", "é", "a\nb"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(LoginFormError) as caught:
        login_of(settings_of(), {"token": token})
    assert "token" in str(caught.value)


def test_clients_of_a_provider_log_in_with_their_own_credentials() -> None:
    form = {"client_id": "alice", "client_secret": "secret"}
    login = login_of(settings_of(**ENDPOINT, **JAAS), form)
    assert login.user == "alice"
    assert login.properties["sasl.oauthbearer.client.secret"] == "secret"
    assert "configured" not in str(dict(login.properties))
    assert "secret" not in repr(login)
    for properties, wrong in (({}, form), (ENDPOINT, {"client_id": "alice"}), (ENDPOINT, {})):
        with pytest.raises(LoginFormError):
            login_of(settings_of(**properties), wrong)
    page = browser_of(GivenWorkspace(), properties={**SASL, **ENDPOINT}).get("/login").text
    assert 'name="client_secret"' in page
    assert 'name="client_secret"' not in browser_of(GivenWorkspace(), properties=SASL).get("/login").text


def test_a_session_ends_with_its_token_and_the_next_page_states_it(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = GivenWorkspace()
    given: list[Mapping[str, Any]] = []

    def connect(_: ConsoleSettings, properties: Mapping[str, Any]) -> GivenWorkspace:
        given.append(properties)
        return workspace

    client = browser_of(workspace, connect, properties=SASL, allow_changes=True)
    token = issuer.token("alice", valid_s=60)
    refused = client.post("/login", data={"csrf": token_of(client, "/login"), "token": "a b"})
    assert (refused.status_code, "a token has only letters" in refused.text) == (400, True)
    page = client.post("/login", data={"csrf": token_of(client, "/login"), "token": token})
    assert page.url.path == "/"
    assert "alice" in page.text
    assert token not in page.text
    csrf = token_of(client, "/topics/new")
    now_s = time.time()
    with monkeypatch.context() as patch:
        patch.setattr("odradek.console.web.sessions.time.time", lambda: now_s + 70)
        part = client.get("/topics", headers={"HX-Request": "true"})
        assert (part.headers["hx-redirect"], part.text) == ("/login", "")
        assert workspace.closed == 1
        answer = client.post("/topics/new", data={"csrf": csrf, "name": "late"})
        assert answer.url.path == "/login"
        assert "The token expired at " in answer.text
        assert "alice" not in answer.text
    assert len(given) == 1


def test_the_command_takes_the_mechanism(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served: list[ConsoleSettings] = []
    monkeypatch.setattr("odradek.console.web.serving.serve", served.append)
    path = tmp_path / "client.properties"
    for mechanism, code in ((OAUTH, 0), ("GSSAPI", 2)):
        path.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n")
        assert CliRunner().invoke(main, ["console", "--command-config", str(path)]).exit_code == code
    assert served[0].requires_login


@pytest.mark.slow
def test_users_log_in_to_a_broker_with_tokens(tmp_path: Path) -> None:
    """Administration goes over our own client, records over librdkafka. No token is in the log or in a file."""
    security = Security("oauth", users={"alice": "secret"})
    properties = {"connection.failed.authentication.delay.ms": "10", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path / "broker", properties, security=security) as broker:
        config = {**SASL, "sasl.oauthbearer.token.endpoint.url": broker.issuer.token_url}
        (tmp_path / "client.properties").write_text(properties_text(config))
        options = ("--command-config", str(tmp_path / "client.properties"), "--allow-changes")
        tokens = [broker.issuer.token("alice", **claims) for claims in ({"aud": "other"}, {}, {"valid_s": 3})]
        with running_console(tmp_path, broker.bootstrap, *options) as (address, _):
            client = httpx2.Client(base_url=address, follow_redirects=True, timeout=30)
            with client as console:
                check_tokens(console, *tokens)
        assert (tmp_path / "console.log").read_text() == ""
    written = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert not [token for token in tokens for each in written if token.encode() in each]


def check_tokens(console: Any, wrong: str, right: str, short: str) -> None:
    def log_in(**fields: str) -> Any:
        return console.post("/login", data={"csrf": token_of(console, "/login"), **fields})

    assert console.get("/topics").url.path == "/login"
    rejected = log_in(token=wrong)
    assert (rejected.status_code, "SASL/OAUTHBEARER with " in rejected.text) == (403, True)
    for number, fields in enumerate(({"token": right}, {"client_id": "alice", "client_secret": "secret"})):
        assert log_in(**fields).url.path == "/"
        topic, text = f"topic-{number}", f"by alice {number}"
        csrf = token_of(console, "/topics/new")
        assert console.post("/topics/new", data={"csrf": csrf, "name": topic}).status_code == 200
        assert console.post(f"/topics/{topic}/messages/new", data={"csrf": csrf, "value": text}).status_code == 200
        assert text in console.get(f"/topics/{topic}/messages").text
        assert console.post("/logout", data={"csrf": csrf}).url.path == "/login"
    found = log_in(token=short)
    if found.url.path == "/":  # a slow machine may take longer than the token is valid
        found = eventually(lambda: console.get("/topics"), lambda answer: answer.url.path == "/login")
    assert "The token expired at " in found.text
