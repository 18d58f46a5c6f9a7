"""ZooKeeper's data tree as a pure state machine: it has no file, clock, loop or lock; `now_ms` is an argument.

The rules are those of ZooKeeper 3.8 (PrepRequestProcessor decides, DataTree applies, WatchManager fires); a
differential test compares them with the real server. Those that are easy to get wrong:
- Every write takes the next zxid, a failed one too, and a transaction of several operations takes one in all.
- A node counts the children ever created under it. The number in a sequential name is that count before the create,
  whether or not earlier siblings were sequential. `Stat.cversion` counts removals as well.
- Setting data does not change the parent. Creating and deleting set the parent's pzxid.
- Deleting a node fires its data watches and its child watches, then the parent's child watches; a watcher in two of the
  lists fires once for the node.

The tree writes in two steps. `Tree.submit` decides operations one by one and turns each into a `Step`, a decision that
depends on nothing else; `Tree.replay` takes such steps from a journal. Both then run the same code to apply them.

Every node has an access list. A write comes with the identities of its client, which the lists are checked against;
without identities nothing is checked: that is a broker that has the tree in its own process.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from odradek.broker.registry.acls import Identities, Permission, check_permission, expand_acl
from odradek.broker.registry.interface import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Created,
    Delete,
    Event,
    EventKind,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    RegistryError,
    SessionExpiredError,
    Set,
    Stat,
)

ROOT = "/"
MAX_DATA_BYTES = 0xFFFFF
"""ZooKeeper's jute.maxbuffer, the bound of one packet."""
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Java iterates over UTF-16 units, so it rejects a character beyond the basic plane as a surrogate."""
SYSTEM_PATHS = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
"""Nodes that ZooKeeper reserves; they exist from the start and cannot be deleted."""


@dataclass(slots=True)
class Node:
    """One node. `creations` is the stored cversion of ZooKeeper: how many children were ever created."""

    data: bytes | None
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0
    version: int = 0
    creations: int = 0
    ephemeral_owner: int = 0
    children: dict[str, None] = field(default_factory=dict)
    acl: tuple[Acl, ...] = OPEN_ACL
    aversion: int = 0

    def stat(self) -> Stat:
        """The stat that a client receives."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=self.creations * 2 - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data or b""),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )

    def copy(self) -> Node:
        """A copy that shares no mutable state."""
        return Node(
            self.data,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            self.creations,
            self.ephemeral_owner,
            self.children.copy(),
            self.acl,
            self.aversion,
        )


class CreateStep(NamedTuple):
    """Create a node at its final path; `parent_creations` is the parent's count afterwards."""

    path: str
    data: bytes | None
    ephemeral: bool
    parent_creations: int
    acl: tuple[Acl, ...] = OPEN_ACL


class SetStep(NamedTuple):
    """Set the data and version of a node."""

    path: str
    data: bytes | None
    version: int


class SetAclStep(NamedTuple):
    """Set the access list of a node and its version."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class DeleteStep(NamedTuple):
    """Delete a node."""

    path: str


class CheckStep(NamedTuple):
    """A successful check; it changes nothing."""

    path: str
    version: int


class OpenSessionStep(NamedTuple):
    """Begin a session."""

    timeout_ms: int


class CloseSessionStep(NamedTuple):
    """End a session and delete these ephemeral nodes."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Replace the access list of a node at a version of the list. No part of a `multi`, as in ZooKeeper."""

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


Step: TypeAlias = CreateStep | SetStep | SetAclStep | DeleteStep | CheckStep | OpenSessionStep | CloseSessionStep


class JournalTransaction(NamedTuple):
    """The journal's record of one write: its session, its time and its steps, all under one zxid."""

    session_id: int
    zxid: int
    time_ms: int
    steps: tuple[Step, ...]
    multi: bool = False


class CommittedTransaction(NamedTuple):
    """An accepted write: the results for the caller, the transaction for the journal, the events for the watches."""

    results: list[OperationResult]
    transaction: JournalTransaction
    events: list[Event]


