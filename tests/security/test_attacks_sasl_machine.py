"""The authenticator under any sequence of honest, damaged and foreign frames: only a client with the credentials is
authenticated, as its own user, and nothing raises an exception. Among them are the attacks on SCRAM's nonce
(CVE-2024-56128), on authorization ids, and on the principal of a re-authentication.
"""

from __future__ import annotations

import base64
import hmac
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.security.sasl_credentials import CredentialCache
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.broker.security.state.sasl import SaslMechanism
from odradek.broker.security.state.sasl_server_authenticator import (
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
from odradek.protocol.framing import request_header, response_header_version
from odradek.protocol.sasl import plain
from odradek.protocol.sasl.oauthbearer import (
    InitialResponse,
    OAuthBearerServer,
    OAuthBearerToken,
    TokenRejectedError,
)
from odradek.protocol.sasl.scram import ScramClient, ScramServer, salted_password
from odradek.protocol.sasl.scram_credentials import (
    MECHANISMS,
    UserScramCredentialUpsertion,
    derived_keys,
    text,
)

NOW_MS = 1_700_000_000_000
LARGEST_ANSWER = 4096
SHA_256 = MECHANISMS[1]
PASSWORDS = {"alice": "alice-of-the-machine", "bob": "bob-of-the-machine"}
SALTED = {user: salted_password(SHA_256, password, b"salt", 4096) for user, password in PASSWORDS.items()}
USERS = st.sampled_from(sorted(PASSWORDS))
NAMES = ("PLAIN", SHA_256.name, "OAUTHBEARER")
PREVIOUS = st.none() | st.tuples(st.sampled_from(NAMES), USERS)
HOSTILE = st.sampled_from([False, False, False, True])


def _credentials() -> CredentialCache:
    cache = CredentialCache(b"a secret of this broker")
    for user, salted in SALTED.items():
        cache.update(user, {SHA_256.name: text(UserScramCredentialUpsertion(user, 1, 4096, b"salt", salted))})
    return cache


CREDENTIALS = _credentials()


def _validate(token: str) -> OAuthBearerToken:
    for user in PASSWORDS:
        if token == f"token.of.{user}":
            return OAuthBearerToken(user, NOW_MS + 60_000, None, frozenset())
    raise TokenRejectedError("unknown")


def _mechanisms() -> dict[str, SaslMechanism]:
    check = plain.password_check({f"user_{user}": password for user, password in PASSWORDS.items()})
    find = partial(CREDENTIALS.find, SHA_256.name)
    return {
        "PLAIN": SaslMechanism("PLAIN", partial(plain.PlainServer, check)),
        SHA_256.name: SaslMechanism(SHA_256.name, lambda: ScramServer(SHA_256, "s", find, lambda _: None)),
        "OAUTHBEARER": SaslMechanism("OAUTHBEARER", lambda: OAuthBearerServer(_validate)),
    }


def _request(message: m.SaslHandshakeRequest | m.SaslAuthenticateRequest | m.ApiVersionsRequest, version: int) -> bytes:
    return request_header(message.API_KEY, version, 7, "client") + bytes(message.encode(version))


FRAMES = (
    *(_request(m.SaslHandshakeRequest(mechanism=name), version) for name in NAMES for version in (0, 1)),
    *(_request(m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), version) for version in (0, 1, 2)),
    _request(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3),
    request_header(18, 99, 7, "client"),
    request_header(3, 12, 7, "client") + b"\1\0\0\0",
    b"n,,n=alice,r=x",
    b"\0alice\0x",
    b"\x60\x82\1\0",
)


@st.composite
def foreign_frames(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(st.sampled_from(FRAMES) | st.binary(max_size=100)))
    for position in draw(st.lists(st.integers(0, max(0, len(frame) - 1)), max_size=3)):
        if frame:
            frame[position] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))]) if draw(st.booleans()) else bytes(frame)


