"""Topologies for `odradek streams run`. The names of their topics are variables of the environment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Produced
from odradek.streams.processor import Processor
from odradek.streams.records import Record
from odradek.streams.serdes import STRING
from odradek.streams.topology import Topology
from tests.streams.counting import word_counts


def counts() -> Topology:
    """Count words."""
    return word_counts(os.environ["WORDS"], os.environ["COUNTS"])


def failing() -> StreamsBuilder:
    """Copy words; each is an error while the file FAIL_WHILE exists."""
    path = Path(os.environ["FAIL_WHILE"])

    def checked(word: str) -> str:
        if path.exists():
            raise ValueError(f"{path} exists")
        return word

    builder = StreamsBuilder()
    words = builder.stream(os.environ["WORDS"], Consumed(STRING, STRING))
    words.map_values(checked).to(os.environ["COUNTS"], Produced(STRING, STRING))
    return builder


class NeverClosed(Processor):
    """Prints words; its close never returns."""

    def process(self, record: Record) -> None:
        print(f"word {record.value}", flush=True)

    def close(self) -> None:
        print("closing", flush=True)
        threading.Event().wait()


def hanging() -> Topology:
    """A topology whose client never closes."""
    topology = Topology().add_source("words", os.environ["WORDS"], key=STRING, value=STRING)
    return topology.add_processor("hanging", NeverClosed, "words")


not_a_topology = 1
