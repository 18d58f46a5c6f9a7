"""SASL/OAUTHBEARER beside Kafka's OAuthBearerSaslServer, OAuthBearerSaslClient and OAuthBearerClientInitialResponse."""

from __future__ import annotations

from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.protocol.sasl.exchange import IllegalSaslStateError, SaslAuthenticationError, SaslError
from odradek.protocol.sasl.oauthbearer import (
    InitialResponse,
    OAuthBearerClient,
    OAuthBearerServer,
    OAuthBearerToken,
    TokenRejectedError,
)
from tests.security.callbacks import handler
from tests.security.kafka_classes import KafkaClasses, attempt, java_bytes, java_map

ALICE = OAuthBearerToken("alice", 2_000, 1_000, frozenset({"kafka"}))


def _validate(token: str) -> OAuthBearerToken:
    if token == "good":
        return ALICE
    raise TokenRejectedError("unknown", "invalid_token", "kafka" if token == "scope" else None)


def _kafka_server(classes: KafkaClasses) -> Any:
    def validate(callback: Any) -> None:
        value = str(callback.tokenValue())
        if value == "good":
            kind = classes.common("security.oauthbearer.internals.secured.BasicOAuthBearerToken")
            scope = jpype.JClass("java.util.HashSet")()
            callback.token(kind("good", scope, 2_000, "alice", jpype.JClass("java.lang.Long").valueOf(1_000)))
        else:
            callback.error("invalid_token", "kafka" if value == "scope" else None, None)

    def extensions(callback: Any) -> None:
        for name in list(callback.inputExtensions().map().keySet()):
            callback.valid(name)

    made = handler(classes, OAuthBearerValidatorCallback=validate, OAuthBearerExtensionsValidatorCallback=extensions)
    return classes.common("security.oauthbearer.internals.OAuthBearerSaslServer")(made)


PIECES: tuple[str, ...] = (
    "n,,",
    "n,a=alice,",
    "n,a=bob,",
    "y,,",
    "\x01",
    "\x01",
    "auth=Bearer good",
    "auth=bearer  good",
    "auth=bad",
)
PIECES += ("auth=Bearer scope", "auth=Basic good", "auth=Bearer go od", "x=y", "x=y=z", "x1=y", "x=", "x=ü", "\n")


@pytest.mark.jvm
@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join).map(str.encode))
@example(b"n,,\x01auth=Bearer good\x01\x01")
@example(b"n,,\x01auth=BEARER   good\x01x=y=z\x01Ab=c d\x01\x01")
@example(b"n,a=alice,\x01x=y\x01auth=Bearer good\x01\x01")
@example(b"n,a=bob,\x01auth=Bearer good\x01\x01")
@example(b"n,,\x01auth=Bearer scope\x01\x01")
@example(b"n,,\x01auth=Bearer bad\x01\x01")
@example(b"n,,\x01auth=Basic good\x01\x01")
@example(b"n,,\x01x=y\x01\x01")
@example(b"n,,\x01\x01")
@example(b"\x01")
def test_decisions_are_those_of_kafka(classes: KafkaClasses, message: bytes) -> None:
    kafka, server = _kafka_server(classes), OAuthBearerServer(_validate)
    for each in (message, b"\x01"):
        theirs = attempt(kafka.evaluateResponse, java_bytes(each))
        if theirs.error is not None:
            with pytest.raises(SaslError) as caught:
                server.evaluate(each)
            shown = isinstance(caught.value, SaslAuthenticationError)
            assert shown == (theirs.error == "SaslAuthenticationException")
            assert not shown or str(caught.value) == theirs.message
            return
        assert server.evaluate(each) == bytes(theirs.value)
        assert server.complete == kafka.isComplete()
        if server.complete:
            assert server.authorization_id == str(kafka.getAuthorizationID())
            for name in ("x", "Ab"):
                value = kafka.getNegotiatedProperty(name)
                assert server.extensions.get(name) == (None if value is None else str(value))
            with pytest.raises(IllegalSaslStateError):
                server.evaluate(message)
            return


@pytest.mark.jvm
@pytest.mark.parametrize("token", ["a.b-c_d", "a+b", "a/b", "a~b", "a==", "=", "", "a b", "ü"])
def test_tokens_have_kafkas_form(classes: KafkaClasses, token: str) -> None:
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    kind = classes.common("security.oauthbearer.internals.OAuthBearerClientInitialResponse")
    theirs = attempt(kind, java_bytes(message))
    if theirs.error is not None:
        with pytest.raises(SaslError, match="Invalid OAUTHBEARER client first message"):
            InitialResponse.decode(message)
    else:
        assert InitialResponse.decode(message).token == str(theirs.value.tokenValue()) == token


@pytest.mark.jvm
@settings(max_examples=200)
@given(
    st.sampled_from(("", "alice", "a=b")),
    st.dictionaries(
        st.sampled_from(("a", "Bc", "auth", "x1", "")), st.sampled_from(("v", "v=w", "", "ü", "a b")), max_size=1
    ),
)
def test_first_messages_are_those_of_kafka(
    classes: KafkaClasses, authorization_id: str, extensions: dict[str, str]
) -> None:
    kafka_extensions = classes.common("security.auth.SaslExtensions")(java_map(extensions))
    kind = classes.common("security.oauthbearer.internals.OAuthBearerClientInitialResponse")
    ours = InitialResponse("good", authorization_id, extensions)
    theirs = attempt(kind, "good", authorization_id, kafka_extensions)
    if theirs.error is not None:
        with pytest.raises(SaslError) as caught:
            ours.encode()
        assert str(caught.value) == theirs.message
    else:
        assert ours.encode() == bytes(theirs.value.toBytes())


@pytest.mark.jvm
def test_this_client_ends_as_kafkas_client(classes: KafkaClasses) -> None:
    for token in ("good", "bad"):
        client, server = OAuthBearerClient(InitialResponse(token)), _kafka_server(classes)
        answer = client.receive(bytes(server.evaluateResponse(java_bytes(client.first_message()))))
        assert client.complete == server.isComplete() == (token == "good")
        if answer is not None:
            with pytest.raises(jpype.JException, match="invalid_token"):
                server.evaluateResponse(java_bytes(answer))
        with pytest.raises(IllegalSaslStateError):
            client.receive(b"")


@given(st.binary(max_size=60))
def test_no_error_has_the_token(junk: bytes) -> None:
    for message in (junk, b"n,,\x01auth=Bearer s3cret!\x01\x01", b"n,,\x01auth=Basic s3cret\x01\x01"):
        with pytest.raises(SaslError) as caught:
            OAuthBearerServer(_validate).evaluate(message)
        assert "s3cret" not in str(caught.value)
