"""The login of a user: what a form has as properties of a client, with which the cluster is asked (Kafka: SASL)."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.console.web.settings import TOKENS, ConsoleSettings
from odradek.protocol.client.errors import LoginFailedError

OPAQUE_TOKEN_S: Final = 3600.0
"""For librdkafka, which requires the time when a token expires: it then takes the same one again."""
_TOKEN: Final = re.compile(r"[-_.+~/a-zA-Z0-9]+=*")
_LATEST_S: Final = 2.0**40
_CREDENTIALS: Final = (
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.",
    "sasl.oauthbearer.method",
)
"""Those of the configuration are not for the users."""
_PROVIDER: Final = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions")


class LoginFormError(ValueError):
    """A form that cannot be a login; the message is for the user."""


@dataclass(frozen=True, slots=True)
class UserLogin:
    """A user, and the properties of the user's clients."""

    user: str
    """For the page: of a token it is not verified."""
    properties: Mapping[str, Any] = field(repr=False)
    expires_s: float | None = None
    """When the credentials end, in seconds since the epoch; None where that is not known."""


def login_of(settings: ConsoleSettings, form: Mapping[str, str]) -> UserLogin:
    """The login of a form: user and password, a token, or the id and secret of a client. Raises LoginFormError."""
    kept = {name: value for name, value in settings.properties.items() if not name.startswith(_CREDENTIALS)}
    kept["sasl.mechanism"] = settings.mechanism
    if settings.mechanism == TOKENS:
        return _token_login(kept, form["token"]) if form.get("token") else _client_login(settings, kept, form)
    user, password = form.get("user", ""), form.get("password", "")
    if not user or not password:
        raise LoginFormError("user and password are required")
    return UserLogin(user, {**kept, "sasl.username": user, "sasl.password": password})


def _client_login(settings: ConsoleSettings, kept: Mapping[str, str], form: Mapping[str, str]) -> UserLogin:
    """The grant of client credentials (KIP-768); the clients renew their tokens."""
    client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
    if not settings.has_token_endpoint:
        raise LoginFormError("a token is required")
    if not client_id or not secret:
        raise LoginFormError("client id and client secret, or a token, are required")
    credentials = {"sasl.oauthbearer.client.id": client_id, "sasl.oauthbearer.client.secret": secret}
    return UserLogin(client_id, {**kept, "sasl.oauthbearer.method": "oidc", **credentials})


def _token_login(kept: Mapping[str, str], token: str) -> UserLogin:
    token = token.strip().removeprefix("Bearer ").strip()
    if not _TOKEN.fullmatch(token):
        raise LoginFormError("a token has only letters, digits and the characters - . _ ~ + / =")
    claims = _claims(token)
    expires_s = claims.get("exp")
    if isinstance(expires_s, bool) or not isinstance(expires_s, (int, float)) or not 0 < expires_s < _LATEST_S:
        expires_s = None
    if expires_s is not None and expires_s <= time.time():
        raise LoginFormError(expired_text(expires_s))
    properties = {name: value for name, value in kept.items() if name not in _PROVIDER}
    user = claims.get("sub")
    return UserLogin(
        user if isinstance(user, str) and user else "token",
        {**properties, "oauth_cb": _source(token, expires_s)},
        expires_s,
    )


def expired_text(expires_s: float) -> str:
    """What the user reads after a token has expired."""
    moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(expires_s))
    return f"The token expired at {moment}. Log in with a new one."


def _source(token: str, expires_s: float | None) -> Callable[[str], tuple[str, float]]:
    """librdkafka's oauth_cb, which our connections call, too."""

    def source(_: str) -> tuple[str, float]:
        now_s = time.time()
        if expires_s is not None and expires_s <= now_s:
            raise LoginFailedError(expired_text(expires_s))
        return token, now_s + OPAQUE_TOKEN_S if expires_s is None else expires_s

    return source


def _claims(token: str) -> Mapping[str, Any]:
    """The claims of a JWT, which the console does not verify: the brokers do. Empty for any other token."""
    try:
        _, payload, _ = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
