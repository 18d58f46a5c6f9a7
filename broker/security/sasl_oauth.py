"""SASL/OAUTHBEARER of a broker: the keys of the issuer, and this broker's own tokens (Kafka: RefreshingHttpsJwks,
AccessTokenRetriever, ExpiringCredentialRefreshingLogin).

The keys are read before a listener opens, and again periodically in a thread; a key that a token names and the set does
not have brings the next reading forward. Without a set of keys no token is valid. The broker's own token is fetched
when a connection to another broker needs one, and again after a part of its life.

URLs and files have to be on a list of allowed ones (CVE-2025-27817). The lists are broker properties with the names of
Kafka's system properties.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from odradek.broker.config.types import ConfigError
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.security.sasl_oauth_http import IssuerError, Timeouts, read_url
from odradek.broker.security.state.jwks import JsonWebKeySet, JwksError
from odradek.broker.security.state.jwt import ExpectedClaims, TokenValidator, UnknownKeyError
from odradek.broker.security.state.unsecured_tokens import UnsecuredOptions, unsecured_token, validate_unsecured
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.oauthbearer import InitialResponse, OAuthBearerClient, OAuthBearerToken

if TYPE_CHECKING:
    from odradek.broker.security.sasl_dependencies import SaslDependencies
    from odradek.broker.security.sasl_mechanisms import MechanismConfig

log = logging.getLogger(__name__)

ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
ALLOW_UNSECURED: Final = "odradek.sasl.oauthbearer.allow.unsecured.tokens"
SOONEST_EXPEDITED_MS: Final = 10_000
"""The shortest time between two readings that unknown keys bring forward."""
REFRESH_WINDOW: Final = 0.8
"""The broker's own token is replaced after this part of its life."""
UNSECURED_LIFE_S: Final = 3600
DEFAULT_TIMEOUT_S: Final = 10.0
EXTENSION: Final = "extension_"
UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_"