class Tree:
    """The nodes, the sessions, and the zxid of the last write."""

    __slots__ = ("_ephemerals", "_nodes", "_sessions", "_zxid")

    def __init__(self) -> None:
        self._zxid = 0
        self._sessions: dict[int, int] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._nodes: dict[str, Node] = {ROOT: Node(b"")}
        for path in SYSTEM_PATHS:
            self._attach(path, Node(b""))

    @classmethod
    def restore(cls, zxid: int, sessions: dict[int, int], nodes: Iterable[tuple[str, Node]]) -> Tree:
        """Restore the tree from a snapshot; `nodes` must have parents before children. Raises NoNodeError where it does
        not.
        """
        tree = cls()
        tree._zxid = zxid
        tree._sessions = dict(sessions)
        for path, node in nodes:
            known = tree._nodes.get(path)
            if known is not None:
                node.children = known.children
                tree._nodes[path] = node
            else:
                tree._attach(path, node)
        return tree

    # Reads

    @property
    def zxid(self) -> int:
        """The number of the last write, failed ones included."""
        return self._zxid

    @property
    def sessions(self) -> dict[int, int]:
        """Session ids and their timeouts in milliseconds; a copy."""
        return dict(self._sessions)

    def nodes(self) -> Iterator[tuple[str, Node]]:
        """Every path and node, parents first. The nodes are the tree's own: read only."""
        yield from self._nodes.items()  # a node is added after its parent

    def find(self, path: str) -> Node | None:
        """A node, the tree's own: read only; None where there is none."""
        return self._nodes.get(path)

    def acl(self, path: str) -> tuple[Acl, ...]:
        """The access list. Raises NoNodeError, BadArgumentsError."""
        return self._node(path).acl

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """Data and stat. Raises NoNodeError, BadArgumentsError."""
        node = self._node(path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        """The stat, or None. Raises BadArgumentsError."""
        check_path(path)
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> tuple[list[str], Stat]:
        """The names of the children, sorted, and the stat. Raises NoNodeError, BadArgumentsError."""
        node = self._node(path)
        return sorted(node.children), node.stat()

    # Writes

    def open_session(self, session_id: int, timeout_ms: int, now_ms: int) -> CommittedTransaction:
        """Begin a session. The id must be new: raises BadArgumentsError."""
        if session_id in self._sessions:
            raise BadArgumentsError(detail=f"session {session_id:#x} is open already")
        self._zxid += 1
        return self._commit(JournalTransaction(session_id, self._zxid, now_ms, (OpenSessionStep(timeout_ms),)), [None])

    def close_session(self, session_id: int, now_ms: int) -> CommittedTransaction:
        """End a session, by its owner or because it expired; its ephemeral nodes are deleted in path order.

        Raises SessionExpiredError when there is no such session.
        """
        self._check_session(session_id)
        self._zxid += 1
        paths = tuple(sorted(self._ephemerals.get(session_id, ())))
        return self._commit(JournalTransaction(session_id, self._zxid, now_ms, (CloseSessionStep(paths),)), [None])

    def create(self, session_id: int, operation: Create, now_ms: int) -> tuple[Created, CommittedTransaction]:
        """Create a node; returns its stat, too. Raises as `submit` does."""
        committed = self.submit(session_id, [operation], now_ms)
        path = committed.results[0]
        assert isinstance(path, str)
        return Created(path, self._nodes[path].stat()), committed

    def submit(
        self,
        session_id: int,
        operations: Sequence[Operation | SetAcl],
        now_ms: int,
        *,
        multi: bool = False,
        identities: Identities | None = None,
    ) -> CommittedTransaction:
        """Apply all operations or none, with the permissions of these identities; None has all.

        Raises the RegistryError of the first that fails, with its `index` if `multi`; the tree is then unchanged, but
        for the zxid, which the failed write has taken.
        """
        self._zxid += 1
        self._check_session(session_id)
        before: dict[str, Node | None] | None = {} if len(operations) > 1 else None
        steps: list[Step] = []
        results: list[OperationResult] = []
        events: list[Event] = []
        for index, operation in enumerate(operations):
            try:
                step = self._decide(operation, identities)
            except RegistryError as error:
                self._roll_back(before or {})
                error.index = index if multi else None
                raise
            if before is not None:
                self._remember(step, before)
            events += self._apply(step, session_id, self._zxid, now_ms)
            steps.append(step)
            results.append(self._result(step))
        return CommittedTransaction(
            results, JournalTransaction(session_id, self._zxid, now_ms, tuple(steps), multi), events
        )

    def replay(self, transaction: JournalTransaction) -> None:
        """Apply a transaction of the journal. Raises NoNodeError if it does not fit the tree, which is then invalid."""
        self._zxid = transaction.zxid
        for step in transaction.steps:
            self._apply(step, transaction.session_id, transaction.zxid, transaction.time_ms)

    def _commit(self, transaction: JournalTransaction, results: list[OperationResult]) -> CommittedTransaction:
        events: list[Event] = []
        for step in transaction.steps:
            events += self._apply(step, transaction.session_id, transaction.zxid, transaction.time_ms)
        return CommittedTransaction(results, transaction, events)

    # Deciding: every rule that can reject an operation

    def _decide(self, operation: Operation | SetAcl, identities: Identities | None) -> Step:
        match operation:
            case Create():
                return self._decide_create(operation, identities)
            case Set(path, data, version):
                _check_data(path, data)
                node = self._node(path)
                check_permission(path, node.acl, Permission.WRITE, identities)
                _check_version(path, node.version, version)
                return SetStep(path, data, _next_version(node.version))
            case SetAcl(path, asked, version):
                check_path(path)
                acl = expand_acl(path, asked, identities)
                node = self._node(path)
                check_permission(path, node.acl, Permission.ADMIN, identities)
                _check_version(path, node.aversion, version)
                return SetAclStep(path, acl, _next_version(node.aversion))
            case Delete(path, version):
                if path == ROOT or path in SYSTEM_PATHS:
                    raise BadArgumentsError(path, "this node cannot be deleted")
                check_path(path)
                parent = self._nodes.get(parent_of(path))
                if parent is not None:
                    check_permission(path, parent.acl, Permission.DELETE, identities)
                node = self._node(path)
                _check_version(path, node.version, version)
                if node.children:
                    raise NotEmptyError(path, f"it has {len(node.children)} children")
                return DeleteStep(path)
            case Check(path, version):
                node = self._node(path)
                check_permission(path, node.acl, Permission.READ, identities)
                _check_version(path, node.version, version)
                return CheckStep(path, node.version)

    def _decide_create(self, operation: Create, identities: Identities | None) -> CreateStep:
        path = operation.path
        # A sequential path may end in a slash: the number is the whole name then.
        check_path(path + "0" if operation.sequential else path)
        _check_data(path, operation.data)
        acl = OPEN_ACL if operation.acl is None else expand_acl(path, operation.acl, identities)
        parent_path = parent_of(path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(path, f"its parent {parent_path} does not exist")
        check_permission(path, parent.acl, Permission.CREATE, identities)
        if operation.sequential:
            path = f"{path}{parent.creations:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(path, f"its parent {parent_path} is ephemeral")
        return CreateStep(path, operation.data, operation.ephemeral, parent.creations + 1, acl)

    def _check_session(self, session_id: int) -> None:
        if session_id not in self._sessions:
            raise SessionExpiredError(detail=f"session {session_id:#x} has ended")

    # Applying: a step that was decided here cannot fail

    def _apply(self, step: Step, session_id: int, zxid: int, now_ms: int) -> list[Event]:
        match step:
            case CreateStep(path, data, ephemeral, parent_creations, acl):
                owner = session_id if ephemeral else 0
                node = Node(data, zxid, zxid, zxid, now_ms, now_ms, ephemeral_owner=owner, acl=acl)
                parent = self._attach(path, node)
                parent.creations = parent_creations
                parent.pzxid = zxid
                return [Event(EventKind.CREATED, path), Event(EventKind.CHILDREN_CHANGED, parent_of(path))]
            case SetStep(path, data, version):
                node = self._node(path)
                node.data, node.version, node.mzxid, node.mtime_ms = data, version, zxid, now_ms
                return [Event(EventKind.DATA_CHANGED, path)]
            case SetAclStep(path, acl, version):
                node = self._node(path)
                node.acl, node.aversion = acl, version
                return []
            case DeleteStep(path):
                self._detach(path).pzxid = zxid
                return [Event(EventKind.DELETED, path), Event(EventKind.CHILDREN_CHANGED, parent_of(path))]
            case CloseSessionStep(paths):
                events: list[Event] = []
                for path in paths:
                    events += self._apply(DeleteStep(path), session_id, zxid, now_ms)
                self._sessions.pop(session_id, None)
                return events
            case OpenSessionStep(timeout_ms):
                self._sessions[session_id] = timeout_ms
                return []
            case CheckStep():
                return []

    def _result(self, step: Step) -> OperationResult:
        match step:
            case CreateStep(path):
                return path
            case SetStep(path) | SetAclStep(path):
                return self._nodes[path].stat()
            case _:
                return None

    def _node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            check_path(path)
            raise NoNodeError(path)
        return node

    def _attach(self, path: str, node: Node) -> Node:
        parent = self._node(parent_of(path))
        self._nodes[path] = node
        parent.children[path.rpartition("/")[2]] = None
        if node.ephemeral_owner:
            self._ephemerals.setdefault(node.ephemeral_owner, {})[path] = None
        return parent

    def _detach(self, path: str) -> Node:
        node = self._node(path)
        parent = self._node(parent_of(path))
        del self._nodes[path]
        parent.children.pop(path.rpartition("/")[2], None)
        self._disown(path, node)
        return parent

    def _disown(self, path: str, node: Node) -> None:
        owned = self._ephemerals.get(node.ephemeral_owner)
        if owned is not None:
            owned.pop(path, None)
            if not owned:
                del self._ephemerals[node.ephemeral_owner]

    # All or nothing: the nodes as they were before a transaction first changed them

    def _remember(self, step: Step, before: dict[str, Node | None]) -> None:
        match step:
            case CreateStep(path) | DeleteStep(path):
                touched = (path, parent_of(path))
            case SetStep(path) | SetAclStep(path):
                touched = (path, path)
            case _:
                return
        for path in touched:
            if path not in before:
                node = self._nodes.get(path)
                before[path] = None if node is None else node.copy()

    def _roll_back(self, before: dict[str, Node | None]) -> None:
        for path in sorted(before, key=len):  # parents first, as `nodes` returns them
            node, old = self._nodes.get(path), before[path]
            if node is not None:
                self._disown(path, node)
            if old is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = old
                if old.ephemeral_owner:
                    self._ephemerals.setdefault(old.ephemeral_owner, {})[path] = None


WatcherT = TypeVar("WatcherT", bound=Hashable)


class Watches(Generic[WatcherT]):
    """The watchers of each node, by session; each watch fires once and is removed (ZooKeeper's WatchManager).

    Data watches come from get and exists, child watches from children.
    """

    __slots__ = ("_child", "_data")

    def __init__(self) -> None:
        self._data: dict[str, dict[tuple[int, WatcherT], None]] = {}
        self._child: dict[str, dict[tuple[int, WatcherT], None]] = {}

    def __len__(self) -> int:
        """The number of pending watches."""
        return sum(len(waiting) for table in (self._data, self._child) for waiting in table.values())

    def watch_data(self, path: str, session_id: int, watcher: WatcherT) -> None:
        """Watch for creation, new data or deletion of the node."""
        self._data.setdefault(path, {})[session_id, watcher] = None

    def watch_children(self, path: str, session_id: int, watcher: WatcherT) -> None:
        """Watch for a created or deleted child of the node, or for the node's deletion."""
        self._child.setdefault(path, {})[session_id, watcher] = None

    def fire(self, events: Iterable[Event]) -> list[tuple[int, WatcherT, Event]]:
        """Take the watches that these events fire, in the order in which their owners are notified."""
        fired: list[tuple[int, WatcherT, Event]] = []
        for event in events:
            released: dict[tuple[int, WatcherT], None] = {}
            if event.kind is not EventKind.CHILDREN_CHANGED:
                released |= self._data.pop(event.path, {})
            if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
                released |= self._child.pop(event.path, {})
            fired += [(session_id, watcher, event) for session_id, watcher in released]
        return fired

    def forget(self, session_id: int) -> None:
        """Drop the watches of a session that has ended."""
        for table in (self._data, self._child):
            for path, waiting in list(table.items()):
                left = {key: None for key in waiting if key[0] != session_id}
                if left:
                    table[path] = left
                else:
                    del table[path]


def parent_of(path: str) -> str:
    """The parent's path; for a node under the root, the root."""
    return path.rpartition("/")[0] or ROOT


@lru_cache(4096)  # for valid paths: an invalid one raises, and is not cached
def check_path(path: str) -> None:
    """Reject what ZooKeeper's PathUtils rejects: raises BadArgumentsError."""
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise BadArgumentsError(path, "a path must start with /")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise BadArgumentsError(path, f"{name!r} is not a node name")
    if _FORBIDDEN.search(path) is not None:
        raise BadArgumentsError(path, "a path must not contain control or private characters")


def _check_data(path: str, data: bytes | None) -> None:
    if data is not None and len(data) > MAX_DATA_BYTES:
        raise BadArgumentsError(path, f"data of {len(data)} bytes; at most {MAX_DATA_BYTES} are allowed")


def _check_version(path: str, version: int, expected: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise BadVersionError(path, f"expected version {expected}, found {version}")


def _next_version(version: int) -> int:
    # A signed 32-bit count that wraps around but never shows -1, which means any version (ZOOKEEPER-4743).
    following = (version + 1 + 2**31) % 2**32 - 2**31
    return 0 if following == ANY_VERSION else following
