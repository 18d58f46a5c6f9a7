"""SCRAM exchanges of both sides (Kafka: ScramSaslServer, ScramSaslClient).

    client: n,,n=alice,r=NONCE     server: r=NONCE+MORE,s=SALT,i=4096
    client: c=biws,r=…,p=PROOF     server: v=SIGNATURE

Nonces come in as arguments. A client hashes its password with `salted_password`, which takes milliseconds: a caller on
an event loop uses a thread.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from odradek.protocol.sasl import scram_messages as messages
from odradek.protocol.sasl.exchange import (
    AUTHORIZATION_ID_DIFFERS,
    IllegalSaslStateError,
    SaslAuthenticationError,
    SaslError,
)
from odradek.protocol.sasl.scram_credentials import MOST_ITERATIONS, Mechanism, ScramCredential, derived_keys


class TokenCredential(NamedTuple):
    """The credential of a delegation token, with the principal name of its owner."""

    credential: ScramCredential
    owner: str
    expiry_timestamp_ms: int


CredentialLookup = Callable[[str], ScramCredential | None]
"""The credential of a user for one mechanism."""
TokenLookup = Callable[[str], TokenCredential | None]
"""The credential of a delegation token for one mechanism."""


class ScramState(Enum):
    """What an exchange waits for."""

    FIRST_MESSAGE = auto()
    FINAL_MESSAGE = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramServer:
    """The server's side of one exchange. After an error it accepts nothing."""

    def __init__(
        self, mechanism: Mechanism, nonce: str, credential_of: CredentialLookup, token_of: TokenLookup
    ) -> None:
        """`nonce` is printable ASCII without commas, new for each exchange."""
        self.state = ScramState.FIRST_MESSAGE
        self.authorization_id = ""
        self.token_expiry_timestamp_ms: int | None = None
        """When a session by delegation token ends; None for other sessions."""
        self.token_authenticated = False
        self._mechanism = mechanism
        self._nonce = nonce
        self._credential_of = credential_of
        self._token_of = token_of
        self._credential: ScramCredential | None = None
        self._expected_nonces: tuple[str, ...] = ()
        self._signed = b""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""
        return self.state is ScramState.COMPLETE

    @property
    def credential_expiry_ms(self) -> int | None:
        """When the delegation token expires; None for a user's own credential."""
        return self.token_expiry_timestamp_ms

    def evaluate(self, response: bytes) -> bytes:
        """The challenge after a message of the client. Raises SaslError."""
        try:
            if self.state is ScramState.FIRST_MESSAGE:
                return self._evaluate_first(messages.decode_client_first(response))
            if self.state is ScramState.FINAL_MESSAGE:
                return self._evaluate_final(messages.decode_client_final(response))
            raise IllegalSaslStateError(f"Unexpected challenge in Sasl server state {self.state.name}")
        except SaslError:
            self._credential, self.state = None, ScramState.FAILED
            raise

    def _evaluate_first(self, first: messages.ClientFirst) -> bytes:
        credential = self._find_credential(first)
        if first.authorization_id not in ("", first.name):
            raise SaslAuthenticationError(AUTHORIZATION_ID_DIFFERS)
        if credential.iterations < self._mechanism.least_iterations:
            least = self._mechanism.least_iterations
            raise SaslError(f"Iterations {credential.iterations} is less than the minimum {least}")
        server_first = messages.ServerFirst(first.nonce + self._nonce, credential.salt, credential.iterations)
        encoded = server_first.encode()
        self._credential = credential
        # librdkafka 2.0 repeats its own part. Kafka accepts any text before the nonce; this server only that.
        self._expected_nonces = (server_first.nonce, first.nonce + server_first.nonce)
        self._signed = first.bare + b"," + encoded + b","
        self.state = ScramState.FINAL_MESSAGE
        return encoded

    def _find_credential(self, first: messages.ClientFirst) -> ScramCredential:
        if not first.token_authenticated:
            credential = self._credential_of(first.name)
            if credential is None:
                raise SaslError("Authentication failed: Invalid user credentials")
            self.authorization_id = first.name
            return credential
        token = self._token_of(first.name)
        if token is None:
            raise SaslError(f"Token Authentication failed: Invalid tokenId : {first.name}")
        self.authorization_id, self.token_authenticated = token.owner, True
        self.token_expiry_timestamp_ms = token.expiry_timestamp_ms
        return token.credential

    def _evaluate_final(self, final: messages.ClientFinal) -> bytes:
        credential = self._credential
        assert credential is not None
        # The whole nonce: with the server's part as a suffix only, a client chooses what is signed (CVE-2024-56128).
        # It is no secret, so that the time of the comparison does not matter.
        if final.nonce not in self._expected_nonces:
            raise SaslError("Invalid client nonce in the final client message.")
        signed = self._signed + final.signed
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.hash)
        if len(final.proof) != len(signature):
            raise SaslError("Invalid client credentials")
        stored_key = hashlib.new(self._mechanism.hash, _xor(signature, final.proof)).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise SaslError("Invalid client credentials")
        self._credential, self.state = None, ScramState.COMPLETE
        return messages.encode_server_final(hmac.digest(credential.server_key, signed, self._mechanism.hash))


class ScramClient:
    """The client's side of one exchange, for connections to other brokers."""

    def __init__(self, mechanism: Mechanism, user: str, nonce: str, *, token_authenticated: bool = False) -> None:
        self.complete = False
        self._mechanism = mechanism
        self._first = messages.encode_client_first(user, nonce, token_authenticated=token_authenticated)
        self._server_first: messages.ServerFirst | None = None
        self._signed = self._expected = b""

    def first_message(self) -> bytes:
        """The message that begins the exchange."""
        return messages.GS2_HEADER + self._first.bare

    def receive_first(self, challenge: bytes) -> messages.ServerFirst:
        """The salt and the iterations with which to hash the password. Raises SaslError.

        The number of iterations is bounded, or a server could keep the client busy for as long as it likes.
        """
        server_first = messages.decode_server_first(challenge)
        if not server_first.nonce.startswith(self._first.nonce):
            raise SaslError("Invalid server nonce: does not start with client nonce")
        least = self._mechanism.least_iterations
        if server_first.iterations < least:
            raise SaslError(f"Requested iterations {server_first.iterations} is less than the minimum {least}")
        if server_first.iterations > MOST_ITERATIONS:
            raise SaslError(
                f"Requested iterations {server_first.iterations} is more than the maximum {MOST_ITERATIONS}"
            )
        self._server_first, self._signed = server_first, self._first.bare + b"," + challenge + b","
        return server_first

    def final_message(self, salted_password: bytes) -> bytes:
        """The message with the proof, after `receive_first`."""
        assert self._server_first is not None
        algorithm = self._mechanism.hash
        final = messages.client_final_signed(self._server_first.nonce)
        signed = self._signed + final
        client_key, stored_key, server_key = derived_keys(salted_password, algorithm)
        self._expected = hmac.digest(server_key, signed, algorithm)
        return messages.encode_client_final(final, _xor(client_key, hmac.digest(stored_key, signed, algorithm)))

    def receive_final(self, challenge: bytes) -> None:
        """End the exchange; the server has proved that it has the credential. Raises SaslError."""
        assert self._expected
        final = messages.decode_server_final(challenge)
        if final.signature is None:
            raise SaslError(f"Sasl authentication using {self._mechanism.name} failed with error: {final.error}")
        if not hmac.compare_digest(final.signature, self._expected):
            raise SaslError("Invalid server signature in server final message")
        self.complete = True


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The hash of a password (RFC 5802: Hi). Kafka does not normalize passwords."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
