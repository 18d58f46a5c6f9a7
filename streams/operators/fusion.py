"""Fusion: compiles a run of operators without state of their own into one function.

A record that goes through five operators needs five calls, and each call costs more than most mappers do. So the
operators that follow each other without a branch, and the joins with the current rows of a table among them, become the
source text of one function, with the user's functions as its variables, compiled once for each task:

    def chain(key, value, timestamp, headers):
        try:
            if not f0(value): return
            value = f1(value)
            key, value = f2(key, value)
        except Exception as error:
            if not rescue(error, key, value): raise
            return
        forward(key, value, timestamp, headers)

If only a sink follows, the end of a chain writes to its topic itself. The line number of an error identifies the node:
each line belongs to one node, whose name goes to the processing handler with the node's input key and value. CONTINUE
drops that record alone, also within the loop of a flat_map. A debugger can step through the text.
"""

from __future__ import annotations

import functools
import itertools
import linecache
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.streams.errors import ends_thread
from odradek.streams.records import Process

Failed = Callable[[str, Any, Any, Exception], None]
"""Decides about a record that a node failed on: node, key, value, error. Raises, or the record is dropped."""

_numbers: Final = itertools.count()
MOST_LOOPS: Final = 8


class Writing(NamedTuple):
    """The operation of a sink, for the end of a chain."""

    topic: str
    write_key: Callable[[Any], bytes]
    write_value: Callable[[Any], bytes]
    send: Callable[..., None]
    refuse: Callable[..., None]
    """Decides about a record that cannot be serialized."""
    without_time: Callable[[int], None]
    """Raises for a record whose timestamp is negative."""


class Inlined(Protocol):
    """An operator that can be part of a chain."""

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """Emit the lines of the operator for the current record."""


@functools.lru_cache(maxsize=1024)
def _compiled(text: str, label: str) -> Callable[..., Process]:
    """The compiled module of a text: tasks of one sub-topology have the same text."""
    file = f"<chain {next(_numbers)}: {label}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    make: Callable[..., Process] = space["make"]
    return make


class FusedFunctionBuilder:
    """The text of one function while it is built."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._lines: list[str] = []
        self._nodes: dict[int, str] = {}
        self._names: dict[str, Any] = {"rescue": self._rescue}
        self._node = ""
        self._open: list[tuple[str, str, str]] = []
        """For each open `try`: its indentation, and the names of key and value at its start."""
        self._depth = 1
        self.key = "key"
        self.value = "value"
        self.ended = False
        """Whether the chain ends here (foreach)."""
        self._begin()

    # ---- called by operators

    def name(self, given: Any) -> str:
        """A variable for an object."""
        name = f"f{len(self._names)}"
        self._names[name] = given
        return name

    def call(self, function: Callable[..., Any], keyed: bool) -> str:
        """The call of a user's function with the current record."""
        arguments = f"{self.key}, {self.value}" if keyed else self.value
        return f"{self.name(function)}({arguments})"

    def emit(self, line: str) -> None:
        """One line, of the current operator."""
        self._lines.append("    " * self._depth + line)
        self._nodes[len(self._lines)] = self._node

    @property
    def leave(self) -> str:
        """The statement that ends the processing of this record."""
        return "return" if len(self._open) == 1 else "continue"

    @property
    def full(self) -> bool:
        """Whether no further loop fits: Python nests twenty blocks, and each loop is two."""
        return len(self._open) >= MOST_LOOPS

    def loop(self, each: str, *, keys: bool) -> None:
        """Continue with every value, or with every pair of key and value, of an expression."""
        level = len(self._open)
        value, key = f"value{level}", f"key{level}" if keys else self.key
        self.emit(f"for {f'{key}, {value}' if keys else value} in {each}:")
        self._depth += 1
        if not keys:
            key = f"key{level}"  # each value starts with the original key
            self.emit(f"{key} = {self.key}")
        self.key, self.value = key, value
        self._begin()

    # ---- called by the program

    def add(self, node: str, operator: Inlined) -> None:
        """Emit one operator."""
        self._node = node
        operator.inline(self)

    def finish(self, after: Process | Writing, label: Sequence[str]) -> Process:
        """Compile the text: remaining records are forwarded, or written to a topic.

        `label` are the nodes, for the file's name in tracebacks.
        """
        self._node = ""
        for level in range(len(self._open), 0, -1):
            self._end(level)
            if level == len(self._open) and not self.ended:
                self._hand_on(level, after)
        parameters = ", ".join(self._names)
        lines = [f"def make({parameters}):", "  def chain(key, value, timestamp, headers):"]
        text = "\n".join([*lines, *(f"  {line}" for line in self._lines), "  return chain", ""])
        chain: Process = _compiled(text, " > ".join(label))(**self._names)
        return chain

    def _begin(self) -> None:
        """Open a `try` around the lines of the next operators for one record."""
        self._open.append(("    " * self._depth, self.key, self.value))
        self._lines.append("    " * self._depth + "try:")
        self._depth += 1

    def _end(self, level: int) -> None:
        """Close the `try` of a level."""
        indent, _, _ = self._open[level - 1]
        leave = "return" if level == 1 else "continue"
        innermost = level == len(self._open)
        if innermost:
            self._lines.append("    " * self._depth + "pass")
        key, value = (self.key, self.value) if innermost else self._open[level - 1][1:]
        self._lines += [
            f"{indent}except Exception as error:",
            f"{indent}    if not rescue(error, {key}, {value}): raise",
            f"{indent}    {leave}",
        ]

    def _hand_on(self, level: int, after: Process | Writing) -> None:
        """Emit the continuation after the innermost `try`; errors there do not belong to this chain's nodes."""
        indent, record = self._open[level - 1][0], f"{self.key}, {self.value}, timestamp, headers"
        if not isinstance(after, Writing):
            self._lines.append(f"{indent}{self.name(after)}({record})")
            return
        topic, write_key, write_value, send, refuse, without_time = map(self.name, after)
        self._lines += [
            f"{indent}try:",
            f"{indent}    key_bytes = None if {self.key} is None else {write_key}({self.key})",
            f"{indent}    value_bytes = None if {self.value} is None else {write_value}({self.value})",
            f"{indent}except Exception as error:",
            f"{indent}    {refuse}({record}, error)",
            f"{indent}    {'return' if level == 1 else 'continue'}",
            f"{indent}if timestamp < 0: {without_time}(timestamp)",
            f"{indent}{send}({topic}, key_bytes, value_bytes, None, timestamp, headers)",
        ]

    def _rescue(self, error: Exception, key: Any, value: Any) -> bool:
        """Whether the handler dropped the record of a failed line; False for an error that is not of this chain."""
        where = error.__traceback__
        if ends_thread(error) or where is None:
            return False
        node = self._nodes.get(where.tb_lineno - 2)
        if not node:
            return False
        self._failed(node, key, value, error)
        return True
