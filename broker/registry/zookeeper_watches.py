"""Watches of one ZooKeeper session, which outlive its connections (ZooKeeper's Java client: ZKWatchManager).

Kazoo drops watches with the connection. They are kept here with the transaction that the caller saw, and are set again
on the next connection, as ZooKeeper's own clients do (SetWatches). A watch whose node has changed since fires then.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final

import kazoo.exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent

from odradek.broker.registry.interface import Event, EventKind, Watcher
from odradek.broker.registry.kazoo_handler import AsyncResult

_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.DATA_CHANGED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}


class _Watched:
    """The watchers of a node, and the last transaction of the node that they saw; 0 for a node that does not exist."""

    __slots__ = ("watchers", "zxid")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] = {}
        self.zxid = 0


class WatchManager:
    """The watches of one session, by the full paths of their nodes."""

    __slots__ = ("_child_watches", "_client", "_data_watches", "_is_closed", "_is_over", "_loop", "_relative")

    def __init__(self, client: KazooClient, relative: Callable[[str], str]) -> None:
        """`relative` converts a full path to the path that watchers receive."""
        self._client = client
        self._relative = relative
        self._loop = asyncio.get_running_loop()
        self._data_watches: dict[str, _Watched] = {}
        self._child_watches: dict[str, _Watched] = {}
        self._is_over = False
        self._is_closed = False

    def keep_data(self, full: str, watch: Watcher | None, zxid: int) -> None:
        """Keep a watch on the data of a node, which is at transaction `zxid`; 0 for a node that does not exist."""
        self._keep(self._data_watches, full, watch, zxid)

    def keep_children(self, full: str, watch: Watcher | None, zxid: int) -> None:
        """Keep a watch on the children of a node, which are at transaction `zxid`."""
        self._keep(self._child_watches, full, watch, zxid)

    def _keep(self, table: dict[str, _Watched], full: str, watch: Watcher | None, zxid: int) -> None:
        if watch is not None and not self._is_over:
            watched = table.setdefault(full, _Watched())
            watched.watchers[watch] = None
            watched.zxid = zxid

    def received(self, event: WatchedEvent) -> None:
        """Call the watchers of a node that has changed."""
        if event.type in _KINDS:
            self._fire(_KINDS[event.type], event.path)

    def rearm(self) -> None:
        """Set all watches again, on a new connection."""
        for full in self._data_watches:
            answer = self._client.exists_async(full, self.received)
            answer.rawlink(functools.partial(self._rearmed_data, full))
        for full in self._child_watches:
            answer = self._client.get_children_async(full, self.received, include_data=True)
            answer.rawlink(functools.partial(self._rearmed_children, full))

    def expire(self) -> None:
        """Drop all watches, which ended with the session; watchers that are due are still called."""
        self._is_over = True
        self._data_watches.clear()
        self._child_watches.clear()

    def close(self) -> None:
        """Drop all watches; no watcher is called any more."""
        self._is_closed = True
        self.expire()

    def _fire(self, kind: EventKind, full: str) -> None:
        tables = [self._data_watches] if kind is not EventKind.CHILDREN_CHANGED else []
        if kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            tables.append(self._child_watches)
        released: dict[Watcher, None] = {}
        for table in tables:
            if watched := table.pop(full, None):
                released |= watched.watchers
        event = Event(kind, self._relative(full))
        for watcher in released:
            self._loop.call_soon(self._notify, watcher, event)

    def _notify(self, watcher: Watcher, event: Event) -> None:
        if not self._is_closed:
            watcher(event)

    def _rearmed_data(self, full: str, answer: AsyncResult) -> None:
        watched = self._data_watches.get(full)
        if watched is None or answer.exception is not None:
            return
        zxid = answer.value.mzxid if answer.value else 0
        if zxid == watched.zxid:
            return
        if not zxid:
            self._fire(EventKind.DELETED, full)
        else:
            self._fire(EventKind.DATA_CHANGED if watched.zxid else EventKind.CREATED, full)

    def _rearmed_children(self, full: str, answer: AsyncResult) -> None:
        watched = self._child_watches.get(full)
        if watched is None:
            return
        if isinstance(answer.exception, kazoo.exceptions.NoNodeError):
            self._fire(EventKind.DELETED, full)
        elif answer.exception is None and answer.value[1].pzxid != watched.zxid:
            self._fire(EventKind.CHILDREN_CHANGED, full)
