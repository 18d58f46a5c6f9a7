"""BranchedKStream: a stream that is being split (Kafka: org.apache.kafka.streams.kstream.BranchedKStream, KIP-418)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from odradek.streams.dsl.options import Branched
from odradek.streams.functions import OF_RECORD
from odradek.streams.java_names import JavaNames
from odradek.streams.operators import stateless

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")


class BranchedKStream(JavaNames, Generic[K, V]):
    """A stream that is being split. Predicates are evaluated in the order in which branches were added (KIP-418)."""

    def __init__(self, source: KStream[K, V], name: str | None) -> None:
        self._source = source
        self._name = source.graph.name(name, "KSTREAM-BRANCH-")
        self._predicates: list[Callable[..., bool]] = []
        self._children: list[str] = []
        self._branches: dict[str, KStream[Any, Any]] = {}
        source._write(self._name, stateless.Branch(self._predicates, self._children), source.node)

    @overload
    def branch(
        self, predicate: Callable[[V], bool], branched: Branched[K, V] | None = None
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self, predicate: Callable[[K, V], bool], branched: Branched[K, V] | None = None
    ) -> BranchedKStream[K, V]: ...

    def branch(self, predicate: Callable[..., bool], branched: Branched[K, V] | None = None) -> BranchedKStream[K, V]:
        """A branch for the records for which `predicate`, of (value) or of (key, value), is the first to hold."""
        self._source.graph.check(self._name, f"predicate {len(self._predicates) + 1}", predicate, OF_RECORD)
        self._predicates.append(predicate)
        self._add(branched or Branched(), len(self._predicates))
        return self

    def default_branch(self, branched: Branched[K, V] | None = None) -> Mapping[str, KStream[K, V]]:
        """A branch for records that match no predicate. Returns the branches by name: the split's, then theirs or a
        number.
        """
        self._add(branched or Branched(), 0)
        return self._branches

    def no_default_branch(self) -> Mapping[str, KStream[K, V]]:
        """Drop records that match no predicate. Returns the branches by name."""
        return self._branches

    def _add(self, branched: Branched[K, V], index: int) -> None:
        source = self._source
        name = self._name + (str(index) if branched.name is None else branched.name)
        self._children.append(name)
        source.graph.new_name(name)
        source._write(name, stateless.PassThrough(), self._name)
        branch = source._stream(name, source.key, source.value)
        if branched.function is not None:
            made = branched.function(branch)
            if made is not None:
                self._branches[name] = made
        elif branched.consumer is not None:
            branched.consumer(branch)
        else:
            self._branches[name] = branch
