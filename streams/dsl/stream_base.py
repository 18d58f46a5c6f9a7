"""Base of the classes of a stream: its fields, and how an operator adds its node (Kafka: AbstractStream)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.streams.dsl.graph import Graph
from odradek.streams.functions import OF_RECORD
from odradek.streams.java_names import JavaNames
from odradek.streams.operators import stateless
from odradek.streams.operators.repartition import RepartitionNode
from odradek.streams.serdes import Serde
from odradek.streams.topology import Operator, Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")


class StreamBase(JavaNames, Generic[K, V]):
    """A node of the graph whose records are a stream."""

    def __init__(
        self,
        graph: Graph,
        node: str,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        repartition_required: bool = False,
    ) -> None:
        """`node` is the parent of the next operators; `sources` are the source nodes upstream, by name.

        `repartition_required` is set after keys have changed, since equal keys may be in different partitions then.
        """
        self.graph = graph
        self.node = node
        self.key = key
        self.value = value
        self.sources = sources
        self.repartition_required = repartition_required
        self.join_repartition: RepartitionNode | None = None
        """The repartition that joins of this stream share, after the first one."""

    # ---- internals

    def _stream(
        self, node: str, key: Serde[Any] | None, value: Serde[Any] | None, repartition_required: bool | None = None
    ) -> KStream[Any, Any]:
        """The stream of a node after this one; None leaves `repartition_required` as it is."""
        from odradek.streams.dsl.kstream import KStream

        required = self.repartition_required if repartition_required is None else repartition_required
        return KStream(self.graph, node, key, value, self.sources, required)

    def _same(self, node: str) -> KStream[K, V]:
        return self._stream(node, self.key, self.value)

    def _of_function(
        self, name: str | None, prefix: str, operator: stateless.OfFunction, role: str, *, awaited: bool = False
    ) -> str:
        """Add an operator with one function of the user's. Returns its name."""
        node = self._processor(name, prefix, operator)
        self.graph.check(node, role, operator.function, OF_RECORD, awaited=awaited)
        return node

    def _processor(self, name: str | None, prefix: str, operator: Operator) -> str:
        """Add an operator after this stream. Returns its name."""
        node = self.graph.name(name, prefix)
        self._write(node, operator, self.node)
        return node

    def _write(self, node: str, operator: Operator, *parents: str) -> None:
        def write(topology: Topology) -> None:
            topology.add_processor(node, operator, *parents)

        self.graph.add(write, parents=parents, provides=node)
