"""Joins of a stream: their signatures (Kafka: KStream.join, leftJoin, outerJoin). joins.py writes their nodes.

A joiner is of (left, right) or of (key, left, right).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from odradek.streams.dsl.options import Joined
from odradek.streams.dsl.options import StreamJoined as StreamJoinedOptions
from odradek.streams.dsl.stream_base import K, StreamBase, V

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream
    from odradek.streams.dsl.ktable import GlobalKTable, KTable
    from odradek.streams.windows import JoinWindows

V2 = TypeVar("V2")
VO = TypeVar("VO")
GK = TypeVar("GK")


class StreamJoins(StreamBase[K, V]):
    """The joins of KStream."""

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        joined: StreamJoinedOptions[K, V, VO] | Joined[K, V, VO] | None = None,
        *,
        key_selector: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Join with the records of a stream within `windows`, or with the current row of a table, by key.

        For a GlobalKTable `key_selector`, of (key, value), returns the table's key.
        """
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "inner", windows, joined, key_selector, name)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        joined: StreamJoinedOptions[K, V, VO] | Joined[K, V, VO] | None = None,
        *,
        key_selector: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """The same, and this stream's records without a counterpart, with None in its place."""
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "left", windows, joined, key_selector, name)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]: ...

    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]:
        """The same of two streams, and the records of either without a counterpart."""
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "outer", windows, joined, None, None)
