"""Joins of a table: their signatures (Kafka: KTable.join, leftJoin, outerJoin). joins.py writes their nodes.

A joiner is of (left, right) or, with a foreign key, also of (key, left, right).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from odradek.streams.dsl.options import TableJoined
from odradek.streams.dsl.table_base import K, Stored, TableBase, V

if TYPE_CHECKING:
    from odradek.streams.dsl.ktable import KTable

K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")


class TableJoins(TableBase[K, V]):
    """The joins of KTable."""

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Stored[K, V2] = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Rows of both tables with the same key. `joiner` is of (left, right) or, with a foreign key, also with a key.

        With `foreign_key`, of (value) or of (key, value), each row joins the row with that key (KIP-213).
        """
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "inner", materialized, foreign_key, table_joined, name)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[V, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, VO],
        joiner: Callable[[K, V, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]: ...

    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., V2],
        materialized: Stored[K, V2] = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        table_joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The same, and this table's rows without a counterpart, with None in its place."""
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "left", materialized, foreign_key, table_joined, name)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        materialized: Stored[K, V2] = None,
        *,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The same, and the rows of either table without a counterpart."""
        from odradek.streams.dsl.joins import join_table

        return join_table(self, other, joiner, "outer", materialized, None, None, name)
