"""Golden topologies: the text of a topology in a file, so that a test fails when a name of it changes.

Names of stores and repartition topics are names of topics in the cluster. The error states what a changed name means
for an application that is running.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.streams.topology import Topology

UPDATE: Final = "--update-golden"
_PART: Final = re.compile(r"^ +Sub-topology: (\d+)")
_STORES: Final = re.compile(r"\(stores: \[(.*)\]\)$")
_READ: Final = re.compile(r"Source: .* \(topics: \[(.*)\]\)$")
_INTERNAL: Final = re.compile(r".*-repartition|.*-subscription-(registration|response)-topic|.+-SUBSCRIPTION-.+-topic")


class GoldenTopologyError(AssertionError):
    """The topology is not that of the file; the message has the difference and what it means."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What a running application keeps under the names of a topology's text."""

    stores: Mapping[str, str]
    """The sub-topology of each store."""
    inputs: frozenset[str]
    internal: frozenset[str]


def compare_with_golden(topology: Topology, golden: Path, *, update: bool = False) -> None:
    """Compare `topology.describe()` with a file; `update` writes the file. Raises GoldenTopologyError."""
    __tracebackhide__ = True  # of pytest: the message is enough
    found = topology.describe()
    if update:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(found, encoding="utf-8")
        return
    if not golden.exists():
        raise GoldenTopologyError(f"there is no golden topology {golden}: run pytest with {UPDATE} once, and commit it")
    expected = golden.read_text(encoding="utf-8")
    if found != expected:
        raise GoldenTopologyError(difference(expected, found, golden.name))


def difference(before: str, after: str, name: str = "golden") -> str:
    """The message for two texts that differ: the lines, and what they mean for a running application."""
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), name, "the topology", lineterm="", n=1)
    meaning = [f"- {each}" for each in consequences(before, after)]
    return "\n".join(
        [
            f"the topology is not that of {name}:",
            "",
            *diff,
            "",
            "For an application that runs with the former topology:",
            *meaning,
            f"If that is intended, write the file again with pytest {UPDATE}.",
        ]
    )


def consequences(before: str, after: str) -> list[str]:
    """What a change means, a sentence or two each."""
    return list(_consequences(_names(before), _names(after)))


def _consequences(old: _Names, new: _Names) -> Iterator[str]:
    gone, added = sorted(old.stores.keys() - new.stores.keys()), sorted(new.stores.keys() - old.stores.keys())
    if gone:
        changelogs = _in_cluster(f"{each}-changelog" for each in gone)
        yield (
            f"the state of {', '.join(gone)} is not read any more ({changelogs}). A store has its state under its "
            "former name only, which Materialized gives it"
        )
    if added:
        yield f"{', '.join(added)}: empty after the upgrade, with a changelog of its own, unless such a topic exists"
    topics = sorted(old.internal - new.internal)
    if topics:
        yield (
            f"records that are in {_in_cluster(topics)} at the upgrade are not processed: a name in Grouped, Joined or "
            "Repartitioned keeps the topic"
        )
    if new.internal - old.internal:
        yield f"new internal topics: {', '.join(sorted(new.internal - old.internal))}"
    moved = sorted(store for store, part in old.stores.items() if new.stores.get(store, part) != part)
    if moved:
        yield (
            f"{', '.join(moved)}: in another sub-topology, so in tasks with other ids. State on disk is restored from "
            "the changelog, and instances with the former topology cannot run beside the new ones: stop all of them"
        )
    if new.inputs - old.inputs:
        yield f"new input topics, read from auto.offset.reset on: {', '.join(sorted(new.inputs - old.inputs))}"
    if old.inputs - new.inputs:
        yield f"input topics that are not read any more: {', '.join(sorted(old.inputs - new.inputs))}"
    if old == new:
        yield "nothing is lost: stores and topics have the same names; metrics and logs have the new names of nodes"


def _in_cluster(topics: Iterable[str]) -> str:
    return ", ".join(f"<application.id>-{each}" for each in topics)


def _names(text: str) -> _Names:
    stores: dict[str, str] = {}
    read: set[str] = set()
    part = ""
    for line in text.splitlines():
        if match := _PART.match(line):
            part = match[1]
        elif match := _STORES.search(line):
            stores.update((name, part) for name in match[1].split(", ") if name)
        elif match := _READ.search(line):
            read.update(match[1].split(", "))
    internal = frozenset(topic for topic in read if _INTERNAL.fullmatch(topic))
    return _Names(stores, frozenset(read) - internal, internal)
