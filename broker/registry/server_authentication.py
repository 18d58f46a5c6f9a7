"""Client authentication of the metadata store server: which identities a connection has (ZooKeeper:
DigestAuthenticationProvider, SASLAuthenticationProvider, AuthenticationHelper).

Without users every client is served, and a client may take any digest identity, as in ZooKeeper. With users
(ZooKeeper's `user_NAME` options of the JAAS section Server) a client is served once it has proved the password of one
of them, by `addauth digest` or SASL DIGEST-MD5; all other requests end its session (ZooKeeper: enforce.auth.enabled).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from odradek.broker.registry.acls import DIGEST, IP, SASL, ClientIdentity, Identities, digest_name
from odradek.broker.registry.client_wire import AuthenticationRequiredError, AuthFailedError, UnimplementedError
from odradek.broker.registry.digest_md5 import DigestError, DigestMd5Server


class ClientAuthentication:
    """The identities of one connection; its address is the first."""

    __slots__ = ("_exchange", "_users", "identities")

    def __init__(self, users: Mapping[str, str], address: str) -> None:
        self._users = users
        self._exchange: DigestMd5Server | None = None
        self.identities: Identities = (ClientIdentity(IP, address),)

    def require(self) -> None:
        """Raise AuthenticationRequiredError where there are users and the client has proved to be none of them."""
        if self._users and len(self.identities) == 1:
            raise AuthenticationRequiredError("", "the client has not authenticated")

    def authenticate(self, scheme: str, credentials: bytes) -> None:
        """Add the identity of an AuthPacket. Raises AuthFailedError."""
        if scheme == IP:
            return
        if scheme != DIGEST:
            raise AuthFailedError("", "the server has no such scheme")
        text = credentials.decode(errors="replace")
        user, _, password = text.partition(":")
        if self._users:
            expected = self._users.get(user, "")
            is_equal = hmac.compare_digest(expected.encode(), password.encode(errors="replace"))
            if not is_equal or user not in self._users:
                raise AuthFailedError("", "the user or the password is wrong")
        self._add(ClientIdentity(DIGEST, digest_name(text)))

    def evaluate(self, token: bytes) -> bytes:
        """Continue the SASL exchange. Raises AuthFailedError, and UnimplementedError where there are no users."""
        if not self._users:
            raise UnimplementedError("", "the server has no users")
        if self._exchange is None:
            self._exchange = DigestMd5Server(self._users, secrets.token_urlsafe(24))
        try:
            answer = self._exchange.evaluate(token)
        except DigestError as error:
            raise AuthFailedError("", str(error)) from error
        if self._exchange.user is not None:
            self._add(ClientIdentity(SASL, self._exchange.user))
        return answer

    def _add(self, identity: ClientIdentity) -> None:
        if identity not in self.identities:
            self.identities = (*self.identities, identity)