class Attack(RuleBasedStateMachine):
    """One connection after the other. `mechanism` is that of a handshake after which only honest messages followed."""

    @initialize(previous=PREVIOUS, hostile=HOSTILE)
    def open(self, previous: tuple[str, str] | None, hostile: bool) -> None:
        """A new connection, or one whose client re-authenticates; only a hostile one has foreign frames."""
        self.hostile = hostile
        self.previous = None if previous is None else Previous(previous[0], KafkaPrincipal("User", previous[1]))
        self.server = SaslServerAuthenticator(_mechanisms(), self.previous)
        self.frames = 0
        self.mechanism: str | None = None
        self.scram: tuple[str, bytes] | None = None
        self.ended = False

    @precondition(lambda self: self.ended)
    @rule(previous=PREVIOUS, hostile=HOSTILE)
    def open_another(self, previous: tuple[str, str] | None, hostile: bool) -> None:
        """The next connection."""
        self.open(previous, hostile)

    def _send(self, frame: bytes) -> Outcome:
        outcome = self.server.receive(frame, NOW_MS)
        self.frames += 1
        if self.ended or self.frames > MOST_FRAMES:
            assert isinstance(outcome, Closed)
        if isinstance(outcome, Respond | Rejected | Authenticated):
            assert len(outcome.frame or b"") < LARGEST_ANSWER
        if isinstance(outcome, Rejected | Closed):
            assert not any(password in outcome.reason for password in PASSWORDS.values())
        self.ended |= isinstance(outcome, Rejected | Closed | Authenticated)
        return outcome

    @precondition(lambda self: self.hostile)
    @rule(frame=foreign_frames())
    def foreign(self, frame: bytes) -> None:
        """A frame of a client without credentials."""
        outcome = self._send(frame)
        assert isinstance(outcome, Respond | AnswerApiVersions | Rejected | Closed)
        self.mechanism = self.scram = None

    @precondition(lambda self: self.mechanism is None and not self.ended)
    @rule(name=st.sampled_from(NAMES), same=st.booleans())
    def handshake(self, name: str, same: bool) -> None:
        """An honest handshake, in a re-authentication often with the same mechanism."""
        name = self.previous.mechanism if same and self.previous is not None else name
        outcome = self._send(_request(m.SaslHandshakeRequest(mechanism=name), 1))
        assert isinstance(outcome, Respond | Rejected | Closed)
        self.scram = None
        self.mechanism = name if isinstance(outcome, Respond) and self.server.state is SaslState.AUTHENTICATE else None

    def _authenticate(self, token: bytes) -> Outcome:
        return self._send(_request(m.SaslAuthenticateRequest(auth_bytes=token), 2))

    def _judge(self, outcome: Outcome, user: str, *, honest: bool) -> None:
        """Only honest clients are authenticated; in a re-authentication only as before."""
        may = honest and self.frames <= MOST_FRAMES
        may &= self.previous is None or self.previous.principal.name == user
        assert isinstance(outcome, Authenticated) is may
        if isinstance(outcome, Authenticated):
            assert outcome.principal == KafkaPrincipal("User", user)
            assert self.previous is None or outcome.mechanism == self.previous.mechanism
        self.mechanism = self.scram = None

    @precondition(lambda self: self.mechanism == "PLAIN")
    @rule(user=USERS, right=st.booleans(), other=st.booleans())
    def plain(self, user: str, right: bool, other: bool) -> None:
        """A password, perhaps a wrong one, perhaps with another authorization id."""
        message = plain.client_message(user, PASSWORDS[user] if right else PASSWORDS[user][:-1])
        self._judge(self._authenticate(b"root" * other + message), user, honest=right and not other)

    @precondition(lambda self: self.mechanism == "OAUTHBEARER")
    @rule(user=USERS, right=st.booleans(), other=st.booleans())
    def token(self, user: str, right: bool, other: bool) -> None:
        """A token, perhaps a wrong one, perhaps with another authorization id."""
        token = f"token.of.{user if right else 'stranger'}"
        message = InitialResponse(token, "root" if other else "").encode()
        outcome = self._authenticate(message)
        if isinstance(outcome, Respond):
            assert not right
            return
        self._judge(outcome, user, honest=right and not other)

    @precondition(lambda self: self.mechanism == SHA_256.name and self.scram is None)
    @rule(user=USERS)
    def scram_first(self, user: str) -> None:
        """The first message of SCRAM."""
        client = ScramClient(SHA_256, user, "nonce")
        outcome = self._authenticate(client.first_message())
        if isinstance(outcome, Respond):
            header = 4 + response_header_version(m.SaslAuthenticateRequest.API_KEY, 2)
            challenge = bytes(m.SaslAuthenticateResponse.decode(outcome.frame, 2, header).auth_bytes)
            assert client.receive_first(challenge).nonce == "nonces"
            self.scram = (user, challenge)
        else:
            assert self.frames > MOST_FRAMES

    @precondition(lambda self: self.scram is not None)
    @rule(right=st.booleans(), nonce=st.sampled_from(["", "other-", "nonce"]))
    def scram_final(self, right: bool, nonce: str) -> None:
        """The proof, perhaps of another user's password, perhaps with a text before the nonce.

        Only the client's own part may stand there, as librdkafka 2.0 sends it.
        """
        assert self.scram is not None
        user, challenge = self.scram
        other = next(each for each in PASSWORDS if each != user)
        client_key, stored_key, _ = derived_keys(SALTED[user if right else other], SHA_256.hash)
        without_proof = f"c=biws,r={nonce}nonces".encode()
        signed = b",".join((f"n={user},r=nonce".encode(), challenge, without_proof))
        signature = hmac.digest(stored_key, signed, SHA_256.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        message = without_proof + b",p=" + base64.b64encode(proof)
        self._judge(self._authenticate(message), user, honest=right and nonce in ("", "nonce"))

    @invariant()
    def ends(self) -> None:
        """Nothing follows the end of an authentication."""
        if self.ended:
            assert self.server.state in (SaslState.COMPLETE, SaslState.FAILED)


TestAttack = Attack.TestCase
TestAttack.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
