"""SASL DIGEST-MD5 (RFC 2831), the server's side: the mechanism with which ZooKeeper's clients send a user and password
(ZooKeeper: SaslServerCallbackHandler; Java: DigestMD5Server).

The password does not cross the connection: the client proves it with a hash over the server's nonce. The hash is MD5,
and the connection is not encrypted: it keeps out clients that do not have the password, but a reader of the network can
attack it offline.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
_SERVICE: Final = "zookeeper/"
_DIRECTIVE: Final = re.compile(r'\s*([a-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|\Z)')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_MAX_TOKEN_BYTES: Final = 4096


class DigestError(Exception):
    """The exchange failed. The message contains no part of the token."""


class DigestMd5Server:
    """One exchange: an empty token, the challenge, the client's response, the server's proof."""

    __slots__ = ("_is_challenged", "_nonce", "_users", "user")

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        """`users` are names and passwords; `nonce` is unpredictable and used once."""
        self._users = users
        self._nonce = nonce
        self._is_challenged = False
        self.user: str | None = None
        """The authenticated user; None until the exchange is complete."""

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a token of the client. Raises DigestError."""
        if self.user is not None:
            raise DigestError("the exchange is complete")
        if not self._is_challenged:
            if token:
                raise DigestError("the first token is not empty")
            self._is_challenged = True
            return f'realm="{REALM}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()
        return self._check(_parse(token))

    def _check(self, given: dict[str, str]) -> bytes:
        user, uri = given.get("username", ""), given.get("digest-uri", "")
        if given.get("realm", "") != REALM or given.get("nonce") != self._nonce or given.get("nc") != "00000001":
            raise DigestError("the response does not belong to the challenge")
        if given.get("qop", "auth") != "auth" or not given.get("cnonce") or not uri.startswith(_SERVICE):
            raise DigestError("the response has another quality of protection, or lacks a directive")
        if given.get("authzid", user) != user:
            raise DigestError("the client asks to act as another user")
        # A user that does not exist takes as long as a wrong password.
        password = self._users.get(user, "")
        expected = _proof(f"AUTHENTICATE:{uri}", user, password, given)
        is_equal = hmac.compare_digest(expected.encode(), given.get("response", "").encode())
        if not is_equal or user not in self._users:
            raise DigestError("the user or the password is wrong")
        self.user = user
        return f"rspauth={_proof(f':{uri}', user, password, given)}".encode()


def _proof(a2: str, user: str, password: str, given: Mapping[str, str]) -> str:
    secret = hashlib.md5(f"{user}:{REALM}:{password}".encode(), usedforsecurity=False).digest()
    a1 = secret + f":{given['nonce']}:{given['cnonce']}".encode()
    if "authzid" in given:
        a1 += f":{given['authzid']}".encode()
    return _hex(f"{_hex(a1)}:{given['nonce']}:{given['nc']}:{given['cnonce']}:auth:{_hex(a2.encode())}".encode())


def _hex(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _parse(token: bytes) -> dict[str, str]:
    if len(token) > _MAX_TOKEN_BYTES:
        raise DigestError(f"a response of {len(token)} bytes; at most {_MAX_TOKEN_BYTES} are allowed")
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        raise DigestError("the response is not UTF-8") from error
    directives: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _DIRECTIVE.match(text, position)
        if found is None or found[1] in directives:
            raise DigestError("the response is malformed")
        directives[found[1]] = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else found[3]
        position = found.end()
    return directives
