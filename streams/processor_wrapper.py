"""Wrapper of the processors of an application (Kafka 4.0: ProcessorWrapper, processor.wrapper.class, KIP-1112).

    class Traced(ProcessorWrapper):
        def wrap_processor_supplier(self, processor_name, supplier):
            return lambda: Tracing(processor_name, supplier())

    KafkaStreams(topology, {"processor.wrapper.class": Traced, ...})

It wraps the processors of the Processor API: those of `Topology.add_processor`, `KStream.process` and
`process_values`. Java's also wraps the operators of the DSL; here these are functions that are fused, not processors.
The stores of a supplier belong to the topology, which exists before its configuration: a wrapper adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.streams.processor import FixedKeyProcessor, ProcessorSupplier

FixedKeyProcessorSupplier = Callable[[], FixedKeyProcessor[Any, Any, Any]]


class ProcessorWrapper:
    """Wraps suppliers of processors. Override what is of interest; each task calls the wrapped supplier once."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Called with the application's properties before the first supplier."""

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        """The supplier to use in place of this one."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        """The same for a processor that does not change keys."""
        return supplier


def wrapped(wrapper: ProcessorWrapper | None, processor_name: str, supplier: Callable[[], Any]) -> Any:
    """A processor of this supplier, wrapped. Without a wrapper it is the supplier's own."""
    if wrapper is None:
        return supplier()
    made = supplier if isinstance(supplier, type) else type(supplier())
    fixed = issubclass(made, FixedKeyProcessor)
    wrap = wrapper.wrap_fixed_key_processor_supplier if fixed else wrapper.wrap_processor_supplier
    return wrap(processor_name, supplier)()
