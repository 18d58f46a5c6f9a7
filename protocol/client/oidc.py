"""Tokens of an OpenID provider for connections to brokers (KIP-768; Kafka: AccessTokenRetriever).

The properties are librdkafka's, sasl.oauthbearer.method=oidc with the grant of client credentials (RFC 6749, section
4.4): the token endpoint returns a token for the id and the secret of the application.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.protocol.client.errors import SecurityConfigError

METHOD: Final = "sasl.oauthbearer.method"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
TIMEOUT_S: Final = 10.0
_KEPT: Final = 0.8
"""The part of a token's lifetime for which it is used again, as librdkafka's refresh."""

Token = tuple[str, float, str, dict[str, str]]
"""Token, expiry in seconds since the epoch, principal, extensions: the result of an `oauth_cb`."""


def token_source(properties: Mapping[str, Any]) -> Callable[[str], Token] | None:
    """A function like `oauth_cb`; None where the method is not oidc. Raises SecurityConfigError."""
    method = str(properties.get(METHOD) or "default").lower()
    if method == "default":
        return None
    if method != "oidc":
        raise SecurityConfigError(f"{METHOD}={method}; allowed: default, oidc")
    missing = [name for name in (ENDPOINT, CLIENT_ID, CLIENT_SECRET) if not properties.get(name)]
    if missing:
        raise SecurityConfigError(f"{METHOD}=oidc requires {', '.join(missing)}")
    return _TokenSource(properties)


class _TokenSource:
    """Requests tokens, and keeps each for most of its lifetime. Two threads may request one at the same time."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._endpoint = str(properties[ENDPOINT])
        user = f"{properties[CLIENT_ID]}:{properties[CLIENT_SECRET]}"
        self._authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
        form = {"grant_type": "client_credentials"} | ({"scope": properties[SCOPE]} if properties.get(SCOPE) else {})
        self._form = urllib.parse.urlencode(form).encode()
        pairs = [pair.partition("=") for pair in str(properties.get(EXTENSIONS) or "").split(",") if pair]
        self._extensions = {name.strip(): value.strip() for name, _, value in pairs}
        self._context = ssl.create_default_context() if self._endpoint.startswith("https:") else None
        self._token = ""
        self._expires_s = self._renew_s = 0.0

    def __call__(self, argument: str) -> Token:
        now_s = time.time()
        if now_s >= self._renew_s:
            document = self._request()
            self._token = str(document["access_token"])
            lifetime_s = float(document.get("expires_in", 0))
            self._expires_s, self._renew_s = now_s + lifetime_s, now_s + lifetime_s * _KEPT
        return self._token, self._expires_s, "", self._extensions

    def _request(self) -> Mapping[str, Any]:
        """The response of the token endpoint. Raises OSError; the message has no secret."""
        headers = {"Authorization": self._authorization, "Content-Type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(self._endpoint, self._form, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context) as response:
                document = json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            raise ConnectionError(f"the token endpoint {self._endpoint} returned {error.code} {error.reason}") from None
        except ValueError as error:
            raise ConnectionError(f"the response of the token endpoint {self._endpoint} is not JSON") from error
        if not isinstance(document, dict) or not document.get("access_token"):
            raise ConnectionError(f"the response of the token endpoint {self._endpoint} has no access_token")
        return document
