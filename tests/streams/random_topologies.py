"""Random topologies: nodes, their parents and their stores, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from odradek.streams.processor import Processor
from odradek.streams.records import Record
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store

Node = tuple[str, list[int], list[int]]

NODES = st.lists(
    st.tuples(
        st.sampled_from(["source", "sources", "processor", "processor", "processor", "sink"]),
        st.lists(st.integers(0, 40), min_size=1, max_size=3),
        st.lists(st.integers(0, 4), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


class Nothing(Processor):
    """Never runs."""

    def process(self, record: Record) -> None:
        pass


def write(builder: Any, nodes: list[Node], names: list[str]) -> None:
    """A topology of these nodes; parents are the numbers of those before them."""
    builder.add_source(names[0], "first")
    parents, stores = [names[0]], set()
    for number, ((kind, before, used), name) in enumerate(zip(nodes, names[1:], strict=False)):
        above = sorted({parents[each % len(parents)] for each in before}, reverse=True)
        if kind == "source":
            builder.add_source(name, f"topic-{number}")
        elif kind == "sources":
            builder.add_source(name, [f"topic-{number}-{each}" for each in range(sum(before) % 25 + 1)])
        elif kind == "sink":
            builder.add_sink(name, f"out-{number}", *above)
        else:
            builder.add_processor(name, Nothing, *above)
            for store in sorted({f"store-{each}" for each in used}):
                if store not in stores:
                    stores.add(store)
                    builder.add_state_store(key_value_store(store, STRING, STRING))
                builder.connect_processor_and_state_stores(name, store)
        if kind != "sink":
            parents.append(name)
