"""Asynchronous operators: the results, order and contexts of the synchronous ones for all delays, and their limits."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from odradek.streams import (
    LONG,
    STRING,
    ArgumentError,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    log_and_continue,
)
from odradek.streams.checks import check_application
from odradek.streams.config import StreamsConfig
from odradek.streams.errors import ErrorContext, ProcessingError, Response, TaskMigratedError, TopologyError
from odradek.streams.event_loop import THREAD_NAME, EventLoopThread
from odradek.streams.records import RecordMetadata, TaskId
from tests.streams.one_task import TOPIC, Seen, SourceRecord, one_task, records, witness
from tests.support.eventually import eventually

PLACE = (TOPIC, 0)


async def turns(value: str) -> None:
    """A delay without time: "3:x" takes three turns of the loop."""
    for _ in range(int(value.partition(":")[0])):
        await asyncio.sleep(0)


def shout(key: str, value: str) -> tuple[str, str]:
    return key + value[-1], value.upper()


async def shout_slowly(key: str, value: str) -> tuple[str, str]:
    await turns(value)
    return shout(key, value)


async def upper_slowly(value: str) -> str:
    await turns(value)
    return value.upper()


SYNC: dict[str, Callable[[KStream[str, str]], KStream[str, str]]] = {
    "map": lambda stream: stream.map(shout),
    "map_values": lambda stream: stream.map_values(str.upper),
    "twice": lambda stream: stream.map_values(str.upper).filter(lambda value: "Z" not in value).map(shout),
    "fan_out": lambda stream: stream.flat_map_values(lambda value: [value, f"1{value}"]).map_values(str.upper),
}


def asynchronous(kind: str, stream: KStream[str, str], concurrency: int) -> KStream[str, str]:
    if kind == "map":
        return stream.map_async(shout_slowly, concurrency=concurrency)
    if kind == "map_values":
        return stream.map_values_async(upper_slowly, concurrency=concurrency)
    if kind == "twice":
        first = stream.map_values_async(upper_slowly, concurrency=concurrency).filter(lambda value: "Z" not in value)
        return first.map_async(shout_slowly, concurrency=concurrency)
    many = stream.flat_map_values(lambda value: [value, f"1{value}"])
    return many.map_values_async(upper_slowly, concurrency=concurrency)


def built(apply: Callable[[KStream[str, str]], KStream[str, str]], seen: list[Seen]) -> Topology:
    builder = StreamsBuilder()
    stream = apply(builder.stream(TOPIC, Consumed(STRING, STRING)))
    stream.process(witness(seen)).to("out", Produced(STRING, STRING))
    return builder.build()


def run(topology: Topology, given_records: list[SourceRecord], batch: int) -> list[Any]:
    """Process the records in batches, as a thread does, and wait for the results."""
    with one_task(topology) as (task, memory):
        task.add(PLACE, given_records)
        while task.partition_group.buffered():
            task.forward_results()
            if not task.process(batch):
                task.complete()
        task.complete()
        assert task.committable()[PLACE][0] == len(given_records)
        return memory.written


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(SYNC)),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("xyz"), st.integers(0, 1_000)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_for_all_delays_the_results_are_those_of_the_synchronous_operator(
    kind: str, drawn: list[tuple[int, str, int]], concurrency: int, batch: int
) -> None:
    """Records, their order, what a processor behind sees of each (origin, headers, stream time), and the output."""
    inputs = records([(f"{delay}:{letter}", at) for delay, letter, at in drawn], headers=True)
    expected: list[Seen] = []
    found: list[Seen] = []
    output = run(built(SYNC[kind], expected), inputs, batch)
    assert run(built(lambda stream: asynchronous(kind, stream, concurrency), found), inputs, batch) == output
    assert found == expected


def test_no_more_calls_than_the_concurrency_are_in_progress() -> None:
    now, most, gate = 0, 0, asyncio.Event()

    async def counted(value: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1
        return value

    with one_task(built(lambda s: s.map_values_async(counted, concurrency=3), [])) as (task, memory):
        task.add(PLACE, records([(str(number), number) for number in range(10)]))
        assert task.process(512) == 3  # the queue keeps the rest: nothing is buffered behind it
        assert task.process(512) == 0
        assert task.partition_group.buffered() == 7
        assert task.calls is not None
        eventually(lambda: now == 3)
        task.forward_results()
        assert memory.written == []
        release(gate)
        task.complete()
        while task.process(512):
            task.complete()
        assert memory.of("out") == [str(number).encode() for number in range(10)]
    assert most == 3


def release(gate: asyncio.Event) -> None:
    """Set an event of the loop of the process."""
    from odradek.streams.event_loop import event_loop

    event_loop().call(gate.set)


def test_a_flat_map_before_it_does_not_exceed_the_concurrency() -> None:
    now, most = 0, 0

    async def counted(value: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return value

    builder = StreamsBuilder()
    letters = builder.stream(TOPIC, Consumed(STRING, STRING)).flat_map_values(list)
    letters.map_values_async(counted, concurrency=4).to("out", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic(TOPIC, STRING, STRING).pipe_input("k", "abcdefghijklmnop")
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == list("abcdefghijklmnop")
    assert most == 4


def test_results_go_through_stores_and_caches_before_a_commit() -> None:
    """A cached count before the operator, a cached count behind it: both are flushed, and all results forwarded."""
    builder = StreamsBuilder()
    words = builder.stream(TOPIC, Consumed(STRING, STRING)).group_by(lambda value: value, Grouped(STRING, STRING))
    counts = words.count(Materialized("first", STRING, LONG, store_type="in_memory")).to_stream()

    async def parity(key: str, count: int) -> tuple[str, int]:
        await asyncio.sleep(0)
        return "even" if count % 2 == 0 else "odd", count

    by_parity = counts.map_async(parity, concurrency=2).group_by_key(Grouped(STRING, LONG))
    by_parity.count(Materialized("second", STRING, LONG, store_type="in_memory")).to_stream().to(
        "out", Produced(STRING, LONG)
    )
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 100_000}) as driver:
        driver.create_input_topic(TOPIC, STRING, STRING).pipe_value_list(["a", "b", "a", "c", "a"])
        assert driver.create_output_topic("out", STRING, LONG).read_key_values_to_map() == {"odd": 4, "even": 1}


def test_windows_behind_it_see_no_late_records() -> None:
    """The stream time of a result is that of its record, not that of later records in flight."""

    def counts(stream: KStream[str, str]) -> None:
        windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
        grouped = stream.group_by_key(Grouped(STRING, STRING)).windowed_by(windows)
        table = grouped.count(Materialized(name="n", store_type="in_memory"))
        table.to_stream(lambda key, value: str(key.window.start)).to("out", Produced(STRING, LONG))

    outputs = []
    for asynchronously in (False, True):
        builder = StreamsBuilder()
        stream = builder.stream(TOPIC, Consumed(STRING, STRING))
        counts(stream.map_values_async(upper_slowly) if asynchronously else stream.map_values(str.upper))
        outputs.append(run(builder.build(), records([("4:a", 5), ("0:b", 100), ("0:c", 101), ("2:d", 205)]), 512))
    assert outputs[0] == outputs[1]
    assert len([each for each in outputs[1] if each.topic == "out"]) == 3  # the cache joins two


# ---- errors


class Handler:
    """A processing handler that continues."""

    def __init__(self, response: Response = Response.CONTINUE) -> None:
        self.calls: list[tuple[ErrorContext, Any, Exception]] = []
        self.response = response

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> Response:
        self.calls.append((context, record, error))
        return self.response


async def choosy(value: str) -> str:
    await turns(value)
    if value.endswith("bad"):
        raise ZeroDivisionError("on purpose")
    return value


def test_an_exception_goes_to_the_handler_with_the_context_of_its_record() -> None:
    handler = Handler()
    topology = built(lambda stream: stream.map_values_async(choosy, name="choosy"), [])
    with one_task(topology, processing_exception_handler=handler) as (task, memory):
        task.add(PLACE, records([("5:a", 1), ("0:bad", 2), ("3:c", 3)], headers=True))
        task.process(512)
        task.complete()
        assert memory.of("out") == [b"5:a", b"3:c"]
        assert task.context.dropped == 1
    ((context, record, error),) = handler.calls
    assert (context.node, context.task_id, context.source) == ("choosy", TaskId(0, 0), RecordMetadata(TOPIC, 0, 1))
    assert (context.source_raw_key, context.source_raw_value, context.timestamp) == (b"k", b"0:bad", 2)
    assert (record.key, record.value, record.timestamp, record.headers) == ("k", "0:bad", 2, [("at", b"1")])
    assert isinstance(error, ZeroDivisionError)


def test_a_failed_record_can_go_to_the_dead_letter_queue() -> None:
    more: dict[str, Any] = {
        "processing_exception_handler": log_and_continue,
        "errors_dead_letter_queue_topic_name": "dead",
    }
    with one_task(built(lambda stream: stream.map_values_async(choosy), []), **more) as (task, memory):
        task.add(PLACE, records([("0:bad", 1), ("0:b", 2)]))
        task.process(512)
        task.complete()
        assert (memory.of("out"), memory.of("dead")) == ([b"0:b"], [b"0:bad"])


def test_fail_fails_the_task_behind_the_results_before_it() -> None:
    topology = built(lambda stream: stream.map_values_async(choosy, name="choosy"), [])
    with one_task(topology) as (task, memory):
        task.add(PLACE, records([("5:a", 1), ("0:bad", 2), ("0:c", 3)]))
        task.process(512)
        with pytest.raises(ProcessingError, match=r"node=choosy, topic=in, partition=0, offset=1") as raised:
            task.complete()
        assert raised.value.task_id == TaskId(0, 0)
        assert memory.of("out") == [b"5:a"]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda value: value, TypeError),  # not awaitable
        (lambda value: asyncio.sleep(0, "no pair of key and value"), ValueError),
        (lambda value: exit_slowly(), RuntimeError),
        (lambda value: cancel_itself(), RuntimeError),
    ],
)
def test_wrong_results_go_to_the_handler(wrong: Any, kind: type[Exception]) -> None:
    """Also those of functions that end with sys.exit() or by a cancellation of their own."""
    handler = Handler()
    builder = StreamsBuilder()
    builder.stream(TOPIC, Consumed(STRING, STRING)).map_async(wrong).to("out", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": handler}) as driver:
        driver.create_input_topic(TOPIC, STRING, STRING).pipe_input("k", "v")
        assert driver.create_output_topic("out", STRING, STRING).is_empty
    assert [type(error) for _, _, error in handler.calls] == [kind]


async def exit_slowly() -> Any:
    await asyncio.sleep(0)
    sys.exit(3)


async def cancel_itself() -> Any:
    raise asyncio.CancelledError


def test_a_call_that_takes_too_long_is_canceled_and_goes_to_the_handler() -> None:
    canceled = threading.Event()

    async def hang(value: str) -> str:
        if value == "stuck":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                canceled.set()
                await asyncio.Event().wait()  # a function that ignores it holds nothing up
        return value

    handler = Handler()
    topology = built(lambda s: s.map_values_async(hang, concurrency=1, timeout=20, name="hang"), [])
    with one_task(topology, processing_exception_handler=handler) as (task, memory):
        task.add(PLACE, records([("a", 1), ("stuck", 2), ("c", 3)]))
        while task.partition_group.buffered():
            task.process(512)
            task.complete()
        assert memory.of("out") == [b"a", b"c"]
        assert task.calls is not None
        assert task.calls.nodes[0].metrics.timeouts == 1
    ((context, record, error),) = handler.calls
    assert (context.node, context.source.offset, record.value) == ("hang", 1, "stuck")
    assert isinstance(error, TimeoutError)
    assert str(error) == "no result within 0.02 s, the timeout of hang"
    assert canceled.wait(10)


def test_a_task_that_closes_cancels_its_calls() -> None:
    canceled, started = threading.Event(), threading.Event()

    async def hang(value: str) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.set()
            raise
        return value

    with one_task(built(lambda stream: stream.map_values_async(hang), [])) as (task, memory):
        task.add(PLACE, records([("a", 1)]))
        task.process(512)
        assert started.wait(10)
        with pytest.raises(TaskMigratedError, match="1 calls of KSTREAM-MAPVALUESASYNC-0000000001 did not end in time"):
            task.complete(time.monotonic())
        task.close_processors()
        assert canceled.wait(10)
        assert memory.written == []


# ---- the rest


def test_all_calls_of_the_process_run_on_one_loop() -> None:
    """So a client that one task has created serves the others; pipe_input may be called on a loop of one's own."""
    loops = set()

    async def where(value: str) -> str:
        loops.add((asyncio.get_running_loop(), threading.current_thread().name))
        return value

    async def test() -> None:
        for _ in range(2):
            with TopologyTestDriver(built(lambda stream: stream.map_values_async(where), [])) as driver:
                driver.create_input_topic(TOPIC, STRING, STRING).pipe_input("k", "v")

    asyncio.run(test())
    ((_, name),) = loops
    assert name == THREAD_NAME


