"""Asynchronous operators: maps whose function is a coroutine function.

Kafka Streams has no such operator: KIP-408 (Add Asynchronous Processing To Kafka Streams) was abandoned, and
Confluent's parallel consumer does it outside of Kafka Streams. `node_calls.py` has the order of results,
`task_calls.py` the commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from odradek.streams.calls import AsyncCall
from odradek.streams.functions import with_key
from odradek.streams.node_calls import NodeCalls
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.stateless import OfFunction
from odradek.streams.records import Process


class MapAsync(OfFunction):
    """Changes key and value."""

    prefix: ClassVar[str] = "KSTREAM-MAPASYNC-"

    def __init__(self, function: Callable[..., Awaitable[Any]], concurrency: int, timeout_ms: int) -> None:
        super().__init__(function)
        self.concurrency = concurrency
        self.call_timeout_ms = timeout_ms

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        function = with_key(self.function)
        calls = NodeCalls(node, function, self.concurrency, self.call_timeout_ms / 1000, self.output)
        node.add_calls(calls)
        return calls.add

    @staticmethod
    def output(call: AsyncCall) -> tuple[Any, Any]:
        """The new key and value. Raises TypeError or ValueError for a result that is no pair."""
        key, value = call.result
        return key, value


class MapValuesAsync(MapAsync):
    """Changes the value."""

    prefix: ClassVar[str] = "KSTREAM-MAPVALUESASYNC-"

    @staticmethod
    def output(call: AsyncCall) -> tuple[Any, Any]:
        """The key, and the new value."""
        return call.key, call.result
