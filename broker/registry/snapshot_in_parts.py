"""A snapshot of the tree that is taken in parts, while transactions change the tree (ZooKeeper: FileSnap).

ZooKeeper's snapshots are fuzzy: the log repeats what changed meanwhile. The journal of an embedded metadata store
begins a new log with each snapshot, so this one is exact: nodes that change after their copy are copied again, and the
last part copies those that are left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from odradek.broker.registry.transactions import TreeSnapshot, node_row
from odradek.broker.registry.tree import (
    CloseSessionStep,
    CreateStep,
    DeleteStep,
    JournalTransaction,
    SetAclStep,
    SetStep,
    Tree,
    parent_of,
)
from odradek.broker.registry.znodes import InParts

NODES_AT_ONCE: Final = 2000
"""Nodes that are copied at once: one or two milliseconds."""
FEW_NODES: Final = 500
MOST_ROUNDS: Final = 10
"""How often nodes that change all the time are copied again before the last part."""


class SnapshotInParts:
    """One snapshot; the owner of the tree passes each transaction to `changed` until the last part."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._changed: dict[str, None] = {}
        self._is_in_order = True
        self._rows: dict[str, tuple[Any, ...]] = {}

    def changed(self, transaction: JournalTransaction) -> None:
        """The tree has changed."""
        self._is_in_order = False  # a node may get its row before its parent, where both were created anew
        for step in transaction.steps:
            match step:
                case CreateStep(path) | DeleteStep(path):
                    self._changed[path] = self._changed[parent_of(path)] = None
                case SetStep(path) | SetAclStep(path):
                    self._changed[path] = None
                case CloseSessionStep(paths):
                    for path in paths:
                        self._changed[path] = self._changed[parent_of(path)] = None

    def take(self) -> InParts[tuple[TreeSnapshot, int]]:
        """The tree as it is at the last part, and its zxid."""
        yield from self._copy([path for path, _ in self._tree.nodes()])
        for _ in range(MOST_ROUNDS):
            if len(self._changed) <= FEW_NODES:
                break
            yield from self._copy_changed()
        for _ in self._copy_changed():
            pass
        rows = list(self._rows.values())
        return TreeSnapshot(self._tree.sessions, rows, is_in_order=self._is_in_order), self._tree.zxid

    def _copy_changed(self) -> InParts[None]:
        changed, self._changed = self._changed, {}
        yield from self._copy(changed)

    def _copy(self, paths: Iterable[str]) -> InParts[None]:
        for number, path in enumerate(paths, 1):
            node = self._tree.find(path)
            if node is None:
                self._rows.pop(path, None)
            else:
                self._rows[path] = node_row(path, node)
            if not number % NODES_AT_ONCE:
                yield
