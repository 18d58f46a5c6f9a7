"""processor.wrapper.class: every processor of the Processor API is wrapped, by its name, and no operator of the DSL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from odradek.streams.config import StreamsConfigError
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Produced
from odradek.streams.processor import FixedKeyProcessor, Processor, ProcessorContext
from odradek.streams.processor_wrapper import FixedKeyProcessorSupplier, ProcessorWrapper
from odradek.streams.records import Record
from odradek.streams.serdes import STRING

events: list[tuple[str, ...]] = []


class Upper(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Twice(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value * 2))


class Traced(Processor[str, str, str, str]):
    """Notes the life of another processor."""

    def __init__(self, name: str, inner: Processor[Any, Any, Any, Any]) -> None:
        self.name, self.inner = name, inner

    def init(self, context: ProcessorContext[str, str]) -> None:
        events.append((self.name, "init"))
        self.inner.init(context)

    def process(self, record: Record[str, str]) -> None:
        events.append((self.name, "process", record.value))
        self.inner.process(record)

    def close(self) -> None:
        events.append((self.name, "close"))
        self.inner.close()


class TracedFixed(Traced, FixedKeyProcessor[str, str, str]):
    """The same of a processor that does not change keys."""


class Tracing(ProcessorWrapper):
    """Wraps both kinds."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Note the configuration."""
        events.append(("configured", config["application.id"]))

    def wrap_processor_supplier(
        self, processor_name: str, supplier: Callable[[], Processor[Any, Any, Any, Any]]
    ) -> Callable[[], Processor[Any, Any, Any, Any]]:
        """Trace it."""
        return lambda: Traced(processor_name, supplier())

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        """Trace it."""
        return lambda: TracedFixed(f"fixed {processor_name}", supplier())


def outputs(wrapper: Any) -> list[str | None]:
    builder = StreamsBuilder()
    source = builder.stream("in", Consumed(STRING, STRING)).map_values(str.strip)
    source.process(Upper, name="upper").process_values(lambda: Twice(), name="twice").to(
        "out", Produced(STRING, STRING)
    )
    config = (
        {"application.id": "wrapping"}
        if wrapper is None
        else {
            "application.id": "wrapping",
            "processor.wrapper.class": wrapper,
        }
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_value_list([" a ", "b"])
        return driver.create_output_topic("out", STRING, STRING).read_values_to_list()


@pytest.mark.parametrize("wrapper", [Tracing, Tracing(), f"{__name__}.Tracing"])
def test_processors_are_wrapped_by_name(wrapper: Any) -> None:
    events.clear()
    assert outputs(wrapper) == outputs(None) == ["AA", "BB"]
    assert [event for event in events if event[0] == "configured"] == [("configured", "wrapping")]
    assert [event[1:] for event in events if event[0] == "upper"] == [
        ("init",),
        ("process", "a"),
        ("process", "b"),
        ("close",),
    ]
    assert [event[1:] for event in events if event[0] == "fixed twice"] == [
        ("init",),
        ("process", "A"),
        ("process", "B"),
        ("close",),
    ]
    assert {event[0] for event in events} == {"configured", "upper", "fixed twice"}


def test_the_default_wraps_nothing() -> None:
    assert outputs(ProcessorWrapper) == outputs(None)


@pytest.mark.parametrize("wrong", [5, Upper, "no.such.Wrapper"])
def test_anything_else_is_an_error(wrong: Any) -> None:
    with pytest.raises(StreamsConfigError, match=r"processor\.wrapper\.class"):
        outputs(wrong)
