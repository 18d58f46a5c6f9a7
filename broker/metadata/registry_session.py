"""Metadata store session: the broker's session, replaced by a new one when it has expired (Kafka: ZooKeeperClient).

A broker lives longer than its sessions. When the metadata store is unreachable for the session's timeout, the ephemeral
nodes are removed (the broker's registration, the controller znode), and another broker may be elected controller.
Members that depend on the session are therefore notified of its end at once, and begin again, in order, with the next
session (Kafka's ZooKeeperClient reinitializes in the same way). Until then the broker serves requests that need no
change of the metadata store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from odradek.broker.registry.interface import Registry, RegistryError, SessionState
from odradek.protocol.errors import KafkaError

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
OpenSession = Callable[[], Awaitable[Registry]]


class StateChangeHandler(Protocol):
    """A part of the broker that depends on the session."""

    def session_lost(self) -> None:
        """Handle the end of the session: its nodes and watches are gone."""
        ...

    async def session_begun(self, registry: Registry) -> None:
        """Begin with a new session. Raises RegistryError; the call is then repeated, if needed with another session."""
        ...


class RegistrySession:
    """The sequence of the broker's sessions."""

    def __init__(self, open_session: OpenSession) -> None:
        """Nothing is opened before `start`."""
        self._open = open_session
        self._members: tuple[StateChangeHandler, ...] = ()
        self._registry: Registry | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def registry(self) -> Registry:
        """The current session; after an expiry the old one, until there is a new one."""
        assert self._registry is not None, "the session has not been started"
        return self._registry

    async def start(self) -> Registry:
        """Open the first session; `begin` notifies the members. Raises RegistryError."""
        return await self._connect()

    async def begin(self, members: Iterable[StateChangeHandler]) -> None:
        """Notify the members of this session and of all later ones, in their order. Raises what they raise."""
        self._members = tuple(members)
        for member in self._members:
            await member.session_begun(self.registry)

    async def close(self) -> None:
        """End the session; its nodes are removed at once."""
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._registry is not None:
            await self._registry.close()

    def abandon(self) -> None:
        """End the current session while the event loop stands still, from another thread: other brokers then lead.

        When the loop runs again, this is an expiry like any other.
        """
        if self._registry is not None and not self._closed:
            self._registry.abandon()

    async def _connect(self) -> Registry:
        registry = await self._open()
        self._registry = registry
        registry.add_listener(lambda state: self._received(registry, state))
        return registry

    def _received(self, registry: Registry, state: SessionState) -> None:
        if registry is not self._registry or self._closed:
            return
        if state is SessionState.EXPIRED:
            log.warning("metadata store session expired, opening another")
            for member in self._members:
                member.session_lost()
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.get_running_loop().create_task(self._renew())
        else:
            log.info("metadata store session changed state=%s", state.value)

    async def _renew(self) -> None:
        registry: Registry | None = None
        while not self._closed:
            try:
                if registry is None or registry.state is SessionState.EXPIRED:
                    registry = await self._connect()
                for member in self._members:
                    await member.session_begun(registry)
            except (RegistryError, KafkaError, OSError) as error:
                log.warning("retrying start of the metadata store session error=%s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if registry.state is not SessionState.EXPIRED:
                return
