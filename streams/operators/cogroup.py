"""Merges the aggregations of a co-group into one table (Kafka: KTablePassThrough, KIP-150)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.streams.nodes import NodeContext
from odradek.streams.records import Process


class CogroupMerge:
    """Forwards the changes of all aggregations; they share one store, which is the table's."""

    def __init__(self, parents: Sequence[Any]) -> None:
        """`parents` are the suppliers of the aggregations."""
        self._parents = parents

    def enable_sending_old_values(self, force: bool) -> bool:
        """Changes carry the old value, too."""
        for parent in self._parents:
            parent.enable_sending_old_values(force)
        return True

    def view(self) -> Any:
        """For joins and lookups downstream: the store that all of them write."""
        return self._parents[0].view()

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        return node.forward
