"""Exception handlers in the driver: what each is called with, the forms it may be given in, and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.streams import (
    JSON,
    LONG,
    STRING,
    Consumed,
    Processor,
    Produced,
    PunctuationType,
    Record,
    Response,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyTestDriver,
    log_and_continue,
    log_and_fail,
)
from odradek.streams.config import StreamsConfig, StreamsConfigError
from odradek.streams.errors import Decision, ErrorContext, ProcessingError, Undelivered
from odradek.streams.records import RecordMetadata, TaskId
from odradek.streams.serdes import BYTES

DEAD = "dead"
REQUIRED = {"application.id": "handlers", "bootstrap.servers": "127.0.0.1:1"}
HANDLERS = (
    "default.deserialization.exception.handler",
    "processing.exception.handler",
    "default.production.exception.handler",
)


class Seen:
    """A handler for all failures that continues, and what it was called with."""

    def __init__(self, result: Any = Response.CONTINUE) -> None:
        self.calls: list[tuple[ErrorContext, Any, Exception]] = []
        self._result = result

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> Any:
        self.calls.append((context, record, error))
        return self._result

    @property
    def config(self) -> dict[str, Any]:
        return dict.fromkeys(HANDLERS, self)

    @property
    def nodes(self) -> list[tuple[str, str, int]]:
        return [(context.node, context.source.topic, context.source.offset) for context, _, _ in self.calls]


def _raise(*_: Any) -> Any:
    raise ZeroDivisionError("on purpose")


class Ticking(Processor):
    """Its punctuators fail."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, _raise)
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, _raise)

    def process(self, record: Record) -> None:
        self.context.forward(record)


def ticking() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).process(Ticking, name="ticking").to("out", Produced(STRING, STRING))
    return builder.build()


def test_an_exception_of_a_punctuator_goes_to_the_handler_with_its_node() -> None:
    seen = Seen()
    with TopologyTestDriver(ticking(), seen.config, 0) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v", timestamp=10)
        driver.advance_wall_clock_time(1_000)
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["v"]
        assert driver.dropped_records == 2
    assert seen.nodes == [("ticking", "", -1), ("ticking", "", -1)]
    assert [record for _, record, _ in seen.calls] == [None, None]
    assert [context.timestamp for context, _, _ in seen.calls] == [10, 1_000]
    assert all(isinstance(error, ZeroDivisionError) for _, _, error in seen.calls)


def test_an_exception_of_a_punctuator_fails_by_default() -> None:
    with (
        TopologyTestDriver(ticking(), initial_wall_clock=0) as driver,
        pytest.raises(ProcessingError, match="Exception caught while punctuating processor 'ticking'"),
    ):
        driver.advance_wall_clock_time(1_000)


@pytest.mark.parametrize("upstream", ["fused", "processor", "branch"])
@pytest.mark.parametrize("wrong", ["partitioner", "chooser"])
def test_an_exception_of_a_partitioner_or_topic_chooser_goes_to_the_handler_with_its_sink(
    upstream: str, wrong: str
) -> None:
    builder = StreamsBuilder()
    stream: Any = builder.stream("in", Consumed(STRING, STRING)).map_values(str.upper)
    if upstream == "processor":
        stream = stream.process(Forward, name="before")
    elif upstream == "branch":
        stream = stream.split(name="s-").branch(lambda value: True).no_default_branch()["s-1"]
    else:
        stream = stream.filter(lambda value: True, name="before").map_values(lambda value: value + "!")

    def choose(key: str, value: str, source: Any) -> str:
        return _chosen(value, "out")

    def partition(topic: str, key: str, value: str, partitions: int) -> int:
        return _chosen(value, 0)

    topic: Any = choose if wrong == "chooser" else "out"
    stream.to(topic, Produced(STRING, STRING, None if wrong == "chooser" else partition, "sink"))
    seen = Seen()
    with TopologyTestDriver(builder.build(), seen.config) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_value_list(["a", "bad", "b"])
        got = driver.create_output_topic("out", STRING, STRING).read_values_to_list()
        assert driver.dropped_records == 1
    assert [str(value).rstrip("!") for value in got] == ["A", "B"]
    assert seen.nodes == [("sink", "in", 1)]
    (context, record, _) = seen.calls[0]
    assert record.value.rstrip("!") == "BAD"
    assert context.source_raw_value == b"bad"


