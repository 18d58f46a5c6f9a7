"""SASL/PLAIN beside Kafka's PlainSaslServer."""

from __future__ import annotations

from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.protocol.sasl.exchange import IllegalSaslStateError, SaslAuthenticationError, SaslError
from odradek.protocol.sasl.plain import PlainServer, client_message, password_check
from tests.security.callbacks import handler
from tests.security.kafka_classes import KafkaClasses, attempt, java_bytes

USERS = {"user_alice": "secret", "user_": "empty", "user_bö": "pässword", "other": "x"}


def _kafka_server(classes: KafkaClasses) -> Any:
    named: list[str] = []

    def check(callback: Any) -> None:
        expected = USERS.get(f"user_{named[-1]}")
        callback.authenticated(expected is not None and expected == str(jpype.JString(callback.password())))

    made = handler(
        classes,
        NameCallback=lambda each: named.append(str(each.getDefaultName())),
        PlainAuthenticateCallback=check,
    )
    return classes.common("security.plain.internals.PlainSaslServer")(made)


@pytest.mark.jvm
@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(("\0", "alice", "secret", "bö", "pässword", "", "other", "x")), max_size=7)
    .map("".join)
    .map(str.encode)
    | st.binary(max_size=12)
)
@example(b"\0alice\0secret")
@example(b"alice\0alice\0secret")
@example(b"bob\0alice\0secret")
@example("\0bö\0pässword".encode())
@example(b"\0\0empty")
@example(b"\0alice\0secret\0")
@example(b"\0alice\0secret\0\0\0")
def test_decisions_are_those_of_kafka(classes: KafkaClasses, message: bytes) -> None:
    kafka, server = _kafka_server(classes), PlainServer(password_check(USERS))
    theirs = attempt(kafka.evaluateResponse, java_bytes(message))
    if theirs.error is not None:
        with pytest.raises(SaslError) as caught:
            server.evaluate(message)
        assert str(caught.value) == theirs.message
        assert isinstance(caught.value, SaslAuthenticationError) == (theirs.error == "SaslAuthenticationException")
        assert not server.complete
    else:
        assert server.evaluate(message) == bytes(theirs.value)
        assert server.complete
        assert server.authorization_id == str(kafka.getAuthorizationID())


def test_the_messages_of_clients_are_accepted() -> None:
    server = PlainServer(password_check(USERS))
    assert server.evaluate(client_message("alice", "secret")) == b""
    assert server.authorization_id == "alice"
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(client_message("bö", "pässword"))
    assert server.authorization_id == "alice"


@given(st.text(), st.text(), st.text())
def test_only_the_exact_password_is_accepted(user: str, password: str, other: str) -> None:
    check = password_check({f"user_{user}": password})
    assert check(user, password)
    assert check(user, other) == (password == other)
    assert check(other, password) == (user == other)
