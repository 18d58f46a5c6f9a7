"""JSON Web Tokens beside Kafka's ValidatorAccessTokenValidator over jose4j."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.broker.security.state.jwks import JsonWebKeySet, JwksError
from odradek.broker.security.state.jwt import ALGORITHMS, ExpectedClaims, TokenValidator
from odradek.protocol.sasl.oauthbearer import OAuthBearerToken, TokenRejectedError
from tests.security.kafka_classes import KafkaClasses, Outcome, attempt
from tests.security.tokens import SigningKey, encode, key_set, signing_key

NOW = int(time.time())
KINDS = {"RSA2048": "rsa", "P-256": "p256", "P-384": "p384", "P-521": "p521"}
GOOD = {"sub": "alice", "iss": "issuer", "aud": "kafka", "iat": NOW - 60_000, "exp": NOW + 3_000, "scope": "a"}
EXPECTED = ExpectedClaims(frozenset({"kafka", "other"}), "issuer")


def _keys() -> dict[str, SigningKey]:
    return {kid: signing_key(kind, kid) for kind, kid in KINDS.items()}


def _ours(expected: ExpectedClaims, keys: str) -> TokenValidator:
    parsed = JsonWebKeySet.parse(keys)
    return TokenValidator(lambda: parsed, expected)


def _kafka(classes: KafkaClasses, expected: ExpectedClaims, keys: str) -> Any:
    audiences = jpype.JClass("java.util.HashSet")()
    for each in sorted(expected.audiences):
        audiences.add(each)
    resolver = classes("org.jose4j.keys.resolvers.JwksVerificationKeyResolver")
    found = classes("org.jose4j.jwk.JsonWebKeySet")(keys).getJsonWebKeys()
    return classes.common("security.oauthbearer.internals.secured.ValidatorAccessTokenValidator")(
        jpype.JClass("java.lang.Integer").valueOf(expected.clock_skew_s),
        audiences,
        expected.issuer,
        resolver(found),
        expected.scope_claim_name,
        expected.sub_claim_name,
    )


def _validated(validator: TokenValidator, token: str) -> OAuthBearerToken | None:
    try:
        return validator.validate(token, NOW)
    except TokenRejectedError:
        return None


def _compare(ours: OAuthBearerToken | None, theirs: Outcome) -> None:
    assert (ours is None) == (theirs.error is not None), theirs
    if ours is not None:
        token = theirs.value
        assert ours.principal_name == str(token.principalName())
        assert (ours.lifetime_ms, ours.start_time_ms) == (token.lifetimeMs(), token.startTimeMs())
        assert ours.scope == {str(each) for each in token.scope()}


MISSING = object()
# Kafka reads the clock itself, so times are far from their limits.
CLAIMS: dict[str, list[Any]] = {
    "sub": ["alice", " bob\t", "", " ", 7, None, MISSING],
    "iss": ["issuer", "other", 7, None, MISSING],
    "aud": ["kafka", ["x", "kafka"], ["x"], "x", [], 7, ["kafka", 7], None, MISSING],
    "iat": [NOW - 100, NOW - 100.5, "x", True, -1, None, MISSING],
    "exp": [NOW + 3_000, NOW + 3_000.7, NOW - 2_000, NOW - 50_000, "x", False, MISSING],
    "nbf": [MISSING, NOW - 200, NOW + 2_000, NOW + 50_000, "x"],
    "scope": ["a", "a b", ["a", "b"], ["a", "a"], ["a", " "], "", {}, 7, None, MISSING],
    "jti": [MISSING, "id", 7],
}


@st.composite
def _claims(draw: st.DrawFn) -> dict[str, Any]:
    """Valid claims with up to two of them changed."""
    claims: dict[str, Any] = dict(GOOD)
    for name in draw(st.lists(st.sampled_from(sorted(CLAIMS)), max_size=2)):
        claims[name] = draw(st.sampled_from(CLAIMS[name]))
    return {name: value for name, value in claims.items() if value is not MISSING}


@pytest.mark.jvm
@settings(max_examples=400)
@given(
    _claims(),
    st.sampled_from(
        (EXPECTED, ExpectedClaims(), ExpectedClaims(issuer="issuer"), EXPECTED._replace(clock_skew_s=10_000))
    ),
)
def test_claims_are_judged_as_kafka_judges_them(
    classes: KafkaClasses, claims: dict[str, Any], expected: ExpectedClaims
) -> None:
    keys = _keys()
    token = keys["p256"].token({"alg": "ES256", "kid": "p256"}, claims)
    kafka = _kafka(classes, expected, key_set(*keys.values()))
    _compare(_validated(_ours(expected, key_set(*keys.values())), token), attempt(kafka.validate, token))


HEADERS: dict[str, list[Any]] = {
    "kid": ["rsa", "p256", "p384", "p521", "unknown", "", 7, None],
    "typ": ["JWT", "at+jwt"],
    "crit": [["exp"]],
    "cty": ["JWT"],
    "b64": [False],
}


@pytest.mark.jvm
@settings(max_examples=400)
@given(
    st.sampled_from([*KINDS.values(), "stranger"]),
    st.sampled_from([*ALGORITHMS, "none", "None", "HS256", "HS512", "EdDSA", "rs256", ""]),
    st.dictionaries(st.sampled_from(sorted(HEADERS)), st.integers(0, 7), max_size=2),
    st.booleans(),
)
@example("rsa", "RS256", {"kid": 0}, False)
@example("rsa", "PS512", {"kid": 0}, False)
@example("p256", "ES256", {"kid": 1}, False)
@example("p384", "ES384", {"kid": 2}, False)
@example("p521", "ES512", {"kid": 3}, False)
@example("rsa", "none", {"kid": 0}, False)
@example("rsa", "HS256", {"kid": 0}, False)
def test_signatures_are_judged_as_kafka_judges_them(
    classes: KafkaClasses, signer: str, algorithm: str, drawn: dict[str, int], damaged: bool
) -> None:
    keys = _keys()
    header: dict[str, Any] = {"alg": algorithm}
    header |= {name: HEADERS[name][place % len(HEADERS[name])] for name, place in drawn.items()}
    key = keys.get(signer) or signing_key("RSA2048", "stranger")
    token = key.token(header, GOOD)
    if damaged and not token.endswith("."):
        head, _, signature = token.rpartition(".")
        token = f"{head}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"
    kafka = _kafka(classes, EXPECTED, key_set(*keys.values()))
    _compare(_validated(_ours(EXPECTED, key_set(*keys.values())), token), attempt(kafka.validate, token))


def _judge(token: str, keys: str | None = None, expected: ExpectedClaims = EXPECTED) -> str:
    """The reason of the rejection."""
    with pytest.raises(TokenRejectedError) as caught:
        _ours(expected, keys or key_set(*_keys().values())).validate(token, NOW)
    return str(caught.value)


def _token(header: Mapping[str, Any] | None = None, claims: Mapping[str, Any] | str | None = None) -> str:
    return _keys()["p256"].token(header or {"alg": "ES256", "kid": "p256"}, claims or GOOD)


def test_a_valid_token_is_accepted() -> None:
    found = _ours(EXPECTED, key_set(*_keys().values())).validate(_token(), NOW)
    assert found == ("alice", (NOW + 3_000) * 1000, (NOW - 60_000) * 1000, {"a"})


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda: _token({"alg": "none", "kid": "p256"}) + "AA", "algorithm"),
        (lambda: _keys()["rsa"].token({"alg": "HS256", "kid": "rsa"}, GOOD), "algorithm"),
        (lambda: signing_key("P-256", "x").token({"alg": "ES256", "kid": "p256"}, GOOD), "signature"),
        (lambda: _token({"alg": "ES256", "kid": "p256", "crit": []}), "extensions"),  # as jose4j does not
        (lambda: _token({"alg": "ES256", "kid": "other"}), "no key"),
        (lambda: _token({"alg": "ES256", "kid": "rsa"}), "no key"),
        (lambda: _token({"alg": "RS256", "kid": "rsa"}) + "AA", "signature"),
        (lambda: _token(claims=GOOD | {"exp": NOW - 31}), "expired"),
        (lambda: _token(claims=GOOD | {"exp": NOW - 30}), "expired"),
        (lambda: _token(claims=GOOD | {"nbf": NOW + 31}), "not yet valid"),
        (lambda: _token(claims=GOOD | {"iat": NOW + 31}), "issued in the future"),
        (lambda: _token(claims=GOOD | {"aud": "another"}), "another audience"),
        (lambda: _token(claims=GOOD | {"iss": "another"}), "another issuer"),
        *(
            (lambda name=name: _token(claims={key: GOOD[key] for key in GOOD if key != name}), reason)
            for name, reason in (("exp", "exp"), ("iat", "iat"), ("iss", "issuer"), ("aud", "audience"), ("sub", "sub"))
        ),
        (lambda: _token(claims=json.dumps(GOOD)[:-1] + ', "sub": "root"}'), "twice"),
        (lambda: _token(claims=json.dumps(GOOD).replace(f"{NOW + 3_000}", "NaN")), "NaN"),
        (lambda: _token(claims=GOOD | {"exp": 1e300}), "no time"),
        (lambda: _token().replace(".", "=.", 1), "form"),
        (lambda: _token() + ".x", "form"),
        (lambda: "[" * 3_000, "form"),
        (lambda: f"{encode(b'[' * 100_000)}.e30.AA", "JSON"),
    ],
)
def test_every_check_fails_closed(token: Any, reason: str) -> None:
    """CVE-2026-33557, CVE-2026-110985, and the attacks of RFC 8725."""
    assert reason in _judge(token())


def test_the_times_have_a_skew() -> None:
    for change in ({"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}):
        assert _ours(EXPECTED, key_set(*_keys().values())).validate(_token(claims=GOOD | change), NOW)


def test_a_token_without_kid_needs_one_possible_key() -> None:
    one, two = signing_key("P-256", "p256"), signing_key("P-256", "second")
    token = one.token({"alg": "ES256"}, GOOD)
    assert _ours(EXPECTED, key_set(one)).validate(token, NOW)
    assert "no key" in _judge(token, key_set(one, two))


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda junk: f"{encode(junk)}.{encode(junk)}.{encode(junk)}"))
def test_any_text_is_rejected(token: str) -> None:
    assert _judge(token)


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"kty": "oct"},
        {"crv": "P-999"},
        {"x": "!"},
        {"x": "AA"},
        {"kid": 7},
        {"alg": 7},
    ],
)
def test_keys_for_other_uses_are_ignored(change: dict[str, Any]) -> None:
    key = signing_key("P-256", "p256").jwk | change
    with pytest.raises(JwksError, match="no key that can verify"):
        JsonWebKeySet.parse(json.dumps({"keys": [key, 7, {}]}))
    other = signing_key("P-384", "p384").jwk
    assert len(JsonWebKeySet.parse(json.dumps({"keys": [key, other]}))) == 1


def test_a_key_is_for_its_algorithm_only() -> None:
    key = signing_key("RSA2048", "rsa")
    keys = json.dumps({"keys": [key.jwk | {"alg": "PS256"}]})
    assert _ours(EXPECTED, keys).validate(key.token({"alg": "PS256", "kid": "rsa"}, GOOD), NOW)
    assert "no key" in _judge(key.token({"alg": "RS256", "kid": "rsa"}, GOOD), keys)


def test_short_rsa_keys_are_ignored() -> None:
    with pytest.raises(JwksError):
        JsonWebKeySet.parse(key_set(signing_key("RSA1024", "short")))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', '{"keys": []}', "[" * 100_000])
def test_a_key_set_without_keys_is_rejected(text: str) -> None:
    with pytest.raises(JwksError):
        JsonWebKeySet.parse(text)