@pytest.mark.parametrize("topic", [None, "", "not a topic", 7])
def test_a_topic_that_cannot_exist_goes_to_the_handler_with_its_sink(topic: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to(
        lambda key, value, source: topic if value == "bad" else "out", Produced(STRING, STRING, name="sink")
    )
    seen = Seen()
    with TopologyTestDriver(builder.build(), seen.config) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_value_list(["a", "bad", "b"])
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["a", "b"]
    assert seen.nodes == [("sink", "in", 1)]
    assert "is no name of a topic" in str(seen.calls[0][2])


def _chosen(value: str, result: Any) -> Any:
    return _raise() if value.startswith("BAD") else result


class Forward(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


def orders() -> Topology:
    """Fails to read, to compute a price, or to write it."""
    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed(STRING, JSON))
    stream.map_values(lambda order: order["total"] / order["pieces"], name="price").map_values(
        lambda price: int(price) if price == int(price) else price
    ).to("prices", Produced(STRING, LONG, name="writer"))
    return builder.build()


FAILING = (b"no JSON", b'{"total": 6, "pieces": 0}', b'{"total": 1, "pieces": 2}')
GOOD = b'{"total": 6, "pieces": 2}'


def pipe(driver: TopologyTestDriver, *values: bytes, topic: str = "orders") -> None:
    piped = driver.create_input_topic(topic, STRING, BYTES)
    for number, value in enumerate(values):
        piped.pipe_input(Record("k", value, number, [("trace", b"t1")]))


def test_every_handler_is_called_with_context_record_and_error() -> None:
    seen = Seen()
    with TopologyTestDriver(orders(), seen.config) as driver:
        pipe(driver, *FAILING, GOOD)
        assert driver.create_output_topic("prices", STRING, LONG).read_values_to_list() == [3]
    assert seen.nodes == [
        ("KSTREAM-SOURCE-0000000000", "orders", 0),
        ("price", "orders", 1),
        ("writer", "orders", 2),
    ]
    unreadable, unprocessed, unwritten = [record for _, record, _ in seen.calls]
    assert unreadable == Record(b"k", b"no JSON", 0, [("trace", b"t1")])
    assert (unprocessed.key, unprocessed.value) == ("k", {"total": 6, "pieces": 0})
    assert isinstance(unwritten, Undelivered)
    assert (unwritten.topic, unwritten.value) == ("prices", 0.5)
    assert [context.source_raw_value for context, _, _ in seen.calls] == list(FAILING)
    assert [context.timestamp for context, _, _ in seen.calls] == [0, 1, 2]


def test_handlers_of_key_and_value_are_still_accepted() -> None:
    calls: list[tuple[str, Any, Any]] = []

    def old(context: ErrorContext, key: Any, value: Any, error: Exception) -> Response:
        calls.append((context.node, key, value))
        return Response.CONTINUE

    with TopologyTestDriver(orders(), dict.fromkeys(HANDLERS[:2], old)) as driver:
        pipe(driver, *FAILING[:2], GOOD)
    assert calls == [
        ("KSTREAM-SOURCE-0000000000", b"k", b"no JSON"),
        ("price", "k", {"total": 6, "pieces": 0}),
    ]
    with TopologyTestDriver(ticking(), {HANDLERS[1]: old}, 0) as driver:
        driver.advance_wall_clock_time(1_000)
    assert calls[-1] == ("ticking", None, None)


class Skipping:
    """A handler as a class: an application makes one object of it."""

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> Response:
        return Response.CONTINUE


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("odradek.streams.log_and_continue", log_and_continue),
        ("odradek.streams.errors:log_and_fail", log_and_fail),
        ("org.apache.kafka.streams.errors.LogAndContinueExceptionHandler", log_and_continue),
        ("org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler", log_and_fail),
    ],
)
def test_a_handler_may_be_given_as_a_dotted_name(name: str, expected: Callable[..., Any]) -> None:
    assert StreamsConfig({**REQUIRED, HANDLERS[1]: name}).handlers.processing is expected


def test_a_handler_may_be_the_dotted_name_of_a_class() -> None:
    handlers = dict.fromkeys(HANDLERS, f"{__name__}.Skipping")
    with TopologyTestDriver(orders(), handlers) as driver:
        pipe(driver, *FAILING, GOOD)
        assert driver.dropped_records == 3


