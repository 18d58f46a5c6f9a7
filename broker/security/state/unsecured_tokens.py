"""Unsecured tokens: JWTs without a signature (Kafka: OAuthBearerUnsecuredJws).

Every client can make such a token for every user, so a broker accepts them only where a
property of its own allows them. Claims of other types than Kafka documents are rejected; Kafka converts some of them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.protocol.sasl.oauthbearer import OAuthBearerToken, TokenRejectedError

INVALID: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"


class UnsecuredOptions(NamedTuple):
    """What a listener requires of tokens; names are those of the JAAS options behind `unsecuredValidator`."""

    principal_claim_name: str = "sub"
    scope_claim_name: str = "scope"
    required_scope: frozenset[str] = frozenset()
    allowable_clock_skew_ms: int = 0

    @classmethod
    def of_jaas(cls, options: Mapping[str, str]) -> UnsecuredOptions:
        """The options of a login module. Raises ValueError."""
        prefix = "unsecuredValidator"
        skew = options.get(f"{prefix}AllowableClockSkewMs", "0")
        if not skew.isdecimal():
            raise ValueError(f"the option {prefix}AllowableClockSkewMs is not a number of milliseconds")
        return cls(
            options.get(f"{prefix}PrincipalClaimName") or "sub",
            options.get(f"{prefix}ScopeClaimName") or "scope",
            frozenset(options.get(f"{prefix}RequiredScope", "").split()),
            int(skew),
        )


def validate_unsecured(token: str, options: UnsecuredOptions, now_ms: int) -> OAuthBearerToken:
    """The contents of an unsecured token. Raises TokenRejectedError."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRejectedError("the token does not have the form header.claims. without a signature")
    header, claims = (_parse(part) for part in parts[:2])
    if str(header.get("alg")).lower() != "none":
        raise TokenRejectedError("the algorithm of an unsecured token has to be none")
    principal = claims.get(options.principal_claim_name)
    if not isinstance(principal, str) or not principal:
        raise TokenRejectedError(f"the claim {options.principal_claim_name} is missing or not a string")
    expires_ms, issued_ms = (_time_ms(claims, name) for name in ("exp", "iat"))
    if expires_ms is None or now_ms - options.allowable_clock_skew_ms >= expires_ms:
        raise TokenRejectedError("the token has expired, or has no claim exp")
    if issued_ms is not None and (issued_ms > now_ms + options.allowable_clock_skew_ms or expires_ms <= issued_ms):
        raise TokenRejectedError("the token was issued in the future, or after it has expired")
    scope = _scope(claims.get(options.scope_claim_name, ""))
    if not options.required_scope <= scope:
        required = " ".join(sorted(options.required_scope))
        raise TokenRejectedError("the scope of the token is not sufficient", INSUFFICIENT_SCOPE, required)
    return OAuthBearerToken(principal, expires_ms, issued_ms, scope)


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token with these claims."""
    parts = ({"alg": "none"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts)
    return f"{'.'.join(encoded)}."


def _parse(part: str) -> dict[str, Any]:
    try:
        parsed = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise TokenRejectedError("a part of the token is not JSON in Base64") from error
    if not isinstance(parsed, dict):
        raise TokenRejectedError("a part of the token is no JSON object")
    return parsed


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        raise TokenRejectedError(f"the claim {name} is no time")
    return round(value * 1000)


def _scope(value: Any) -> frozenset[str]:
    """As in Kafka, a text is one scope, also with spaces."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
        raise TokenRejectedError("the scope of the token is neither a string nor a list of strings")
    return frozenset(each.strip() for each in items if each.strip())
