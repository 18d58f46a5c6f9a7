"""franz-go, Sarama and KafkaJS over TLS with every mechanism that they have, each also with a rejected login."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.clients.toolchain import AbsentError, go_command, node_command
from tests.jvm.process import run_java
from tests.security.witnesses import LOGINS, MTLS, OAUTH, USER, WRONG_PASSWORD, SecuredBrokers, running_secured_brokers

pytestmark = [pytest.mark.slow]

TIMEOUT_S = 120.0


class Program(NamedTuple):
    """A program of tests/clients for one library."""

    library: str
    command: Callable[[], list[str]]
    value: str
    """The record that it writes."""
    rejected_token: str
    """Its error for a token that the broker rejects: only some libraries read that error in the broker's challenge."""


PROGRAMS = [
    Program("franz-go", lambda: go_command("franz-logins"), "by franz-go", "unexpected data in oauth"),
    Program("Sarama", lambda: go_command("sarama-logins"), "by Sarama", "invalid credentials"),
    Program("KafkaJS", lambda: node_command("logins.js"), "by KafkaJS", "Closed connection"),
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with running_secured_brokers(tmp_path_factory.mktemp("secured")) as running:
        yield running


def line(brokers: SecuredBrokers, program: Program, login: str, *, wrong: bool) -> dict[str, Any]:
    """A login as the programs read it."""
    config = brokers.config(login, "confluent-kafka")
    issuer = brokers.sasl.issuer
    token = issuer.token(USER, aud="another-service") if wrong else issuer.token(USER)
    return {
        "Name": f"{login} {'wrong' if wrong else 'right'}",
        "Bootstrap": config["bootstrap.servers"],
        "Topic": f"{program.library}-{login}",
        "Authorities": config["ssl.ca.location"],
        "Keystore": "" if wrong else config.get("ssl.key.location", ""),
        "Mechanism": config.get("sasl.mechanism", ""),
        "User": config.get("sasl.username", ""),
        "Password": WRONG_PASSWORD if wrong else config.get("sasl.password", ""),
        "Token": token if login == OAUTH else "",
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.library)
def test_logins(brokers: SecuredBrokers, tmp_path: Path, program: Program) -> None:
    try:
        command = program.command()
    except AbsentError as error:
        pytest.skip(str(error))
    logins = [line(brokers, program, login, wrong=wrong) for login in LOGINS for wrong in (False, True)]
    file = tmp_path / "logins.json"
    file.write_text("".join(json.dumps(each) + "\n" for each in logins))
    printed = run_java([*command, str(file)], timeout_s=TIMEOUT_S).stdout
    errors = {"PLAIN": "Invalid username or password", MTLS: "certificate required", OAUTH: program.rejected_token}
    outcomes = [text.split(": ", 1) for text in printed.splitlines()]
    assert [name for name, _ in outcomes] == [each["Name"] for each in logins]
    for name, outcome in outcomes:
        login = name.split()[0]
        if name.endswith("right"):
            assert outcome == program.value, name
        else:
            assert outcome.startswith("error: "), name
            assert errors.get(login, f"invalid credentials with SASL mechanism {login}") in outcome, name