@pytest.mark.parametrize("name", HANDLERS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("nowhere.handler", "No module named 'nowhere'"),
        ("odradek.streams.nothing", "has no attribute 'nothing'"),
        ("handler", "dotted name"),
        ("org.apache.kafka.streams.errors.Unknown", "LogAndContinueExceptionHandler"),
        (lambda error: None, "expected a function of \\(context, record, error\\)"),
        (5, "is 5; expected a function"),
    ],
)
def test_a_wrong_handler_is_an_error_of_the_configuration(name: str, wrong: Any, message: str) -> None:
    with pytest.raises(StreamsConfigError, match=message):
        StreamsConfig({**REQUIRED, name: wrong})


def test_a_handler_that_raises_or_returns_nothing_fails_with_the_place() -> None:
    for handler, message in ((_raise, "Fatal user code error"), (Seen(None), "returned None")):
        with (
            TopologyTestDriver(orders(), {HANDLERS[1]: handler}) as driver,
            pytest.raises(StreamsError, match=message) as caught,
        ):
            pipe(driver, FAILING[1])
        assert "node=price, topic=orders, partition=0, offset=0" in str(caught.value)


def test_ready_made_handlers_write_dead_letters_with_the_headers_of_kafka() -> None:
    config = {**dict.fromkeys(HANDLERS, log_and_continue), "errors.dead.letter.queue.topic.name": DEAD}
    with TopologyTestDriver(orders(), config) as driver:
        pipe(driver, *FAILING)
        letters = driver.create_output_topic(DEAD, STRING, BYTES).read_records_to_list()
    assert [(letter.key, letter.value, letter.timestamp) for letter in letters] == [
        ("k", value, at) for at, value in enumerate(FAILING)
    ]
    for at, letter in enumerate(letters):
        headers = dict(letter.headers or [])
        about = ("exception", "message", "stacktrace", "topic", "partition", "offset")
        assert list(headers) == ["trace", *(f"__streams.errors.{each}" for each in about)]
        assert headers["trace"] == b"t1"
        assert [headers[f"__streams.errors.{each}"] for each in about[3:]] == [b"orders", b"0", str(at).encode()]
        assert b"Traceback" in (headers["__streams.errors.stacktrace"] or b"")
    headers = dict(letters[1].headers or [])
    assert headers["__streams.errors.exception"] == b"ZeroDivisionError"
    assert headers["__streams.errors.message"] == b"division by zero"


def test_log_and_fail_writes_a_dead_letter_too() -> None:
    where = ErrorContext(TaskId(0, 1), "node", RecordMetadata("in", 1, 7), 5, None, b"k", b"v", DEAD)
    decision = log_and_fail(where, Record("key", "value", 5), ValueError())
    assert isinstance(decision, Decision)
    assert decision.response is Response.FAIL
    (letter,) = decision.dead_letters
    assert (letter.topic, letter.key, letter.value, letter.timestamp) == (DEAD, b"k", b"v", 5)
    assert ("__streams.errors.message", None) in (letter.headers or [])  # Java's getMessage() is null, too
    assert log_and_fail(replace(where, dead_letter_topic=None), None, ValueError()) is Response.FAIL


def test_a_handler_returns_dead_letters_of_its_own() -> None:
    def handler(context: ErrorContext, record: Any, error: Exception) -> Decision:
        letter = context.dead_letter(error, b"k2", repr(record.value).encode(), topic="mine")
        return Response.CONTINUE.with_dead_letters(letter, letter)

    with TopologyTestDriver(orders(), {HANDLERS[1]: handler}) as driver:
        pipe(driver, FAILING[1], GOOD)
        letters = driver.create_output_topic("mine", STRING, STRING).read_key_values_to_list()
        assert letters == [("k2", "{'total': 6, 'pieces': 0}")] * 2
        assert driver.create_output_topic("prices", STRING, LONG).read_values_to_list() == [3]


def test_the_dead_letter_topic_has_a_name_that_a_topic_can_have() -> None:
    with pytest.raises(StreamsConfigError, match="not a topic"):
        StreamsConfig({**REQUIRED, "errors.dead.letter.queue.topic.name": "not a topic"})
