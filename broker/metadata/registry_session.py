"""The broker's session with the registry, and the next one when it has expired.

A broker lives longer than its sessions: when the registry could not be reached for the session's timeout, the ephemeral
nodes are gone (the broker's registration, the controller's seat) and another broker may have taken over what this one
did. What depends on the session therefore hears of its end at once, and is begun again, in order, with the next
(Kafka's ZooKeeperClient reinitialises in the same way). Until then the broker serves what needs no change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from odradek.broker.registry.interface import Registry, RegistryError, SessionState
from odradek.protocol.errors import KafkaError

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
OpenSession = Callable[[], Awaitable[Registry]]


class Member(Protocol):
    """What lives as long as a session."""

    def session_lost(self) -> None:
        """The session is over: nothing that it gave holds any more."""
        ...

    async def session_begun(self, registry: Registry) -> None:
        """There is a new session. Raises RegistryError; it is then tried again, with another session if need be."""
        ...


class RegistrySession:
    """Sessions, one after the other."""

    def __init__(self, open_session: OpenSession, members: list[Member]) -> None:
        """`members` are told in their order. Nothing is opened before `start`."""
        self._open = open_session
        self._members = members
        self._registry: Registry | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def registry(self) -> Registry:
        """The session as it is now; after an expiry the old one, until there is a new one."""
        assert self._registry is not None, "the session has not been started"
        return self._registry

    async def start(self) -> Registry:
        """Open the first session; members are told with `begin`. Raises RegistryError."""
        return await self._connect()

    async def begin(self) -> None:
        """Tell the members of the first session. Raises what they raise."""
        for member in self._members:
            await member.session_begun(self.registry)

    async def close(self) -> None:
        """End the session; its nodes go at once."""
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._registry is not None:
            await self._registry.close()

    async def _connect(self) -> Registry:
        registry = await self._open()
        self._registry = registry
        registry.add_listener(lambda state: self._received(registry, state))
        return registry

    def _received(self, registry: Registry, state: SessionState) -> None:
        if registry is not self._registry or self._closed:
            return
        if state is SessionState.EXPIRED:
            log.warning("the registry session has expired; opening another")
            for member in self._members:
                member.session_lost()
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.get_running_loop().create_task(self._renew())
        else:
            log.info("the registry session is %s", state.value)

    async def _renew(self) -> None:
        registry: Registry | None = None
        while not self._closed:
            try:
                if registry is None or registry.state is SessionState.EXPIRED:
                    registry = await self._connect()
                for member in self._members:
                    await member.session_begun(registry)
            except (RegistryError, KafkaError, OSError) as error:
                log.warning("the registry session could not be begun yet: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if registry.state is not SessionState.EXPIRED:
                return
