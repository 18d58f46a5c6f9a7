"""Delegation token manager: creates, renews and expires tokens in the metadata store (KIP-48; Kafka:
DelegationTokenManagerZk).

    /delegation_token/tokens/ID                        a token without its secret
    /delegation_token/token_changes/token_change_N     the id of a token that has changed or was removed

Every broker has all tokens in its cache, with their SCRAM credentials. The controller removes expired tokens. One
request is handled at a time, as in Kafka. Unlike in Kafka, a token that another broker removes meanwhile is not written
again by a renewal: what was revoked stays revoked.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import Password
from odradek.broker.metadata.change_notifications import ChangeNotifications
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NoNodeError, Registry, RegistryError, ensure_path
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.state.delegation_tokens import (
    DelegationToken,
    DelegationTokenCache,
    TokenInformation,
    TokenLifetimes,
    expire,
    token_credentials,
    token_hmac,
)
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl.scram_credentials import MECHANISMS

log = logging.getLogger(__name__)
T = TypeVar("T")

SALT_BYTES: Final = 16

RunInThread = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first callable in a thread, then the second on the event loop with the exception of the first, or None."""


class DelegationTokenManager:
    """The tokens of the cluster. Its `listener` reads those that other brokers change."""

    def __init__(
        self,
        config: BrokerConfig,
        cache: DelegationTokenCache,
        registry: Callable[[], Registry],
        random: Random,
        run_in_thread: RunInThread,
        request_tasks: RequestTasks,
        clock: Clock,
    ) -> None:
        """`registry()` returns the current session. Without a secret key every request is refused."""
        self.cache = cache
        self._secret_key = secret_key(config)
        self._lifetimes = TokenLifetimes(
            int(config["delegation.token.max.lifetime.ms"]), int(config["delegation.token.expiry.time.ms"])
        )
        self._registry = registry
        self._random = random
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._turn = asyncio.Lock()  # requests, notifications and the expiry check, one after the other
        self._notifications = ChangeNotifications(
            znodes.DELEGATION_TOKEN_CHANGE_PREFIX, self._read_all, self._read_changed, request_tasks, clock
        )

    @property
    def is_enabled(self) -> bool:
        """Whether the brokers have a secret key."""
        return bool(self._secret_key)

    # ---- session

    def session_lost(self) -> None:
        """Stop reading changes. The tokens in the cache stay valid."""
        self._notifications.listener.session_lost()

    async def session_begun(self, registry: Registry) -> None:
        """Read all tokens, and watch for changes. Raises RegistryError."""
        if self.is_enabled:
            await self._notifications.listener.session_begun(registry)

    # ---- requests

    async def create(
        self, owner: KafkaPrincipal, requester: KafkaPrincipal, renewers: Sequence[KafkaPrincipal], lifetime_ms: int
    ) -> DelegationToken:
        """Create a token; with a lifetime of 0 or less it is the longest. Raises KafkaError, RegistryError."""
        self._require_enabled()
        async with self._turn:
            token_id = self._new_id()
            information = self._lifetimes.new_token(
                token_id, owner, requester, renewers, lifetime_ms, self._clock.now_ms()
            )
            await self._registry().create(znodes.delegation_token_path(token_id), information.encode())
            token = await self._put(information)
            await self._notify(token_id)
        log.info("created delegation token token_id=%s owner=%s requester=%s", token_id, owner, requester)
        return token

    async def renew(self, principal: KafkaPrincipal, hmac: bytes, period_ms: int) -> int:
        """Renew a token, with a negative period by the default; returns its new expiry.

        Raises KafkaError, RegistryError.
        """
        self._require_enabled()
        async with self._turn:
            known = self._of_hmac(hmac)
            renewed = self._lifetimes.renew(known, principal, period_ms, self._clock.now_ms())
            await self._update(renewed)
        log.info("renewed delegation token token_id=%s owner=%s", renewed.token_id, renewed.owner)
        return renewed.expiry_timestamp_ms

    async def expire(self, principal: KafkaPrincipal, hmac: bytes, period_ms: int) -> int:
        """Change the expiry of a token, with a negative period remove it; returns its new expiry.

        Raises KafkaError, RegistryError.
        """
        self._require_enabled()
        async with self._turn:
            known, now_ms = self._of_hmac(hmac), self._clock.now_ms()
            changed = expire(known, principal, period_ms, now_ms)
            if changed is None:
                await self._remove(known.token_id)
            else:
                await self._update(changed)
        log.info("expired delegation token token_id=%s owner=%s", known.token_id, known.owner)
        return now_ms if changed is None else changed.expiry_timestamp_ms

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired; the next call removes those that this one could not."""
        async with self._turn:
            now_ms = self._clock.now_ms()
            for token in self.cache.tokens:
                if token.information.is_expired(now_ms):
                    token_id = token.information.token_id
                    try:
                        await self._remove(token_id)
                    except RegistryError as error:
                        log.warning("cannot remove expired delegation token token_id=%s error=%s", token_id, error)
                        return
                    log.info("removed expired delegation token token_id=%s owner=%s", token_id, token.information.owner)

    def _require_enabled(self) -> None:
        if not self.is_enabled:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _of_hmac(self, hmac: bytes) -> TokenInformation:
        token = self.cache.of_hmac(hmac)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token.information

    def _new_id(self) -> str:
        """A random UUID of version 4, in URL-safe Base64."""
        identifier = uuid.UUID(bytes=self._random.randbytes(16), version=4)
        return base64.urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()

    # ---- nodes

    async def _update(self, information: TokenInformation) -> None:
        token_id = information.token_id
        try:
            await self._registry().set(znodes.delegation_token_path(token_id), information.encode())
        except NoNodeError:
            self.cache.remove(token_id)
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        await self._put(information)
        await self._notify(token_id)

    async def _remove(self, token_id: str) -> None:
        try:
            await self._registry().delete(znodes.delegation_token_path(token_id))
        except NoNodeError:
            self.cache.remove(token_id)
            return
        self.cache.remove(token_id)
        await self._notify(token_id)

    async def _notify(self, token_id: str) -> None:
        await self._registry().create(znodes.DELEGATION_TOKEN_CHANGE_PREFIX, token_id.encode(), sequential=True)

    # ---- cache

    async def _read_all(self, registry: Registry) -> None:
        async with self._turn:
            await ensure_path(registry, znodes.DELEGATION_TOKENS)
            ids, _ = await registry.children(znodes.DELEGATION_TOKENS)
            for token_id in {token.information.token_id for token in self.cache.tokens}.difference(ids):
                self.cache.remove(token_id)
            for token_id in ids:
                await self._read(registry, token_id)
            log.info("loaded delegation tokens count=%d", len(self.cache.tokens))

    async def _read_changed(self, registry: Registry, notification: bytes | None) -> None:
        async with self._turn:
            await self._read(registry, (notification or b"").decode("utf-8", "replace"))

    async def _read(self, registry: Registry, token_id: str) -> None:
        """Read a token again; one that cannot be read is not accepted."""
        try:
            data, _ = await registry.get(znodes.delegation_token_path(token_id))
            information = TokenInformation.decode(data)
        except NoNodeError:
            self.cache.remove(token_id)
        except znodes.ZnodeError as error:
            log.error("ignoring unreadable delegation token token_id=%s error=%s", token_id, error)
            self.cache.remove(token_id)
        else:
            await self._put(information)

    async def _put(self, information: TokenInformation) -> DelegationToken:
        """Put a token into the cache, with the credentials that it has already, or new ones."""
        token_id = information.token_id
        token = DelegationToken(information, token_hmac(self._secret_key, token_id))
        credentials = self.cache.credentials(token_id)
        if credentials is None:
            salts = {each.name: self._random.randbytes(SALT_BYTES) for each in MECHANISMS.values()}
            credentials = await self._call_in_thread(lambda: token_credentials(token.hmac, salts))
        self.cache.put(token, credentials)
        return token

    async def _call_in_thread(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        results: list[T] = []

        def ended(error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(results[0])

        self._run_in_thread(lambda: results.append(work()), ended)
        return await done


def secret_key(config: BrokerConfig) -> str:
    """The key that signs tokens; empty if there is none, so that there are no tokens."""
    for name in ("delegation.token.secret.key", "delegation.token.master.key"):
        value = config[name]
        if isinstance(value, Password):
            return value.value
    return ""
