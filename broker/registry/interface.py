"""Metadata store interface: one session with a ZooKeeper-like tree of small nodes.

Kafka in ZooKeeper mode keeps its cluster state in znodes and relies on ZooKeeper's guarantees (the ZooKeeper
Programmer's Guide): writes are totally ordered, a write can be conditional on a node's version, several can be one
transaction, an ephemeral node lives as long as its session, and a watch fires once. `Registry` provides exactly these.
Embedded tree, real ZooKeeper and simulated tree implement it and pass one contract suite.

One `Registry` object is one session. When the session expires, the object is of no more use: every call raises
`SessionExpiredError`, and the owner connects anew, as Kafka's ZooKeeperClient does.

Guarantees of every implementation
- Calls of one session take effect in the order in which they were made, awaited or not.
- A call returns only when everything that its result shows is durable.
- A watch set by a call fires at most once, on the event loop, before any call returns a result that shows the change.
  Where the session ends first, the watch never fires; the session listener is notified. Setting the same callable twice
  for one node fires it once.
- `ConnectionLossError` means that a write may or may not have taken effect. All other errors mean that it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
"""The version argument that every version matches."""


class RegistryError(Exception):
    """A call was rejected. `code` is ZooKeeper's error number, `path` the node it is about (empty for a session).

    `index` is the position of the operation that failed, when it was part of a `multi`.
    """

    code: ClassVar[int] = 0

    def __init__(self, path: str = "", detail: str = "", index: int | None = None) -> None:
        self.path = path
        self.detail = detail
        self.index = index
        super().__init__(": ".join(part for part in (path, detail) if part))


class ConnectionLossError(RegistryError):
    """The metadata store is unreachable or failed midway; a write may or may not have taken effect."""

    code = -4


class BadArgumentsError(RegistryError):
    """The path is malformed, the node is one that must not be changed, or the data is too large."""

    code = -8


class NoAuthError(RegistryError):
    """The access list of the node, or of its parent, does not permit the operation."""

    code = -102


class NoNodeError(RegistryError):
    """The node, or the parent of a node to create, does not exist."""

    code = -101


class BadVersionError(RegistryError):
    """The node's version is not the expected one."""

    code = -103


class NoChildrenForEphemeralsError(RegistryError):
    """An ephemeral node cannot have children."""

    code = -108


class NodeExistsError(RegistryError):
    """The node to create exists already."""

    code = -110


class NotEmptyError(RegistryError):
    """The node to delete has children."""

    code = -111


class SessionExpiredError(RegistryError):
    """The session has ended: it expired or was closed. Its ephemeral nodes are removed."""

    code = -112


class InvalidAclError(RegistryError):
    """The access list is empty, of an unknown scheme, or for the creator where the client has not authenticated."""

    code = -114


class Acl(NamedTuple):
    """One entry of an access list: the permissions of an identity (ZooKeeper: ACL, Id)."""

    permissions: int
    """Bits: 1 read, 2 write, 4 create, 8 delete, 16 admin."""
    scheme: str
    name: str


OPEN_ACL: Final = (Acl(31, "world", "anyone"),)
"""Every client may do everything (ZooDefs.Ids.OPEN_ACL_UNSAFE)."""


class Stat(NamedTuple):
    """The attributes of a node beside its data; ZooKeeper's Stat, in the order of its wire format."""

    czxid: int
    """The transaction that created the node; Kafka takes it as the broker epoch."""
    mzxid: int
    """The transaction that last set the data."""
    ctime_ms: int
    mtime_ms: int
    version: int
    """How often the data was set; the first is 0."""
    cversion: int
    """How often children came or went."""
    aversion: int
    """How often the access list was set."""
    ephemeral_owner: int
    """The session that the node belongs to, or 0."""
    data_length: int
    num_children: int
    pzxid: int
    """The transaction that last added or removed a child."""


class Created(NamedTuple):
    """The node that a create made: its path, with the number of a sequential node, and its first stat."""

    path: str
    stat: Stat


class EventKind(IntEnum):
    """What happened to a watched node; the numbers are ZooKeeper's."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Event(NamedTuple):
    """The notification of a watch that fired."""

    kind: EventKind
    path: str


Watcher: TypeAlias = Callable[[Event], None]


class SessionState(Enum):
    """The state of a session. Only EXPIRED and CLOSED are final."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The metadata store is unreachable; the session may still live, so ephemeral nodes may still exist."""
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. A sequential one gets the parent's ten-digit counter at the end of its name.

    Without an access list, the node gets the one that the session gives to its path, by default the open one.
    """

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the data of a node at a version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children at a version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Within a transaction: the node must exist at a version. Kafka fences old controllers with it."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check
OperationResult: TypeAlias = str | Stat | None
"""The path for a create, the stat for a set, None for a delete or check."""


class Registry(Protocol):
    """One session. Every call may raise `ConnectionLossError`, `SessionExpiredError` and `BadArgumentsError`.

    Data is bytes or None: ZooKeeper distinguishes a node without data from one with empty data, and Kafka's inner nodes
    have none.
    """

    @property
    def session_id(self) -> int:
        """The number that `Stat.ephemeral_owner` shows for this session's nodes."""

    @property
    def state(self) -> SessionState:
        """The state of the session, as far as the client has detected it."""

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` on the event loop at each change of state from now on."""

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """The data. The watch fires on new data or deletion. Raises NoNodeError, and then sets no watch."""

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """The stat, or None. The watch is set in both cases and fires on creation, new data or deletion."""

    async def children(self, path: str, watch: Watcher | None = None) -> tuple[list[str], Stat]:
        """The names of the children, sorted, without the path. The watch fires when a child is created or deleted, or
        when the node is deleted. Raises NoNodeError, and then sets no watch.
        """

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """Create a node. Raises NodeExistsError, NoNodeError (no parent), NoChildrenForEphemeralsError."""

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data. Raises NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node. Raises NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all of the operations, or none of them; each sees the changes of those before it.

        Raises the error of the first that fails, with its position in `index`.
        """

    async def close(self) -> None:
        """End the session: its ephemeral nodes are removed, its watches never fire. Closing twice is allowed."""

    def abandon(self) -> None:
        """End the session without the event loop, from another thread; where the process has the only copy of the tree,
        do nothing. The listener receives EXPIRED when the loop runs again.
        """


async def ensure_path(registry: Registry, path: str) -> None:
    """Create `path` and those above it, without data, where they are missing
    (KafkaZkClient.makeSurePersistentPathExists).
    """
    try:
        await registry.create(path, None)
    except NodeExistsError:
        return
    except NoNodeError:
        await ensure_path(registry, path.rpartition("/")[0])
        await ensure_path(registry, path)
