"""SCRAM beside Kafka's ScramSaslServer, ScramSaslClient and ScramMessages, in both roles."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.protocol.sasl import scram_messages
from odradek.protocol.sasl.exchange import IllegalSaslStateError, SaslAuthenticationError, SaslError
from odradek.protocol.sasl.scram import ScramClient, ScramServer, ScramState, TokenCredential, salted_password
from odradek.protocol.sasl.scram_credentials import (
    MECHANISMS,
    CredentialError,
    Mechanism,
    ScramCredential,
    derived_keys,
)
from tests.security.callbacks import handler
from tests.security.kafka_classes import KafkaClasses, java_bytes, java_map

mechanisms = st.sampled_from(list(MECHANISMS.values()))
users = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=12)
passwords = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SHA_256 = MECHANISMS[1]
SALT = b"0123456789"


def _credential(mechanism: Mechanism, password: str, iterations: int = 4096, salt: bytes = SALT) -> ScramCredential:
    _, stored, server = derived_keys(salted_password(mechanism, password, salt, iterations), mechanism.hash)
    return ScramCredential(salt, stored, server, iterations)


def _kafka_mechanism(classes: KafkaClasses, mechanism: Mechanism) -> Any:
    return classes.common("security.scram.internals.ScramMechanism").forMechanismName(mechanism.name)


def _kafka_client(
    classes: KafkaClasses, mechanism: Mechanism, user: str, password: str, extensions: dict[str, str]
) -> Any:
    made = handler(
        classes,
        NameCallback=lambda each: each.setName(user),
        PasswordCallback=lambda each: each.setPassword(jpype.JString(password).toCharArray()),
        ScramExtensionsCallback=lambda each: each.extensions(java_map(extensions)),
    )
    client = classes.common("security.scram.internals.ScramSaslClient")
    return client(_kafka_mechanism(classes, mechanism), made)


def _kafka_server(classes: KafkaClasses, mechanism: Mechanism, credentials: dict[str, ScramCredential]) -> Any:
    named: list[str] = []

    def find(callback: Any) -> None:
        found = credentials.get(named[-1])
        if found is not None:
            salt, stored, server, iterations = found
            kind = classes.common("security.scram.ScramCredential")
            callback.scramCredential(kind(java_bytes(salt), java_bytes(stored), java_bytes(server), iterations))

    made = handler(
        classes,
        NameCallback=lambda each: named.append(str(each.getDefaultName())),
        ScramCredentialCallback=find,
    )
    server = classes.common("security.scram.internals.ScramSaslServer")
    return server(_kafka_mechanism(classes, mechanism), java_map({}), made)


def _server(mechanism: Mechanism, credentials: dict[str, ScramCredential], nonce: str = "server") -> ScramServer:
    return ScramServer(mechanism, nonce, credentials.get, lambda _: None)


@pytest.mark.jvm
@settings(max_examples=60)
@given(mechanisms, users, passwords, passwords, st.integers(4096, 4200), st.binary(min_size=1, max_size=20))
def test_kafkas_client_logs_in_here(
    classes: KafkaClasses, mechanism: Mechanism, user: str, password: str, other: str, iterations: int, salt: bytes
) -> None:
    server = _server(mechanism, {user: _credential(mechanism, password, iterations, salt)})
    client = _kafka_client(classes, mechanism, user, other, {})
    challenge = server.evaluate(bytes(client.evaluateChallenge(java_bytes(b""))))
    proof = bytes(client.evaluateChallenge(java_bytes(challenge)))
    if password != other:
        with pytest.raises(SaslError, match="Invalid client credentials"):
            server.evaluate(proof)
        assert server.state is ScramState.FAILED
        return
    client.evaluateChallenge(java_bytes(server.evaluate(proof)))
    assert client.isComplete()
    assert server.complete
    assert server.authorization_id == user
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(proof)


@pytest.mark.jvm
@settings(max_examples=60)
@given(mechanisms, users, passwords, passwords, st.integers(4096, 5000), st.binary(min_size=1, max_size=20))
def test_this_client_logs_in_at_kafka(
    classes: KafkaClasses, mechanism: Mechanism, user: str, password: str, other: str, iterations: int, salt: bytes
) -> None:
    server = _kafka_server(classes, mechanism, {user: _credential(mechanism, password, iterations, salt)})
    client = ScramClient(mechanism, user, "fyko+d2lbbFgONRv9qkxdawL")
    first = client.receive_first(bytes(server.evaluateResponse(java_bytes(client.first_message()))))
    assert (first.salt, first.iterations) == (salt, iterations)
    proof = client.final_message(salted_password(mechanism, other, first.salt, first.iterations))
    if password != other:
        with pytest.raises(jpype.JException, match="Invalid client credentials"):
            server.evaluateResponse(java_bytes(proof))
        return
    client.receive_final(bytes(server.evaluateResponse(java_bytes(proof))))
    assert client.complete
    assert str(server.getAuthorizationID()) == user


_FIRST = (
    "n,,",
    "n,a=u,",
    "y,,",
    "n=u",
    "n=u=2Cx=3D",
    "n=",
    "n=u=",
    "n=ü",
    ",r=abc",
    ",r=",
    ",r=a b",
    ",tokenauth=true",
)
_SECOND = (
    "m=x,",
    "r=abc",
    "r=",
    ",s=YQ==",
    ",s=",
    ",s=YR==",
    ",s=Y",
    ",i=4096",
    ",i=0",
    ",i=x",
    ",i=99999999999",
    ",a=b",
)
_THIRD = ("c=biws", "c=", "c=!", ",r=abc", ",r=", ",x=y", ",x=", ",p=YQ==", ",p=", ",p=Y", "p=YQ==", "\n")
_FOURTH = ("e=other-error", "e=", "e=a=b", "v=YQ==", "v=", "v=Y", ",x=y", ",x", "\x00")


def _pieces(*pieces: str) -> st.SearchStrategy[bytes]:
    usual = st.lists(st.sampled_from(pieces), min_size=1, max_size=5).map("".join)
    return usual.map(str.encode) | st.binary(max_size=8)


def _decode(classes: KafkaClasses, kind: str, message: bytes) -> Any:
    try:
        return classes.common(f"security.scram.internals.ScramMessages${kind}")(java_bytes(message))
    except jpype.JException:
        return None


def _decoded(decode: Any, message: bytes) -> Any:
    try:
        return decode(message)
    except SaslError:
        return None


@pytest.mark.jvm
@settings(max_examples=400)
@given(_pieces(*_FIRST, "m=x,", ",b=c", ",tokenauth=TRUE"))
@example(b"n,,n=u,r=abc,tokenauth=true")
@example(b"n,a=u,n=u=2Cx=3D,r=abc,x=y=z,tokenauth=True")
@example(b"n,,m=x,n=u,r=abc")
def test_first_messages_are_read_as_kafka_reads_them(classes: KafkaClasses, message: bytes) -> None:
    theirs = _decode(classes, "ClientFirstMessage", message)
    ours = _decoded(scram_messages.decode_client_first, message)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        formatter = classes.common("security.scram.internals.ScramFormatter")
        assert ours.name == str(formatter.username(theirs.saslName()))
        assert (ours.nonce, ours.authorization_id) == (str(theirs.nonce()), str(theirs.authorizationId()))
        assert ours.extensions == {str(key): str(value) for key, value in dict(theirs.extensions().map()).items()}
        assert ours.token_authenticated == theirs.extensions().tokenAuthenticated()
        if len(ours.extensions) < 2 and message.count(b",tokenauth") < 2 and message.count(b",b=") < 2:
            assert ours.bare == str(theirs.clientFirstMessageBare()).encode()


def test_a_message_that_would_occupy_the_event_loop_is_not_parsed() -> None:
    """Before authentication `sasl.server.max.receive.size` allows half a megabyte."""
    begin, end = b"n,,n=", b",r=nonce"
    name = b"a" * (scram_messages.MOST_BYTES - len(begin) - len(end))
    assert scram_messages.decode_client_first(begin + name + end).name == name.decode()
    with pytest.raises(SaslError, match="format"):
        scram_messages.decode_client_first(begin + name + b"a" + end)


@pytest.mark.jvm
@settings(max_examples=300)
@given(_pieces(*_SECOND))
@example(b"r=abc,s=YQ==,i=4096")
@example(b"m=x,r=abc,s=YR==,i=4096,a=b")
def test_server_first_messages_are_read_as_kafka_reads_them(classes: KafkaClasses, message: bytes) -> None:
    theirs = _decode(classes, "ServerFirstMessage", message)
    ours = _decoded(scram_messages.decode_server_first, message)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert ours == (str(theirs.nonce()), bytes(theirs.salt()), theirs.iterations())
        assert ours.encode() == bytes(theirs.toBytes())


@pytest.mark.jvm
@settings(max_examples=300)
@given(_pieces(*_THIRD))
@example(b"c=biws,r=abc,x=y,p=YQ==")
def test_final_messages_are_read_as_kafka_reads_them(classes: KafkaClasses, message: bytes) -> None:
    theirs = _decode(classes, "ClientFinalMessage", message)
    ours = _decoded(scram_messages.decode_client_final, message)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert (ours.nonce, ours.proof) == (str(theirs.nonce()), bytes(theirs.proof()))
        assert ours.signed == str(theirs.clientFinalMessageWithoutProof()).encode()


@pytest.mark.jvm
@settings(max_examples=300)
@given(_pieces(*_FOURTH))
@example(b"v=YQ==,x=y")
@example(b"e=other-error")
def test_server_final_messages_are_read_as_kafka_reads_them(classes: KafkaClasses, message: bytes) -> None:
    theirs = _decode(classes, "ServerFinalMessage", message)
    ours = _decoded(scram_messages.decode_server_final, message)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert ours.error == (None if theirs.error() is None else str(theirs.error()))
        assert ours.signature == (None if theirs.serverSignature() is None else bytes(theirs.serverSignature()))


@pytest.mark.jvm
@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            ("salt=YQ==", "salt=YQ", "salt=!", "stored_key=Yg==", "server_key=Yw==", "iterations=4096", "x=y")
        ),
        unique=True,
        max_size=6,
    ).map(",".join)
)
@example("salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096")
def test_credentials_are_read_as_kafka_reads_them(classes: KafkaClasses, text: str) -> None:
    utils = classes.common("security.scram.internals.ScramCredentialUtils")
    try:
        theirs = utils.credentialFromString(text)
    except jpype.JException:
        with pytest.raises(CredentialError):
            ScramCredential.decode(text)
        return
    if text.count("salt=") == 1:
        ours = ScramCredential.decode(text)
        assert ours[:3] == tuple(bytes(each) for each in (theirs.salt(), theirs.storedKey(), theirs.serverKey()))
        assert ours.iterations == theirs.iterations()
        assert ours.encode() == str(utils.credentialToString(theirs))


def _both_reject(classes: KafkaClasses, credentials: dict[str, ScramCredential], first: bytes, expected: str) -> None:
    with pytest.raises(jpype.JException, match=expected):
        _kafka_server(classes, SHA_256, credentials).evaluateResponse(java_bytes(first))
    with pytest.raises(SaslError, match=expected):
        _server(SHA_256, credentials).evaluate(first)


@pytest.mark.jvm
def test_rejects_the_logins_that_kafka_rejects(classes: KafkaClasses) -> None:
    known = {"u": _credential(SHA_256, "p"), "weak": _credential(SHA_256, "p", 4095)}
    _both_reject(classes, known, b"n,,n=unknown,r=abc", "Invalid user credentials")
    _both_reject(classes, known, b"n,,n=weak,r=abc", "Iterations 4095 is less than the minimum 4096")
    _both_reject(classes, known, b"n,a=other,n=u,r=abc", "authorization id that is different from username")
    _both_reject(classes, known, b"n,,n=u", "Invalid SCRAM client first message format")
    with pytest.raises(SaslAuthenticationError):
        _server(SHA_256, known).evaluate(b"n,a=other,n=u,r=abc")


@pytest.mark.jvm
def test_a_client_may_repeat_its_part_of_the_nonce(classes: KafkaClasses) -> None:
    """librdkafka 2.0 (of kcat in Debian 12) does so, and Kafka accepts it. No other text may precede the nonce here."""
    credentials = {"u": _credential(SHA_256, "p")}
    for server in (_server(SHA_256, credentials), _kafka_server(classes, SHA_256, credentials)):

        def evaluate(message: bytes, server: Any = server) -> bytes:
            return bytes(
                server.evaluate(message)
                if isinstance(server, ScramServer)
                else server.evaluateResponse(java_bytes(message))
            )

        first_bare = b"n=u,r=client"
        challenge = evaluate(b"n,," + first_bare)
        first = scram_messages.decode_server_first(challenge)
        signed = scram_messages.client_final_signed("client" + first.nonce)
        message = b",".join((first_bare, challenge, signed))
        client_key, stored_key, server_key = derived_keys(salted_password(SHA_256, "p", SALT, 4096), "sha256")
        signature = hmac.digest(stored_key, message, "sha256")
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        final = evaluate(scram_messages.encode_client_final(signed, proof))
        assert final == scram_messages.encode_server_final(hmac.digest(server_key, message, "sha256"))


@pytest.mark.jvm
@pytest.mark.parametrize("change", [lambda nonce: nonce[3:], lambda nonce: "x" + nonce[1:], lambda nonce: nonce + "x"])
def test_compares_the_whole_nonce(classes: KafkaClasses, change: Any) -> None:
    """CVE-2024-56128: only the end of the nonce was compared, so a client could replay a proof."""
    known = {"u": _credential(SHA_256, "p")}
    theirs = _kafka_server(classes, SHA_256, known)
    for evaluate in (
        _server(SHA_256, known).evaluate,
        lambda message: bytes(theirs.evaluateResponse(java_bytes(message))),
    ):
        client = ScramClient(SHA_256, "u", "abcdef")
        first = client.receive_first(evaluate(client.first_message()))
        signed = scram_messages.client_final_signed(change(first.nonce))
        client_key, stored, _ = derived_keys(salted_password(SHA_256, "p", first.salt, first.iterations), "sha256")
        text = client._first.bare + b"," + first.encode() + b"," + signed
        signature = hmac.digest(stored, text, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        with pytest.raises((SaslError, jpype.JException), match="Invalid client nonce"):
            evaluate(scram_messages.encode_client_final(signed, proof))


def test_a_token_logs_in_as_its_owner() -> None:
    credential = _credential(SHA_256, "hmac-of-the-token")
    token = TokenCredential(credential, "alice", 1_000)
    for tokens, users_, expected in (({"t": token}, {}, "alice"), ({}, {"t": credential}, None)):
        server = ScramServer(SHA_256, "server", users_.get, tokens.get)
        client = ScramClient(SHA_256, "t", "abc", token_authenticated=True)
        if expected is None:
            with pytest.raises(SaslError, match="Invalid tokenId : t"):
                server.evaluate(client.first_message())
            continue
        first = client.receive_first(server.evaluate(client.first_message()))
        salted = salted_password(SHA_256, "hmac-of-the-token", first.salt, first.iterations)
        client.receive_final(server.evaluate(client.final_message(salted)))
        assert (server.authorization_id, server.token_expiry_timestamp_ms) == ("alice", 1_000)
        assert server.token_authenticated


@pytest.mark.jvm
def test_kafkas_client_logs_in_with_a_token(classes: KafkaClasses) -> None:
    token = TokenCredential(_credential(SHA_256, "secret"), "alice", 1_000)
    server = ScramServer(SHA_256, "server", lambda user: None, {"t": token}.get)
    client = _kafka_client(classes, SHA_256, "t", "secret", {"tokenauth": "true"})
    challenge = server.evaluate(bytes(client.evaluateChallenge(java_bytes(b""))))
    client.evaluateChallenge(java_bytes(server.evaluate(bytes(client.evaluateChallenge(java_bytes(challenge))))))
    assert server.authorization_id == "alice"


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        (b"r=xbc,s=YQ==,i=4096", "does not start with client nonce"),
        (b"r=abcd,s=YQ==,i=4095", "less than the minimum 4096"),
        (b"r=abcd,s=YQ==,i=16385", "more than the maximum 16384"),
        (b"r=abcd,s=YQ==,i=2147483648", "invalid iterations"),
    ],
)
def test_the_client_bounds_what_a_server_requests(challenge: bytes, expected: str) -> None:
    with pytest.raises(SaslError, match=expected):
        ScramClient(SHA_256, "u", "abc").receive_first(challenge)


def test_the_client_authenticates_the_server() -> None:
    server, client = _server(SHA_256, {"u": _credential(SHA_256, "p")}), ScramClient(SHA_256, "u", "abc")
    first = client.receive_first(server.evaluate(client.first_message()))
    final = server.evaluate(client.final_message(salted_password(SHA_256, "p", first.salt, first.iterations)))
    for wrong in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"e=other-error", b"x"):
        with pytest.raises(SaslError):
            client.receive_final(wrong)
        assert not client.complete
    client.receive_final(final)
    assert client.complete


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
def test_any_bytes_are_rejected(messages: list[bytes]) -> None:
    server = _server(SHA_256, {"u": _credential(SHA_256, "p")})
    server.evaluate(b"n,,n=u,r=abc")
    for message in messages:
        with pytest.raises(SaslError):
            server.evaluate(message)
        assert server.state is ScramState.FAILED


def test_no_error_has_a_secret() -> None:
    for text in ("secret", "salt=secret!,stored_key=secret,server_key=secret,iterations=secret"):
        with pytest.raises(CredentialError) as caught:
            ScramCredential.decode(text)
        assert "secret" not in f"{caught.value}{caught.value.__cause__}"
    with pytest.raises(SaslError) as rejected:
        _server(SHA_256, {}).evaluate(b"p=c2VjcmV0")
    assert "c2VjcmV0" not in str(rejected.value)
