"""ACL store: ACLs in the metadata store, and their changes by any broker (Kafka: AclAuthorizer, ZkAclStore,
ZkAclChangeStore).

    /kafka-acl/TYPE/NAME                      the entries of a literal pattern
    /kafka-acl-extended/prefixed/TYPE/NAME    the entries of a prefixed pattern
    /kafka-acl-changes/acl_changes_N          a literal pattern whose entries changed
    /kafka-acl-extended-changes/acl_changes_N a prefixed pattern

A change sets the entries of a pattern on condition of the version that it has read, and reads them again if another
broker was faster. The same transaction creates the notification, so a change without a notification cannot exist. A
broker that reads a notification reads the pattern, so the last of several changes counts.

Entries that cannot be read deny everything on their resources until they are replaced: among them may be a DENY.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.metadata.change_notifications import ChangeNotifications
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadArgumentsError,
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    Set,
    Stat,
    ensure_path,
)
from odradek.broker.registry.znodes import ZnodeError
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.state.acl_znodes import (
    acl_path,
    change_prefix,
    decode_entries,
    decode_extended_change,
    decode_literal_change,
    encode_change,
    encode_entries,
    parse_type_name,
    type_name,
)
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclError,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    delete_matching,
    validate_binding,
)
from odradek.broker.security.state.authorizer import AclAuthorizer
from odradek.broker.security.state.hosts import WILDCARD_HOST
from odradek.broker.security.state.principals import WILDCARD
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

STORED_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)
DENY_ALL: Final = AccessControlEntry(str(WILDCARD), WILDCARD_HOST, AclOperation.ALL, AclPermissionType.DENY)
"""In place of entries that cannot be read."""

Entries = tuple[AccessControlEntry, ...]
Change = Callable[[Entries], Entries]
Deletions = list[list[tuple[AclBinding, KafkaError | None]]]
"""For each filter the bindings that it deleted, or could not delete."""


class AclTree(NamedTuple):
    """Where the patterns of one pattern type and the notifications of their changes are."""

    pattern_type: PatternType
    root: str
    """The parent of the resource types."""
    change_prefix: str
    decode_change: Callable[[bytes | None], ResourcePattern]


LITERAL: Final = AclTree(PatternType.LITERAL, znodes.ACLS, znodes.ACL_CHANGE_PREFIX, decode_literal_change)
PREFIXED: Final = AclTree(
    PatternType.PREFIXED, f"{znodes.EXTENDED_ACLS}/prefixed", znodes.EXTENDED_ACL_CHANGE_PREFIX, decode_extended_change
)


class AclChangeListener:
    """Reads the patterns of one tree, all of them in a new session, then those that notifications name."""

    def __init__(self, tree: AclTree, authorizer: AclAuthorizer, request_tasks: RequestTasks, clock: Clock) -> None:
        """There is no watch before the first session begins."""
        self._tree = tree
        self._authorizer = authorizer
        self.listener = ChangeNotifications(
            tree.change_prefix, self._read_all, self._apply, request_tasks, clock
        ).listener

    async def _read_all(self, registry: Registry) -> None:
        for resource_type in STORED_TYPES:
            await ensure_path(registry, f"{self._tree.root}/{type_name(resource_type)}")
        found: set[ResourcePattern] = set()
        for word in (await registry.children(self._tree.root))[0]:
            resource_type = parse_type_name(word)
            if resource_type == ResourceType.UNKNOWN:
                log.warning("ignoring ACLs of an unknown resource type path=%s/%s", self._tree.root, word)
                continue
            for name in (await registry.children(f"{self._tree.root}/{word}"))[0]:
                pattern = ResourcePattern(resource_type, name, self._tree.pattern_type)
                found.add(pattern)
                await self._read_pattern(registry, pattern)
        for pattern in [each for each in self._authorizer.cache.acls if each not in found]:
            if pattern.pattern_type == self._tree.pattern_type:
                self._authorizer.update(pattern, ())

    async def _apply(self, registry: Registry, notification: bytes | None) -> None:
        try:
            pattern = self._tree.decode_change(notification)
        except ZnodeError as error:
            log.error("skipping invalid ACL change notification error=%s", error)
            return
        if pattern.pattern_type == self._tree.pattern_type:
            await self._read_pattern(registry, pattern)

    async def _read_pattern(self, registry: Registry, pattern: ResourcePattern) -> None:
        try:
            data, _ = await registry.get(acl_path(pattern))
            entries = decode_entries(data)
        except NoNodeError:
            entries = ()
        except ZnodeError as error:
            log.error("denying all operations, because ACLs cannot be read path=%s error=%s", acl_path(pattern), error)
            entries = (DENY_ALL,)
        self._authorizer.update(pattern, entries)


class AclStore:
    """The ACLs of the cluster: read into an authorizer, and changed."""

    def __init__(
        self, authorizer: AclAuthorizer, registry: Callable[[], Registry], request_tasks: RequestTasks, clock: Clock
    ) -> None:
        """`registry()` returns the current session."""
        self._authorizer = authorizer
        self._registry = registry
        self._trees = {
            tree.pattern_type: AclChangeListener(tree, authorizer, request_tasks, clock).listener
            for tree in (LITERAL, PREFIXED)
        }
        self._turn = asyncio.Lock()  # one change after the other, so that changes of one broker need no retries

    def session_lost(self) -> None:
        """Keep the ACLs until the next session."""
        for listener in self._trees.values():
            listener.session_lost()

    async def session_begun(self, registry: Registry) -> None:
        """Read all ACLs, once in a session. Raises RegistryError."""
        for listener in self._trees.values():
            await listener.session_begun(registry)

    def select(self, selection: AclBindingFilter) -> list[AclBinding]:
        """The bindings that a filter selects."""
        return list(self._authorizer.cache.select(selection))

    async def create(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Add bindings; the error of each that was not added. Raises RegistryError."""
        errors: list[KafkaError | None] = [None] * len(bindings)
        wanted: dict[ResourcePattern, list[int]] = {}
        for index, binding in enumerate(bindings):
            try:
                validate_binding(binding)
            except AclError as error:
                errors[index] = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
            else:
                wanted.setdefault(binding.pattern, []).append(index)
        for pattern, indexes in wanted.items():
            added = tuple(bindings[index].entry for index in indexes)
            failure = await self._try_update(pattern, partial(_with_entries, added))
            for index in indexes:
                errors[index] = failure
        return errors

    async def delete(self, filters: Sequence[AclBindingFilter]) -> Deletions:
        """Delete the bindings that a filter selects; each belongs to the first filter that does. Raises RegistryError.

        All other entries of a pattern remain (CVE-2024-27309).
        """
        deletions: Deletions = [[] for _ in filters]
        for pattern in self._patterns(filters):
            deleted: list[list[AclBinding]] = []

            def without_deleted(known: Entries, pattern: ResourcePattern = pattern) -> Entries:
                nonlocal deleted
                deletion = delete_matching({pattern: known}, filters)
                deleted = deletion.deleted
                return deletion.remaining.get(pattern, known)

            error = await self._try_update(pattern, without_deleted)
            for all_deleted, of_pattern in zip(deletions, deleted, strict=False):
                all_deleted.extend((each, error) for each in of_pattern)
        return deletions

    def _patterns(self, filters: Iterable[AclBindingFilter]) -> list[ResourcePattern]:
        """The patterns that may have selected bindings: those with entries, and those that a filter names exactly.

        An exact one may have entries that another broker has just written.
        """
        exact = [
            ResourcePattern(kind, name, pattern_type)
            for (kind, name, pattern_type), _ in filters
            if kind in STORED_TYPES and name and pattern_type in self._trees and "/" not in name
        ]
        known = (each for each in self._authorizer.cache.acls if any(one.pattern.matches(each) for one in filters))
        return list(dict.fromkeys([*known, *exact]))

    async def _try_update(self, pattern: ResourcePattern, change: Change) -> KafkaError | None:
        try:
            async with self._turn:
                await self._update(pattern, change)
        except BadArgumentsError:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # "." is no name of a node; no message, like Kafka
        except ZnodeError as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the ACLs of {pattern.name} cannot be read: {error}")
        return None

    async def _update(self, pattern: ResourcePattern, change: Change) -> None:
        """Change the entries of a pattern, and apply the change on this broker. Raises RegistryError, ZnodeError."""
        registry, path = self._registry(), acl_path(pattern)
        while True:
            known, stat = await _read_entries(registry, path)
            entries = change(known)
            if set(entries) == set(known) and (entries or stat is None):
                break
            try:
                await registry.multi(
                    [
                        _put(path, entries, stat),
                        Create(change_prefix(pattern), encode_change(pattern), sequential=True),
                    ]
                )
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                if error.index != 0:
                    raise
                await ensure_path(registry, path.rpartition("/")[0])
            else:
                log.info("ACLs changed path=%s entries=%d", path, len(entries))
                break
        try:
            await self._trees[pattern.pattern_type].catch_up()
        except RegistryError as error:
            log.warning("delaying ACL change until the metadata store is connected path=%s error=%s", path, error)


def _with_entries(added: Entries, known: Entries) -> Entries:
    return tuple(dict.fromkeys(known + added))


def _put(path: str, entries: Entries, stat: Stat | None) -> Operation:
    if not entries:
        return Delete(path, stat.version if stat is not None else 0)
    data = encode_entries(entries)
    return Create(path, data) if stat is None else Set(path, data, stat.version)


async def _read_entries(registry: Registry, path: str) -> tuple[Entries, Stat | None]:
    """Raises RegistryError, ZnodeError."""
    try:
        data, stat = await registry.get(path)
    except NoNodeError:
        return (), None
    return decode_entries(data), stat
