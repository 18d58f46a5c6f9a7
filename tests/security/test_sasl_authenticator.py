"""The authenticator before the end of an authentication: transcripts, attacks by number, and frames of any content."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.security.sasl_credentials import CredentialCache
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.broker.security.state.sasl import SaslMechanism
from odradek.broker.security.state.sasl_server_authenticator import (
    MOST_API_VERSIONS_BYTES,
    MOST_FRAMES,
    AnswerApiVersions,
    Authenticated,
    Closed,
    Outcome,
    Previous,
    Rejected,
    Respond,
    SaslServerAuthenticator,
    SaslState,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import request_header, response_header_version
from odradek.protocol.sasl import plain
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.oauthbearer import (
    InitialResponse,
    OAuthBearerServer,
    OAuthBearerToken,
    TokenRejectedError,
)
from odradek.protocol.sasl.scram import ScramClient, ScramServer, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS, UserScramCredentialUpsertion, text

ALICE = KafkaPrincipal("User", "alice")
PASSWORDS = {"user_alice": "alice-secret", "user_bob": "bob-secret"}
SHA_256 = MECHANISMS[1]
NOW_MS = 1_700_000_000_000


def credentials(**users: str) -> CredentialCache:
    cache = CredentialCache(b"a secret of this broker")
    for user, password in users.items():
        hashed = salted_password(SHA_256, password, b"salt", 4096)
        cache.update(user, {SHA_256.name: text(UserScramCredentialUpsertion(user, 1, 4096, b"salt", hashed))})
    return cache


CREDENTIALS = credentials(alice="alice-secret", bob="bob-secret")


def mechanisms(max_reauth_ms: int = 0) -> Mapping[str, SaslMechanism]:
    check = plain.password_check(PASSWORDS)
    find = partial(CREDENTIALS.find, SHA_256.name)
    token = OAuthBearerToken("alice", NOW_MS + 60_000, None, frozenset())
    return {
        "PLAIN": SaslMechanism("PLAIN", partial(plain.PlainServer, check), max_reauth_ms),
        SHA_256.name: SaslMechanism(SHA_256.name, lambda: ScramServer(SHA_256, "s", find, lambda _: None)),
        "OAUTHBEARER": SaslMechanism("OAUTHBEARER", lambda: OAuthBearerServer(lambda _: token), max_reauth_ms),
    }


def request(message: Any, version: int, correlation_id: int = 7) -> bytes:
    return request_header(message.API_KEY, version, correlation_id, "client") + bytes(message.encode(version))


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(m.SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(token: bytes, version: int = 2) -> bytes:
    return request(m.SaslAuthenticateRequest(auth_bytes=token), version)


def response(kind: type, frame: bytes | None, version: int) -> Any:
    assert frame is not None
    assert frame[:4] == (7).to_bytes(4, "big")
    key = kind.__name__.removesuffix("Response")
    header = 4 + response_header_version(getattr(m, f"{key}Request").API_KEY, version)
    return kind.decode(frame, version, header)  # type: ignore[attr-defined]


def authenticator(max_reauth_ms: int = 0, previous: Previous | None = None) -> SaslServerAuthenticator:
    return SaslServerAuthenticator(mechanisms(max_reauth_ms), previous)


def play(server: SaslServerAuthenticator, *frames: bytes) -> Outcome:
    """The outcome of the last frame; those before it continue."""
    *before, last = frames
    for frame in before:
        assert isinstance(server.receive(frame, NOW_MS), Respond | AnswerApiVersions)
    return server.receive(last, NOW_MS)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_handshake_and_authentication(version: int) -> None:
    server = authenticator()
    versions = request(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    assert server.receive(versions, NOW_MS) == AnswerApiVersions()
    assert server.state is SaslState.HANDSHAKE_REQUEST
    answer = server.receive(handshake(), NOW_MS)
    assert isinstance(answer, Respond)
    offered = response(m.SaslHandshakeResponse, answer.frame, 1)
    assert (offered.error_code, offered.mechanisms) == (0, ["PLAIN", SHA_256.name, "OAUTHBEARER"])
    end = server.receive(authenticate(plain.client_message("alice", "alice-secret"), version), NOW_MS)
    assert isinstance(end, Authenticated)
    assert (end.mechanism, end.principal, end.lifetime_ms, end.token_authenticated) == ("PLAIN", ALICE, None, False)
    assert response(m.SaslAuthenticateResponse, end.frame, version) == m.SaslAuthenticateResponse()
    assert server.state is SaslState.COMPLETE
    assert isinstance(server.receive(handshake(), NOW_MS), Closed)


def test_tokens_without_headers_follow_version_0() -> None:
    end = play(authenticator(), handshake(version=0), plain.client_message("alice", "alice-secret"))
    assert isinstance(end, Authenticated)
    assert (end.frame, end.principal) == (b"", ALICE)
    assert isinstance(play(authenticator(), handshake(version=0), plain.client_message("alice", "x")), Rejected)
    assert isinstance(play(authenticator(), handshake(SHA_256.name, 0), b"n,,n="), Closed)


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_mechanism_is_answered_with_the_enabled_ones(version: int) -> None:
    end = play(authenticator(), handshake("GSSAPI", version))
    assert isinstance(end, Rejected)
    answer = response(m.SaslHandshakeResponse, end.frame, version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", SHA_256.name, "OAUTHBEARER"]


@pytest.mark.parametrize(
    ("mechanism", "tokens", "message"),
    [
        (
            "PLAIN",
            [plain.client_message("alice", "bob-secret")],
            "Authentication failed: Invalid username or password",
        ),
        ("PLAIN", [b"alice"], "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (
            SHA_256.name,
            [b"no message of SCRAM"],
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
    ],
)
def test_messages_of_failures(mechanism: str, tokens: list[bytes], message: str) -> None:
    end = play(authenticator(), handshake(mechanism), *map(authenticate, tokens))
    assert isinstance(end, Rejected)
    answer = response(m.SaslAuthenticateResponse, end.frame, 2)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)


def scram(user: str, password: str, nonce: str = "nonce") -> Outcome:
    server = authenticator()
    client = ScramClient(SHA_256, user, nonce)
    first = play(server, handshake(SHA_256.name), authenticate(client.first_message()))
    assert isinstance(first, Respond)
    challenge = response(m.SaslAuthenticateResponse, first.frame, 2).auth_bytes
    server_first = client.receive_first(challenge)
    salted = salted_password(SHA_256, password, server_first.salt, server_first.iterations)
    end = server.receive(authenticate(client.final_message(salted)), NOW_MS)
    if isinstance(end, Authenticated):
        client.receive_final(response(m.SaslAuthenticateResponse, end.frame, 2).auth_bytes)
    return end


def test_scram() -> None:
    end = scram("alice", "alice-secret")
    assert isinstance(end, Authenticated)
    assert end.principal == ALICE


def test_an_unknown_user_has_the_steps_of_a_wrong_password() -> None:
    wrong, unknown = scram("alice", "bob-secret"), scram("mallory", "bob-secret")
    assert isinstance(wrong, Rejected)
    assert wrong == unknown
    assert CREDENTIALS.find(SHA_256.name, "mallory") == CREDENTIALS.find(SHA_256.name, "mallory")
    assert CREDENTIALS.find(SHA_256.name, "mallory") != CREDENTIALS.find(SHA_256.name, "mallet")


def test_cve_2024_56128_the_nonce_of_the_final_message_is_compared_whole() -> None:
    server, client = authenticator(), ScramClient(SHA_256, "alice", "nonce")
    first = play(server, handshake(SHA_256.name), authenticate(client.first_message()))
    assert isinstance(first, Respond)
    challenge = response(m.SaslAuthenticateResponse, first.frame, 2).auth_bytes
    other = client.receive_first(challenge)._replace(nonce="othernonces")
    end = server.receive(authenticate(f"c=biws,r={other.nonce},p=AAAA".encode()), NOW_MS)
    assert isinstance(end, Rejected)
    assert end.reason == "Invalid client nonce in the final client message."


@pytest.mark.parametrize(
    ("max_reauth_ms", "mechanism", "lifetime_ms"),
    [(0, "PLAIN", None), (5000, "PLAIN", 5000), (0, "OAUTHBEARER", 60_000), (5000, "OAUTHBEARER", 5000)],
)
def test_the_shorter_of_both_lifetimes_ends_the_session(
    max_reauth_ms: int, mechanism: str, lifetime_ms: int | None
) -> None:
    token = plain.client_message("alice", "alice-secret")
    if mechanism == "OAUTHBEARER":
        token = InitialResponse("a.b.c").encode()
    for version in (0, 1, 2):
        end = play(authenticator(max_reauth_ms), handshake(mechanism), authenticate(token, version))
        assert isinstance(end, Authenticated)
        assert end.lifetime_ms == lifetime_ms
        answer = response(m.SaslAuthenticateResponse, end.frame, version)
        assert answer.session_lifetime_ms == (lifetime_ms or 0 if version else 0)


# ---- re-authentication


def again(mechanism: str = "PLAIN") -> SaslServerAuthenticator:
    return authenticator(previous=Previous(mechanism, ALICE))


def test_the_principal_stays_on_re_authentication() -> None:
    end = play(again(), handshake(), authenticate(plain.client_message("alice", "alice-secret")))
    assert isinstance(end, Authenticated)
    end = play(again(), handshake(), authenticate(plain.client_message("bob", "bob-secret")))
    assert isinstance(end, Rejected)
    answer = response(m.SaslAuthenticateResponse, end.frame, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert isinstance(play(again(), handshake(version=0), plain.client_message("bob", "bob-secret")), Rejected)


def test_the_mechanism_stays_on_re_authentication() -> None:
    server = again(SHA_256.name)
    assert isinstance(server.receive(handshake("PLAIN"), NOW_MS), Respond)
    assert server.state is SaslState.REAUTH_BAD_MECHANISM
    end = server.receive(authenticate(plain.client_message("alice", "alice-secret")), NOW_MS)
    assert end == Rejected(
        None,
        "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism "
        "'SCRAM-SHA-256'",
    )


def test_an_unknown_mechanism_ends_a_re_authentication_without_a_response() -> None:
    assert isinstance(again().receive(handshake("GSSAPI"), NOW_MS), Closed)


def test_re_authentication_begins_with_a_handshake() -> None:
    assert isinstance(again().receive(request(m.ApiVersionsRequest(), 0), NOW_MS), Closed)


# ---- what closes the connection


def test_only_versions_and_handshakes_come_before_the_exchange() -> None:
    for message, version in [(m.MetadataRequest(topics=None), 9), (m.SaslAuthenticateRequest(auth_bytes=b""), 2)]:
        assert isinstance(authenticator().receive(request(message, version), NOW_MS), Closed)
    assert isinstance(authenticator().receive(b"\x60\x82 a token of an old client", NOW_MS), Closed)
    assert isinstance(authenticator().receive(handshake(version=1)[:2] + b"\x00\x02" + handshake()[4:], NOW_MS), Closed)


def test_versions_are_answered_once() -> None:
    versions = request(m.ApiVersionsRequest(), 2)
    assert isinstance(play(authenticator(), versions, versions), Closed)


def test_invalid_versions_requests_end() -> None:
    """A client without credentials makes the broker work for a bounded number of requests."""
    server, invalid = authenticator(), request_header(18, 99, 7, "client")
    for _ in range(MOST_FRAMES):
        assert server.receive(invalid, NOW_MS) == AnswerApiVersions()
    assert isinstance(server.receive(invalid, NOW_MS), Closed)


@pytest.mark.parametrize("version", [0, 1])
def test_one_exchange_checks_a_bounded_number_of_tokens(version: int) -> None:
    """An attacker would try tokens without the delay that follows a failed authentication."""
    checked: list[str] = []

    def reject(token: str) -> OAuthBearerToken:
        checked.append(token)
        raise TokenRejectedError("unknown")

    mechanism = SaslMechanism("OAUTHBEARER", lambda: OAuthBearerServer(reject))
    server = SaslServerAuthenticator({mechanism.name: mechanism})
    assert isinstance(server.receive(handshake("OAUTHBEARER", version), NOW_MS), Respond)
    message = InitialResponse("a.b.c").encode()
    frame = authenticate(message) if version else message
    for _ in range(MOST_FRAMES - 1):
        assert isinstance(server.receive(frame, NOW_MS), Respond)
    assert isinstance(server.receive(frame, NOW_MS), Closed)
    assert len(checked) == MOST_FRAMES - 1


def test_versions_may_be_asked_again_after_an_error() -> None:
    newer = request_header(18, 9, 7, "client") + b"anything"
    invalid = request(m.ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
    assert isinstance(play(authenticator(), newer, invalid, request(m.ApiVersionsRequest(), 2)), AnswerApiVersions)


@pytest.mark.parametrize(
    ("message", "version"), [(m.SaslHandshakeRequest(mechanism="PLAIN"), 1), (m.ApiVersionsRequest(), 2)]
)
def test_other_requests_are_illegal_in_an_exchange(message: Any, version: int) -> None:
    end = play(authenticator(), handshake(), request(message, version))
    assert isinstance(end, Rejected)
    kind = m.response_class(message.API_KEY)
    assert response(kind, end.frame, version).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_large_requests_are_not_decoded_in_an_exchange() -> None:
    end = play(authenticator(), handshake(), request(m.MetadataRequest(topics=None), 9))
    assert end == Rejected(None, "an unexpected request of API key 3 during SASL authentication")


def test_cve_2026_111115_an_api_versions_request_of_many_tagged_fields_is_not_decoded() -> None:
    tagged = [(tag, b"") for tag in range(MOST_API_VERSIONS_BYTES)]
    versions = m.ApiVersionsRequest(client_software_name="c", client_software_version="1", unknown_tagged_fields=tagged)
    assert isinstance(authenticator().receive(request(versions, 3), NOW_MS), Closed)
    assert isinstance(play(authenticator(), handshake(), request(versions, 3)), Rejected)


def test_a_mechanism_that_is_not_available_closes_the_connection() -> None:
    def unavailable() -> plain.PlainServer:
        raise SaslError("no ticket")

    server = SaslServerAuthenticator({"GSSAPI": SaslMechanism("GSSAPI", unavailable)})
    assert server.receive(handshake("GSSAPI"), NOW_MS) == Closed("SASL/GSSAPI is not available: no ticket")


# ---- any content

valid = st.sampled_from(
    [
        *(handshake(name, version) for name in (*mechanisms(), "OTHER") for version in (0, 1)),
        *(authenticate(token, 1) for token in (b"", plain.client_message("alice", "x"), b"n,,n=alice,r=x", b"\x01")),
        request(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3),
        request(m.ApiVersionsRequest(), 0),
        request(m.MetadataRequest(topics=None), 12),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(valid))
    for position in draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        frame[position] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))]) if draw(st.booleans()) else bytes(frame)


@given(st.lists(valid | damaged() | st.binary(max_size=200), min_size=1, max_size=6), st.booleans())
def test_no_frames_raise_or_authenticate(frames: list[bytes], reauthenticates: bool) -> None:
    server = again() if reauthenticates else authenticator()
    for frame in frames:
        outcome = server.receive(frame, NOW_MS)
        assert isinstance(outcome, Respond | AnswerApiVersions | Rejected | Closed)
        if isinstance(outcome, Rejected | Closed):
            assert server.state is SaslState.FAILED
            assert "secret" not in outcome.reason
            assert isinstance(server.receive(frame, NOW_MS), Closed)
            return
