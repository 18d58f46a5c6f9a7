"""The login of the console on a broker with SASL and ACLs: each user sees what the cluster lets this user see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from odradek.broker_process import BrokerProcess
from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from odradek.security import Security, allow
from tests.console.workspaces import token_of
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
ACLS = [
    allow("alice", topic="*", group="*", cluster=True),
    allow("bob", read="bobs", describe="bobs"),
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    security = Security("scram", users=USERS, acls=ACLS)
    with BrokerProcess(tmp_path_factory.mktemp("secured"), security=security) as running:
        yield running


@pytest.fixture
def console(secured: BrokerProcess) -> Iterator[TestClient]:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    settings = ConsoleSettings(secured.bootstrap, properties, allow_changes=True, interval_s=0.3)
    with TestClient(application(settings), base_url="http://127.0.0.1:8080") as client:
        yield client


def log_in(console: TestClient, user: str, password: str) -> int:
    form = {"csrf": token_of(console, "/login"), "user": user, "password": password}
    return console.post("/login", data=form).status_code


def test_a_user_has_the_rights_of_the_clusters_acls(console: TestClient) -> None:
    assert console.get("/topics").url.path == "/login"
    assert log_in(console, "alice", "wrong") == 403
    assert log_in(console, "alice", USERS["alice"]) == 200
    for name in ("alices", "bobs"):
        form = {"csrf": token_of(console, "/topics/new"), "name": name}
        assert console.post("/topics/new", data=form).status_code == 200
    console.post("/topics/bobs/messages/new", data={"csrf": token_of(console, "/topics/new"), "value": "for bob"})
    assert "for bob" in console.get("/topics/bobs/messages").text
    assert "User:bob" in console.get("/access").text
    console.post("/logout", data={"csrf": token_of(console, "/topics/new")})
    assert console.get("/topics").url.path == "/login"
    assert log_in(console, "bob", USERS["bob"]) == 200
    eventually(lambda: "/topics/bobs" in console.get("/topics").text)
    assert "alices" not in console.get("/topics").text
    assert "for bob" in console.get("/topics/bobs/messages").text
    form = {"csrf": token_of(console, "/topics/new"), "value": "by bob"}
    refused = console.post("/topics/bobs/messages/new", data=form)
    assert refused.status_code == 400
    assert "authorization" in refused.text.lower()
    form = {"csrf": token_of(console, "/topics/new"), "name": "more"}
    assert console.post("/topics/new", data=form).status_code == 400
    assert "may not do this with the cluster" in console.get("/access").text
