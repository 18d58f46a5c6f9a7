"""Stateless operators: filter, map and their siblings (Kafka: KStreamFilter, KStreamMap, …)."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from odradek.streams.dsl.options import Printed
from odradek.streams.errors import StreamsError
from odradek.streams.functions import arity, with_key
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.fusion import FusedFunctionBuilder
from odradek.streams.records import Headers, Process


class OfFunction(ABC):
    """An operator with one function of the user's, of (value) or of (key, value)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.keyed = arity(function) == 2

    @abstractmethod
    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""


class Filter(OfFunction):
    """Forwards records that the predicate accepts, or, negated, rejects."""

    def __init__(self, predicate: Callable[..., bool], negate: bool = False) -> None:
        super().__init__(predicate)
        self.negate = negate

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        predicate, negate, forward = with_key(self.function), self.negate, node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if bool(predicate(key, value)) is not negate:
                forward(key, value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(f"if {'' if self.negate else 'not '}{chain.call(self.function, self.keyed)}: {chain.leave}")


class MapValues(OfFunction):
    """Changes the value."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        mapper, forward = self.function, node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(value), timestamp, headers)

        def process_keyed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(key, value), timestamp, headers)

        return process_keyed if self.keyed else process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(f"{chain.value} = {chain.call(self.function, self.keyed)}")


class SelectKey(OfFunction):
    """Changes the key."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        selector, forward = with_key(self.function), node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(selector(key, value), value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(f"{chain.key} = {chain.call(self.function, self.keyed)}")


class Map(OfFunction):
    """Changes key and value."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        mapper, forward = with_key(self.function), node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            key, value = mapper(key, value)
            forward(key, value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(f"{chain.key}, {chain.value} = {chain.call(self.function, self.keyed)}")


class FlatMap(OfFunction):
    """Forwards any number of records for one."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]] = with_key(self.function)
        forward = node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_key, new_value in mapper(key, value):
                forward(new_key, new_value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.loop(chain.call(self.function, self.keyed), keys=True)


class FlatMapValues(OfFunction):
    """Forwards any number of values for one."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        mapper: Callable[[Any, Any], Iterable[Any]] = with_key(self.function)
        forward = node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_value in mapper(key, value):
                forward(key, new_value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.loop(chain.call(self.function, self.keyed), keys=False)


class Peek(OfFunction):
    """Calls a function and forwards the record."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        action, forward = with_key(self.function), node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)
            forward(key, value, timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(chain.call(self.function, self.keyed))


class Foreach(OfFunction):
    """Calls a function at the end of a branch."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        action = with_key(self.function)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(chain.call(self.function, self.keyed))
        chain.ended = True


class PassThrough:
    """Forwards records unchanged."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        return node.forward

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain: nothing."""


class ToStream:
    """Forwards the new value of a table's change."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward = node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return process

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        chain.emit(f"{chain.value} = {chain.value}[0]")


class Branch:
    """Forwards a record to the child of the first predicate that holds, or else to the default child."""

    def __init__(self, predicates: Sequence[Callable[..., bool]], children: Sequence[str]) -> None:
        """Both may grow until the topology is built."""
        self.predicates = predicates
        self.children = children

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        children = [node.child(name) for name in self.children]
        branches = list(zip(map(with_key, self.predicates), children, strict=False))
        default = children[len(branches)] if len(children) > len(branches) else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for predicate, child in branches:
                if predicate(key, value):
                    child(key, value, timestamp, headers)
                    return
            if default is not None:
                default(key, value, timestamp, headers)

        return process


class Print:
    """Writes a line for each record (PrintForeachAction)."""

    def __init__(self, printed: Printed, upstream: str) -> None:
        """`upstream` is the default label. Raises StreamsError for a file that cannot be written."""
        self._label = printed.label if printed.label is not None else upstream
        self._mapper = printed.mapper or _as_text
        self._file = printed.file

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        out = sys.stdout if self._file is None else self._open()
        mapper, prefix = self._mapper, f"[{self._label}]: "
        if self._file is not None:
            node.on_close(out.close)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            out.write(f"{prefix}{mapper(key, value)}\n")
            out.flush()

        return process

    def _open(self) -> TextIO:
        assert self._file is not None
        try:
            return open(self._file, "a", encoding="utf-8")
        except OSError as error:
            raise StreamsError(f"Unable to write stream to file at [{self._file}] {error}") from error


def _as_text(key: Any, value: Any) -> str:
    return f"{_text(key)}, {_text(value)}"


def _text(value: Any) -> str:
    """The text of a value, as Java prints it where Python's text differs."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
