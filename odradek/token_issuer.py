"""An OAuth 2 authorization server on loopback, for tests of SASL/OAUTHBEARER.

It publishes its public keys as JWKS (RFC 7517), answers the client credentials grant (RFC 6749, 4.4) as clients of
KIP-768 send it, and signs tokens (RFC 7519, RS256) as a test asks for them: valid ones, expired ones, ones for another
audience, and ones that no broker may accept. It gives a token to every client that asks, so it belongs on loopback and
into tests only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY_BITS: Final = 2048
LARGEST_FORM_BYTES: Final = 16 * 1024
VALID_S: Final = 3600


class SigningKey:
    """An RSA key with its key id."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)

    @property
    def jwk(self) -> dict[str, str]:
        """The public key as a member of a JWKS."""
        numbers = self._key.public_key().public_numbers()
        parts = {name: _number(value) for name, value in (("n", numbers.n), ("e", numbers.e))}
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.key_id, **parts}

    @property
    def public_pem(self) -> bytes:
        """The public key, which an attacker has as well."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, data: bytes) -> bytes:
        """The RS256 signature of the data."""
        return self._key.sign(data, padding.PKCS1v15(), hashes.SHA256())


class TokenIssuer:
    """Issues tokens and publishes the keys to check them. A context manager: the server runs inside."""

    def __init__(self, audience: str = "odradek") -> None:
        """The server has an address as soon as it exists, and answers inside of the context."""
        self.audience = audience
        self.key = SigningKey("key-1")
        self._published = [self.key]
        self._stranger: SigningKey | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="token-issuer", daemon=True)

    def __enter__(self) -> TokenIssuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The issuer's name, which tokens have as `iss`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def jwks_url(self) -> str:
        """`sasl.oauthbearer.jwks.endpoint.url` of a broker."""
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        """`sasl.oauthbearer.token.endpoint.url` of a client. The client id becomes the subject of the token."""
        return f"{self.url}/token"

    @property
    def jwks(self) -> dict[str, Any]:
        """The document at `jwks_url`."""
        return {"keys": [key.jwk for key in self._published]}

    def rotate(self, *, keep_old: bool = True) -> None:
        """Sign with a new key from now on; without `keep_old` the tokens until now lose their key."""
        self.key = SigningKey(f"key-{len(self._published) + 1}")
        self._published = [*(self._published if keep_old else ()), self.key]

    def token(self, subject: str, *, valid_s: float = VALID_S, scope: str = "", **claims: Any) -> str:
        """A token of this issuer, valid from now for so many seconds; a negative number makes one that has expired.

        `claims` replace or add claims (`aud="other"`, `nbf=…`); None removes one.
        """
        return self._signed(self._claims(subject, valid_s, scope, claims), self.key)

    def token_without_signature(self, subject: str) -> str:
        """A token with `alg: none` in its header (RFC 7515, Unsecured JWS)."""
        return f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{_encoded(self._claims(subject))}."

    def token_of_another_key(self, subject: str) -> str:
        """A token with the id of this issuer's key, signed by a key that is not published."""
        self._stranger = self._stranger or SigningKey("stranger")
        return self._signed(self._claims(subject), self._stranger, self.key.key_id)

    def token_of_an_unknown_key(self, subject: str) -> str:
        """A token with a key id that is not published."""
        return self._signed(self._claims(subject), self.key, "no-such-key")

    def token_with_the_public_key_as_secret(self, subject: str) -> str:
        """A token signed by HMAC with the text of the public key: key confusion (CVE-2016-10555 and its kind)."""
        header = {"alg": "HS256", "typ": "JWT", "kid": self.key.key_id}
        text = f"{_encoded(header)}.{_encoded(self._claims(subject))}"
        return f"{text}.{_base64(hmac.digest(self.key.public_pem, text.encode(), hashlib.sha256))}"

    def altered(self, token: str, **claims: Any) -> str:
        """The same token with other claims and the old signature."""
        header, payload, signature = token.split(".")
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return f"{header}.{_encoded({**found, **claims})}.{signature}"

    def _claims(
        self, subject: str, valid_s: float = VALID_S, scope: str = "", more: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.url,
            "sub": subject,
            "aud": self.audience,
            "iat": min(now, int(now + valid_s) - 1),
            "exp": int(now + valid_s),
            "scope": scope or None,
            **(more or {}),
        }
        return {name: value for name, value in claims.items() if value is not None}

    @staticmethod
    def _signed(claims: Mapping[str, Any], key: SigningKey, key_id: str | None = None) -> str:
        text = f"{_encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': key_id or key.key_id})}.{_encoded(claims)}"
        return f"{text}.{_base64(key.sign(text.encode()))}"


def _handler_of(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/jwks":
                self._answer(200, issuer.jwks)
            else:
                self._answer(404, {"error": "not_found"})

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if self.path != "/token" or not length.isdecimal() or int(length) > LARGEST_FORM_BYTES:
                self._answer(404, {"error": "not_found"})
                return
            form = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"))
            client = self._client(form)
            if form.get("grant_type") != ["client_credentials"] or not client:
                self._answer(400, {"error": "invalid_request"})
                return
            scope = " ".join(form.get("scope", ()))
            token = issuer.token(client, scope=scope)
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": VALID_S, "scope": scope})

        def _client(self, form: Mapping[str, list[str]]) -> str:
            """The client id, of HTTP basic authentication or of the form."""
            kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
            if kind.lower() != "basic":
                return form.get("client_id", [""])[0]
            try:
                decoded = base64.b64decode(credentials, validate=True).decode()
            except ValueError:
                return ""
            return unquote(decoded.partition(":")[0])

        def _answer(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests carry secrets: none is logged."""

    return Handler


def _encoded(document: Mapping[str, Any]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
