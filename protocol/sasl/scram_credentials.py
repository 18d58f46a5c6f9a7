"""SCRAM credentials: salted and hashed, so that a stored credential is not sufficient to log in (KIP-554).

Clients send salted passwords; the metadata store contains the two keys that are derived from them (RFC 5802). Kafka's
classes are `ScramFormatter`, `ScramCredentialUtils` and, for the order of errors, `ZkAdminManager`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.protocol.errors import ErrorCode, KafkaError


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its name, which is also its property, its hash, and the minimum of iterations."""

    name: str
    hash: str
    least_iterations: int


MECHANISMS: Final[Mapping[int, Mechanism]] = {
    1: Mechanism("SCRAM-SHA-256", "sha256", 4096),
    2: Mechanism("SCRAM-SHA-512", "sha512", 4096),
}
"""The mechanisms by their code in the protocol."""
MOST_ITERATIONS: Final = 16384


class UserScramCredentialDeletion(NamedTuple):
    """A request to delete a user's credential."""

    user: str
    mechanism: int


class UserScramCredentialUpsertion(NamedTuple):
    """A request to create or replace a user's credential."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramCredential(NamedTuple):
    """A stored credential."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def encode(self) -> str:
        """The credential as a property of a user (ScramCredentialUtils.credentialToString)."""
        parts = zip(("salt", "stored_key", "server_key"), self[:3], strict=True)
        encoded = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts)
        return f"{encoded},iterations={self.iterations}"

    @classmethod
    def decode(cls, text: str) -> ScramCredential:
        """The credential of such a property. Raises CredentialError, without the text: it contains keys."""
        parts = dict(each.partition("=")[::2] for each in text.split(",") if each)
        if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise CredentialError("a SCRAM credential needs salt, stored_key, server_key and iterations, and no other")
        count = parts["iterations"]
        if not (count.isascii() and count.isdecimal()):
            raise CredentialError("the iterations of a SCRAM credential are not a number")
        try:
            salt, stored, server = (_decode_base64(parts[name]) for name in ("salt", "stored_key", "server_key"))
        except (binascii.Error, ValueError):
            raise CredentialError("a key of a SCRAM credential is not in Base64") from None
        return cls(salt, stored, server, int(count))


class CredentialError(ValueError):
    """A stored credential cannot be decoded."""


def _decode_base64(text: str) -> bytes:
    """Java's decoder needs no padding."""
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def problems(
    deletions: Sequence[UserScramCredentialDeletion],
    upsertions: Sequence[UserScramCredentialUpsertion],
    keep: Callable[[object], object] = lambda container: container,
) -> dict[str, KafkaError]:
    """The errors of requests, by user; if a user has an error, none of the user's requests is applied.

    `keep` is called with each container that may be large, to prolong its life.
    """
    found: dict[str, KafkaError] = {}

    def requests() -> Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]:
        yield from upsertions
        yield from deletions

    for request in requests():
        error = _problem(request)
        if error is not None:
            found.setdefault(request.user, error)
    counts = Counter((request.user, request.mechanism) for request in requests() if request.user not in found)
    keep(counts)
    for request in requests():
        user, mechanism = request.user, request.mechanism
        if (count := counts[user, mechanism]) > 1:
            text = f"{MECHANISMS[mechanism].name} of user {user!r} is to be altered {count} times in one request"
            found[user] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    return found


def _problem(request: UserScramCredentialDeletion | UserScramCredentialUpsertion) -> KafkaError | None:
    if not request.user:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of the user is empty")
    mechanism = MECHANISMS.get(request.mechanism)
    if mechanism is None:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {request.mechanism}")
    if (
        isinstance(request, UserScramCredentialUpsertion)
        and not mechanism.least_iterations <= request.iterations <= MOST_ITERATIONS
    ):
        text = f"{request.iterations} iterations; {mechanism.least_iterations} to {MOST_ITERATIONS} are possible"
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    return None


def changed(
    properties: Mapping[str, str],
    deletions: Iterable[UserScramCredentialDeletion],
    upsertions: Iterable[UserScramCredentialUpsertion],
) -> dict[str, str]:
    """The properties of a user after these requests.

    Raises KafkaError: RESOURCE_NOT_FOUND for the deletion of a credential that does not exist, UNKNOWN_SERVER_ERROR for
    a missing password.
    """
    result = dict(properties)
    for deletion in deletions:
        name = MECHANISMS[deletion.mechanism].name
        if name not in result:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {deletion.user!r} has no credential of {name}")
        del result[name]
    for upsertion in upsertions:
        result[MECHANISMS[upsertion.mechanism].name] = text(upsertion)
    return result


def text(request: UserScramCredentialUpsertion) -> str:
    """The credential in stored form. Raises KafkaError with UNKNOWN_SERVER_ERROR, as Kafka does, without a password."""
    if not request.salted_password:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the salted password is empty")
    _, stored_key, server_key = derived_keys(request.salted_password, MECHANISMS[request.mechanism].hash)
    return ScramCredential(request.salt, stored_key, server_key, request.iterations).encode()


def derived_keys(salted_password: bytes, algorithm: str) -> tuple[bytes, bytes, bytes]:
    """The client's key, which a server never stores, and the two keys of a credential: stored key and server key."""
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return (
        client_key,
        hashlib.new(algorithm, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", algorithm),
    )


def iterations(properties: Mapping[str, str]) -> list[tuple[int, int]]:
    """The mechanisms for which a user has credentials, with their iterations."""
    found = []
    for number, mechanism in MECHANISMS.items():
        credential = properties.get(mechanism.name)
        if credential:
            count = credential.rpartition("iterations=")[2]
            found.append((number, int(count) if count.isdecimal() else 0))
    return found
