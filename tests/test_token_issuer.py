"""The issuer of tokens for tests: its keys, its grant and its claims."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.token_issuer import TokenIssuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def post(url: str, form: dict[str, str], authorization: str | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode())
    if authorization is not None:
        request.add_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=10) as response:
        found: dict[str, Any] = json.load(response)
    return found


def test_the_published_keys_have_no_private_part(issuer: TokenIssuer) -> None:
    with urllib.request.urlopen(issuer.jwks_url, timeout=10) as response:
        keys = json.load(response)["keys"]
    assert [set(key) for key in keys] == [{"kty", "use", "alg", "kid", "n", "e"}]


def test_a_client_gets_a_token_for_its_id(issuer: TokenIssuer) -> None:
    form = {"grant_type": "client_credentials", "scope": "orders"}
    basic = "Basic " + base64.b64encode(b"alice:secret").decode()
    answer = post(issuer.token_url, form, basic)
    assert answer["token_type"] == "Bearer"
    claims = claims_of(answer["access_token"])
    assert (claims["sub"], claims["scope"], claims["iss"]) == ("alice", "orders", issuer.url)
    assert post(issuer.token_url, {**form, "client_id": "bob"})["scope"] == "orders"


@pytest.mark.parametrize(
    ("path", "form"), [("/token", {"grant_type": "password", "client_id": "a"}), ("/other", {}), ("/token", {})]
)
def test_other_requests_are_refused(issuer: TokenIssuer, path: str, form: dict[str, str]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(issuer.url + path, form)
    refused.value.close()
    assert refused.value.code in (400, 404)


def test_claims_can_be_replaced_and_removed(issuer: TokenIssuer) -> None:
    claims = claims_of(issuer.token("alice", aud="other", sub=None, valid_s=-60))
    assert claims["aud"] == "other"
    assert "sub" not in claims
    assert claims["exp"] < claims_of(issuer.token("alice"))["iat"]