def require_allowed(url: str, property_name: str, static: Mapping[str, str]) -> str:
    """The URL, if it is on the list of allowed URLs, or its file on that of files. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        name, wanted = ALLOWED_FILES, unquote(parts.path)
    elif parts.scheme in ("http", "https"):
        name, wanted = ALLOWED_URLS, url
    else:
        raise ConfigError(f"Invalid value {url} for configuration {property_name}: allowed: https:, http: and file:")
    listed = [each.strip() for each in static.get(name, "").split(",")]
    if not wanted or (wanted not in listed and url not in listed):
        raise ConfigError(f"Invalid value {url} for configuration {property_name}: add {wanted} to {name}")
    return url


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """When keys are read again, in milliseconds (sasl.oauthbearer.jwks.endpoint.*)."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class JwksKeys:
    """The keys of one issuer."""

    def __init__(self, read: Callable[[], bytes], times: RefreshTimes, clock: Clock, timers: Timers) -> None:
        """`read` returns the document, in a thread. Raises IssuerError."""
        self._read = read
        self._times = times
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._read_ms = 0
        self._closed = False
        self.current = JsonWebKeySet(())

    async def start(self) -> None:
        """Read the keys for the first time. Raises ConfigError: a broker without keys does not start."""
        try:
            await self._fetch()
        except (IssuerError, JwksError) as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: the keys cannot be read: {error}") from error
        self._schedule(self._times.refresh_ms)

    def expedite(self) -> None:
        """A token names a key that the set does not have: read the keys now, unless they have been read just now."""
        if self._task is None and self._clock.monotonic_ms() - self._read_ms >= SOONEST_EXPEDITED_MS:
            self._begin()

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _fetch(self) -> None:
        self._read_ms = self._clock.monotonic_ms()
        data = await asyncio.get_running_loop().run_in_executor(None, self._read)
        self.current = JsonWebKeySet.parse(data)

    def _schedule(self, wait_ms: int) -> None:
        if not self._closed:
            self._timer = self._timers.at(self._clock.monotonic_ms() + max(1, wait_ms), self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        times = self._times
        wait_ms = times.refresh_ms
        try:
            await self._fetch()
            self._failures = 0
        except (IssuerError, JwksError) as error:  # the last keys stay
            wait_ms = min(times.backoff_max_ms, times.backoff_ms << min(self._failures, 16))
            self._failures += 1
            log.warning("reading the keys of the token issuer failed retry_ms=%d error=%s", wait_ms, error)
        finally:
            self._task = None
        self._schedule(wait_ms)


class SignedTokens:
    """Validates tokens that an issuer has signed."""

    def __init__(self, keys: JwksKeys, expected: ExpectedClaims, clock: Clock) -> None:
        self._keys = keys
        self._validator = TokenValidator(lambda: keys.current, expected)
        self._clock = clock

    def validate(self, token: str) -> OAuthBearerToken:
        """The contents of a valid token. Raises TokenRejectedError."""
        try:
            return self._validator.validate(token, self._clock.now_ms() // 1000)
        except UnknownKeyError:
            self._keys.expedite()
            raise


class UnsecuredTokens:
    """Validates tokens without a signature."""

    def __init__(self, options: UnsecuredOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock

    def validate(self, token: str) -> OAuthBearerToken:
        """The contents of a valid token. Raises TokenRejectedError."""
        return validate_unsecured(token, self._options, self._clock.now_ms())


VALIDATORS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


def token_validation(config: MechanismConfig, dependencies: SaslDependencies) -> Callable[[str], OAuthBearerToken]:
    """How a listener validates tokens.

    Raises ConfigError, also where neither keys nor unsecured tokens are configured.
    """
    handler = config.require_handler(*VALIDATORS, UNSECURED_VALIDATOR)
    if config[_JWKS_URL] is None or handler == UNSECURED_VALIDATOR:
        return _unsecured_tokens(config, dependencies, handler).validate
    url = require_allowed(config[_JWKS_URL], config.property_name(_JWKS_URL), config.config.static)
    times = RefreshTimes(
        int(config["sasl.oauthbearer.jwks.endpoint.refresh.ms"]),
        int(config["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]),
        int(config["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]),
    )
    keys = JwksKeys(partial(read_url, url, _timeouts(config)), times, dependencies.clock, dependencies.timers)
    config.services.append(keys)
    expected = ExpectedClaims(
        frozenset(config["sasl.oauthbearer.expected.audience"] or ()),
        config["sasl.oauthbearer.expected.issuer"],
        int(config["sasl.oauthbearer.clock.skew.seconds"]),
        config["sasl.oauthbearer.scope.claim.name"],
        config["sasl.oauthbearer.sub.claim.name"],
    )
    return SignedTokens(keys, expected, dependencies.clock).validate


def _unsecured_tokens(config: MechanismConfig, dependencies: SaslDependencies, handler: str | None) -> UnsecuredTokens:
    if config.config.static.get(ALLOW_UNSECURED, "").strip().lower() != "true" or handler in VALIDATORS:
        raise ConfigError(
            f"SASL/OAUTHBEARER of listener {config.listener} needs {config.property_name(_JWKS_URL)}; only with "
            f"{ALLOW_UNSECURED}=true it accepts tokens without a signature, which every client can make for every user"
        )
    try:
        options = UnsecuredOptions.of_jaas(config.jaas_options() or {})
    except ValueError as error:
        raise ConfigError(f"{config.property_name('sasl.jaas.config')}: {error}") from error
    log.warning("accepting OAuth tokens without a signature listener=%s", config.listener)
    return UnsecuredTokens(options, dependencies.clock)


def _timeouts(config: MechanismConfig) -> Timeouts:
    limits = (config["sasl.login.connect.timeout.ms"], config["sasl.login.read.timeout.ms"])
    return Timeouts(*(DEFAULT_TIMEOUT_S if limit is None else limit / 1000 for limit in limits))


def broker_token(config: MechanismConfig, dependencies: SaslDependencies) -> OAuthClients:
    """This broker's own token for connections to other brokers. Raises ConfigError."""
    options = config.require_jaas_options()
    extensions = {name.removeprefix(EXTENSION): value for name, value in options.items() if name.startswith(EXTENSION)}
    return OAuthClients(_fetch_token(config, options), extensions, dependencies.clock)


def _fetch_token(config: MechanismConfig, options: Mapping[str, str]) -> FetchToken:
    if config[_TOKEN_URL] is None:
        if not any(name.startswith(UNSECURED_CLAIM) for name in options):
            raise ConfigError(f"SASL/OAUTHBEARER between brokers needs {config.property_name(_TOKEN_URL)}")
        return partial(make_unsecured, options)
    url = require_allowed(config[_TOKEN_URL], config.property_name(_TOKEN_URL), config.config.static)
    if urlsplit(url).scheme == "file":
        return partial(fetch_from_file, url)
    missing = [name for name in ("clientId", "clientSecret") if not options.get(name)]
    if missing:
        raise ConfigError(f"{config.property_name('sasl.jaas.config')}: the option {missing[0]} is missing")
    return partial(
        fetch_from_endpoint,
        url,
        _timeouts(config),
        options["clientId"],
        options["clientSecret"],
        options.get("scope"),
    )


FetchToken = Callable[[], str]
"""Returns a token, in a thread. Raises IssuerError."""


def fetch_from_endpoint(url: str, timeouts: Timeouts, client_id: str, client_secret: str, scope: str | None) -> str:
    """A token of the client credentials grant (RFC 6749, 4.4). Raises IssuerError."""
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    secret = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {secret}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    data = read_url(url, timeouts, urlencode(form).encode(), headers)
    try:
        token = json.loads(data)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IssuerError("the response of the token endpoint has no access_token") from error
    if not isinstance(token, str) or not token.strip():
        raise IssuerError("the access_token of the token endpoint is empty")
    return token.strip()


def fetch_from_file(url: str) -> str:
    """The token in a file. Raises IssuerError."""
    try:
        return read_url(url, Timeouts()).decode().strip()
    except ValueError as error:
        raise IssuerError("the file of the token is not in UTF-8") from error


def make_unsecured(options: Mapping[str, str]) -> str:
    """A token of the JAAS options `unsecuredLoginStringClaim_NAME`."""
    claims: dict[str, Any] = {
        name.removeprefix(UNSECURED_CLAIM): value for name, value in options.items() if name.startswith(UNSECURED_CLAIM)
    }
    now_s = int(time.time())
    return unsecured_token({"iat": now_s, "exp": now_s + UNSECURED_LIFE_S, **claims})


class OAuthClients:
    """Authenticates connections of this broker with its token."""

    def __init__(self, fetch: FetchToken, extensions: Mapping[str, str], clock: Clock) -> None:
        self._fetch = fetch
        self._extensions = extensions
        self._clock = clock
        self._token = ""
        self._replace_at_ms = 0

    async def exchange(self, send: Callable[[bytes], Any], host: str) -> None:
        """Send the token, a new one if the last has reached the end of its life. Raises SaslError, OSError."""
        client = OAuthBearerClient(InitialResponse(await self._current(), extensions=self._extensions))
        answer = client.receive(await send(client.first_message()))
        if answer is not None:
            await send(answer)
            raise SaslError("the broker has rejected the token")

    async def _current(self) -> str:
        now_ms = self._clock.now_ms()
        if now_ms >= self._replace_at_ms:
            try:
                self._token = await asyncio.get_running_loop().run_in_executor(None, self._fetch)
            except IssuerError as error:
                raise SaslError(f"no token: {error}") from error
            self._replace_at_ms = now_ms + int(max(0, _expiry_ms(self._token) - now_ms) * REFRESH_WINDOW)
        return self._token


def _expiry_ms(token: str) -> int:
    """The time in the claim exp of a token; 0 without that claim, so that the token is used once."""
    try:
        payload = token.split(".")[1]
        return int(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"] * 1000)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return 0
