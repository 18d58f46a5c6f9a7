"""A processor that keeps its records in a store."""

from __future__ import annotations

from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record


class Keeping(Processor):
    """Forwards the rows that leave the cache of its store."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.state_store("kept")
        self._store.set_flush_listener(
            lambda key, new, old, timestamp, headers: context.forward(Record(key, new, timestamp, headers)), False
        )

    def process(self, record: Record) -> None:
        self._store.put("k", record.value)
