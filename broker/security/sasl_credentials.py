"""SCRAM credentials of all users, in memory (Kafka: CredentialProvider, CredentialCache).

The broker reads the nodes of all users before its listeners open, and a user's node again after each change of it.

An unknown user gets a credential that no password fits: the exchange has the same steps as with a wrong password, so a
client without credentials does not learn which users exist. Kafka ends the exchange at the first message instead.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from typing import Final

from odradek.protocol.sasl.scram_credentials import MECHANISMS, CredentialError, Mechanism, ScramCredential

log = logging.getLogger(__name__)

SALT_BYTES: Final = 16
UNKNOWN_USERS_SECRET_BYTES: Final = 32
_BY_NAME: Final[Mapping[str, Mechanism]] = {each.name: each for each in MECHANISMS.values()}


class CredentialCache:
    """The credentials by mechanism and user."""

    def __init__(self, secret: bytes) -> None:
        """`secret` determines the salts of unknown users; it must not be known to clients."""
        self._secret = secret
        self._credentials: dict[str, dict[str, ScramCredential]] = {name: {} for name in _BY_NAME}

    def update(self, user: str, properties: Mapping[str, str]) -> None:
        """Replace the credentials of a user by those of the user's node; other properties are ignored."""
        for name, credentials in self._credentials.items():
            text = properties.get(name)
            credentials.pop(user, None)
            if text is None:
                continue
            try:
                credentials[user] = ScramCredential.decode(text)
            except CredentialError as error:
                log.error("ignoring invalid SCRAM credential user=%r mechanism=%s error=%s", user, name, error)

    def replace(self, users: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the credentials of all users by those of their nodes."""
        known = {user for credentials in self._credentials.values() for user in credentials}
        for user in sorted(known - users.keys()):
            self.update(user, {})
        for user, properties in users.items():
            self.update(user, properties)

    def find(self, mechanism: str, user: str) -> ScramCredential:
        """The credential of a user, one that no password fits for an unknown user."""
        found = self._credentials[mechanism].get(user)
        return self._unknown(_BY_NAME[mechanism], user) if found is None else found

    def _unknown(self, mechanism: Mechanism, user: str) -> ScramCredential:
        salt, key = (
            hmac.digest(self._secret, f"{part} {mechanism.name} {user}".encode("utf-8", "replace"), "sha512")
            for part in ("salt", "key")
        )
        size = hashlib.new(mechanism.hash).digest_size
        return ScramCredential(salt[:SALT_BYTES], key[:size], key[:size], mechanism.least_iterations)
