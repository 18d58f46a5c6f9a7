"""Delegation tokens: their times, their renewers and the cache of a broker (KIP-48, KIP-373; Kafka: TokenInformation,
DelegationTokenCache, and the rules of DelegationTokenManager).

A token authenticates its owner by SCRAM: the user is the token's id, and the password is its HMAC in Base64. The HMAC
is that of the id with the brokers' secret key, so no broker stores it.

    issue --- expiry, which can be renewed --- max, which cannot
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.broker.registry.znodes import DelegationTokenZNode, ZnodeError
from odradek.broker.security.state.principals import KafkaPrincipal, PrincipalError, parse_principal
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl.scram import TokenCredential, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS, Mechanism, ScramCredential, derived_keys

HMAC_ALGORITHM: Final = "sha512"


class TokenInformation(NamedTuple):
    """A token without its HMAC. Times are in milliseconds since 1970."""

    token_id: str
    owner: KafkaPrincipal
    token_requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def owner_or_renewer(self, principal: KafkaPrincipal) -> bool:
        """Whether the principal may describe the token without an ACL."""
        return principal in (self.owner, self.token_requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token is past one of its two times."""
        return min(self.max_timestamp_ms, self.expiry_timestamp_ms) < now_ms

    def encode(self) -> bytes:
        """The data of the token's znode."""
        return DelegationTokenZNode(
            self.token_id,
            str(self.owner),
            str(self.token_requester),
            tuple(map(str, self.renewers)),
            self.issue_timestamp_ms,
            self.max_timestamp_ms,
            self.expiry_timestamp_ms,
        ).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> TokenInformation:
        """The token of a znode. Raises ZnodeError."""
        node = DelegationTokenZNode.decode(data)
        try:
            owner, requester = parse_principal(node.owner), parse_principal(node.token_requester)
            renewers = tuple(map(parse_principal, node.renewers))
        except PrincipalError as error:
            raise ZnodeError(f"delegation token: {error}") from error
        return cls(node.token_id, owner, requester, renewers, *node[4:])


class TokenLifetimes(NamedTuple):
    """The properties `delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_lifetime_ms: int
    expiry_time_ms: int

    def new_token(
        self,
        token_id: str,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: Iterable[KafkaPrincipal],
        wanted_ms: int,
        now_ms: int,
    ) -> TokenInformation:
        """A token that begins now. `wanted_ms` is its longest life; without one it is 0 or negative."""
        lifetime_ms = self.max_lifetime_ms if wanted_ms <= 0 else min(wanted_ms, self.max_lifetime_ms)
        max_ms = now_ms + lifetime_ms
        expiry_ms = min(max_ms, now_ms + self.expiry_time_ms)
        return TokenInformation(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)

    def renew(
        self, token: TokenInformation, principal: KafkaPrincipal, period_ms: int, now_ms: int
    ) -> TokenInformation:
        """The token with its expiry after a period; a negative period is the default. Raises KafkaError."""
        _check_principal(token, principal)
        return _with_expiry(token, self.expiry_time_ms if period_ms < 0 else period_ms, now_ms)


def expire(token: TokenInformation, principal: KafkaPrincipal, period_ms: int, now_ms: int) -> TokenInformation | None:
    """The token with its expiry after a period; None for a negative period, which removes it. Raises KafkaError."""
    _check_principal(token, principal)
    return None if period_ms < 0 else _with_expiry(token, period_ms, now_ms)


def _check_principal(token: TokenInformation, principal: KafkaPrincipal) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _with_expiry(token: TokenInformation, period_ms: int, now_ms: int) -> TokenInformation:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, now_ms + period_ms))


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), HMAC_ALGORITHM)


def token_password(hmac_of_token: bytes) -> str:
    """The secret of a token in the form that clients have."""
    return base64.b64encode(hmac_of_token).decode()


def token_credential(mechanism: Mechanism, hmac_of_token: bytes, salt: bytes) -> ScramCredential:
    """The credential with which a client logs in. It takes milliseconds: a caller on an event loop uses a thread."""
    iterations = mechanism.least_iterations
    salted = salted_password(mechanism, token_password(hmac_of_token), salt, iterations)
    _, stored_key, server_key = derived_keys(salted, mechanism.hash)
    return ScramCredential(salt, stored_key, server_key, iterations)


def token_credentials(hmac_of_token: bytes, salts: Mapping[str, bytes]) -> dict[str, ScramCredential]:
    """The credentials of a token by the name of the mechanism, as are the salts."""
    return {each.name: token_credential(each, hmac_of_token, salts[each.name]) for each in MECHANISMS.values()}


class DelegationToken(NamedTuple):
    """A token with its secret."""

    information: TokenInformation
    hmac: bytes

    def __repr__(self) -> str:
        return f"DelegationToken({self.information.token_id})"


class DelegationTokenCache:
    """The tokens that a broker accepts."""

    def __init__(self) -> None:
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """The ids of tokens by their HMACs."""
        self._credentials: dict[str, Mapping[str, ScramCredential]] = {}

    @property
    def tokens(self) -> list[DelegationToken]:
        """All tokens."""
        return list(self._tokens.values())

    def put(self, token: DelegationToken, credentials: Mapping[str, ScramCredential]) -> None:
        """Add a token with its credentials by mechanism, or replace it."""
        token_id = token.information.token_id
        self._tokens[token_id] = token
        self._ids[token.hmac] = token_id
        self._credentials[token_id] = credentials

    def remove(self, token_id: str) -> None:
        """Remove a token; there need not be one."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids[token.hmac], self._credentials[token_id]

    def get(self, token_id: str) -> DelegationToken | None:
        """The token of an id."""
        return self._tokens.get(token_id)

    def credentials(self, token_id: str) -> Mapping[str, ScramCredential] | None:
        """The credentials of a token by mechanism."""
        return self._credentials.get(token_id)

    def of_hmac(self, hmac_of_token: bytes) -> DelegationToken | None:
        """The token of a secret."""
        token_id = self._ids.get(hmac_of_token)
        return None if token_id is None else self._tokens[token_id]

    def find(self, token_id: str, mechanism: str) -> TokenCredential | None:
        """What a SCRAM exchange of the mechanism needs of a token, for a user that logs in with the token's id."""
        token = self._tokens.get(token_id)
        credential = None if token is None else self._credentials[token_id].get(mechanism)
        if token is None or credential is None:
            return None
        return TokenCredential(credential, token.information.owner.name, token.information.expiry_timestamp_ms)