def test_the_end_of_the_loop_cancels_what_runs() -> None:
    thread, ended = EventLoopThread(), []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks: list[Any] = []
    thread.call(lambda: tasks.append(thread.create_task(hang())))
    eventually(lambda: tasks)
    thread.close()
    assert ended == [True]
    thread.call(ended.clear)  # without effect
    assert ended == [True]


def test_a_topology_has_names_and_breaks_the_chain_there() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(TOPIC, Consumed(STRING, STRING)).map_values(str.upper)
    stream.map_values_async(upper_slowly).map_async(shout_slowly, name="given").to("out", Produced(STRING, STRING))
    names = list(builder.build().nodes)
    assert names[2:4] == ["KSTREAM-MAPVALUESASYNC-0000000002", "given"]


def test_metrics_of_a_node() -> None:
    with TopologyTestDriver(built(lambda stream: stream.map_values_async(upper_slowly, name="up"), [])) as driver:
        driver.create_input_topic(TOPIC, STRING, STRING).pipe_value_list(["0:a", "1:b"])
        metrics: dict[str, Any] = {
            metric.name: value
            for metric, value in driver.metrics().items()
            if metric.group == "stream-processor-node-metrics" and dict(metric.tags)["processor-node-id"] == "up"
        }
    assert (metrics["calls-in-flight"], metrics["call-total"], metrics["call-timeouts-total"]) == (0, 2, 0)
    assert 0 < metrics["call-latency-avg"] <= metrics["call-latency-max"] < 10_000


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"timeout": 0}, {"timeout": timedelta(0)}])
def test_wrong_limits_are_rejected_where_they_are_written(wrong: dict[str, Any]) -> None:
    stream = StreamsBuilder().stream(TOPIC, Consumed(STRING, STRING))
    with pytest.raises(ArgumentError, match=r"test_map_async\.py:\d+: both have to be 1 or more"):
        stream.map_async(shout_slowly, **wrong)


def test_a_function_of_other_parameters_is_rejected() -> None:
    async def wrong(key: str, value: str, more: str) -> str:
        return value

    builder = StreamsBuilder()
    builder.stream(TOPIC, Consumed(STRING, STRING)).map_values_async(wrong, name="n")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"n: mapper is .*wrong"):
        builder.build()


def test_a_timeout_above_that_of_a_transaction_is_rejected() -> None:
    topology = built(lambda stream: stream.map_values_async(upper_slowly, timeout=9_900, name="slow"), [])
    config = {"application.id": "a", "bootstrap.servers": "none"}
    once = {**config, "processing.guarantee": "exactly_once_v2"}
    check_application(topology, StreamsConfig(config))
    with pytest.raises(TopologyError, match=r"slow: timeout \(9900 ms\) has to be below 9900 ms"):
        check_application(topology, StreamsConfig(once))
    check_application(topology, StreamsConfig({**once, "producer.transaction.timeout.ms": 20_000}))
