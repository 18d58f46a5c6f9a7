"""Loads of many clients from one light process: each request is encoded once and sent repeatedly.

The load reads only the length of a response, and its error codes where they matter, so that on two cores it leaves the
broker its own. Latencies of a paced load count from the moment at which a request was due, not from the one at which it
left: a broker that stalls makes the requests behind it late, too.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final, cast

import uvloop

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build, headers, records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
SESSION_AT: Final = 10
"""The offset of the session id in a response to Fetch: behind correlation id, throttle time and error."""
LONG_POLL_MS: Final = 500
IDLE_CONSUMERS: Final = 500
SMALL_PRODUCERS: Final = 200
SMALL_BATCH_RECORDS: Final = 10
SMALL_RECORD_BYTES: Final = 100
PACED_BATCH_RECORDS: Final = 64
PACED_RECORD_BYTES: Final = 1024
PACED_CONNECTIONS: Final = 6
RATES_MB: Final = (100, 50, 25)
LARGEST_LAG_S: Final = 0.5
BESIDE_A_SECOND: Final = 100
TIMEOUT_S: Final = 120.0


class Pipe(asyncio.Protocol):
    """A connection that passes on each response, without its length."""

    def __init__(self, on_answer: Callable[[bytes], None]) -> None:
        self._on_answer = on_answer
        self._waiting = bytearray()
        self.send: Callable[[bytes], None]
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.close: Callable[[], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        self.send, self.close = plain.write, plain.abort

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        waiting += data
        while len(waiting) >= 4:
            end = 4 + int.from_bytes(waiting[:4], "big")
            if len(waiting) < end:
                return
            answer = bytes(waiting[4:end])
            del waiting[:end]
            self._on_answer(answer)


async def connect(bootstrap: str, on_answer: Callable[[bytes], None]) -> Pipe:
    host, _, port = bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    _, pipe = await loop.create_connection(lambda: Pipe(on_answer), host, int(port))
    return pipe


def run(load: Coroutine[Any, Any, Mapping[str, float]]) -> Mapping[str, float]:
    """Run a load to its end and return its measurements.

    Raises TimeoutError when it takes longer than TIMEOUT_S, RuntimeError for an unexpected response.
    """
    wrong: list[dict[str, Any]] = []

    async def bounded() -> Mapping[str, float]:
        running = asyncio.ensure_future(load)

        def end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            wrong.append(context)
            running.cancel()

        asyncio.get_running_loop().set_exception_handler(end)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await running
        except asyncio.CancelledError:
            if not wrong:
                raise
            raise RuntimeError(wrong[0]["message"]) from wrong[0].get("exception")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


def percentiles(times_ms: Sequence[float], **wanted: float) -> dict[str, float]:
    """`percentiles(times, p99_ms=0.99)`."""
    ordered = sorted(times_ms)
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in wanted.items()}


# ---- requests


def produce_frame(topic: str, partition: int, batch: bytes | bytearray) -> bytes:
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = m.ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    head = request_header(m.ProduceRequest.API_KEY, PRODUCE_VERSION, 1, "bench")
    return frame(head, request.encode(PRODUCE_VERSION))


def check_produced(answer: bytes) -> None:
    """Raises RuntimeError for an error in an answer to Produce."""
    response = m.ProduceResponse.decode(answer, PRODUCE_VERSION, 5)
    code = response.responses[0].partition_responses[0].error_code
    if code != ErrorCode.NONE:
        raise RuntimeError(f"Produce: {ErrorCode(code).name}")


def fetch_frame(topic: str | None, offset: int, session: int, epoch: int) -> bytes:
    """A long poll; without a topic for the topics of the session."""
    wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [] if topic is None else [m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])]
    request = m.FetchRequest(
        max_wait_ms=LONG_POLL_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
    )
    head = request_header(m.FetchRequest.API_KEY, FETCH_VERSION, 1, "bench")
    return frame(head, request.encode(FETCH_VERSION))


def batch_of(count: int, size: int) -> bytes:
    value, now_ms = Random(count).randbytes(size), time.time_ns() // 1_000_000
    return bytes(build([Record(number, now_ms, None, value) for number in range(count)]))


# ---- the loads


class IdleConsumer:
    """A consumer of a partition without new records: one long poll after the other, in a session."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._session = self._epoch = 0
        self.polls = 0
        self._pipe: Pipe

    async def begin(self, bootstrap: str) -> None:
        self._pipe = await connect(bootstrap, self._answered)
        self._pipe.send(fetch_frame(self._topic, 0, 0, 0))

    def close(self) -> None:
        self._pipe.close()

    def _answered(self, answer: bytes) -> None:
        error, session = struct.unpack_from(">hi", answer, SESSION_AT - 2)
        if error:
            raise RuntimeError(f"Fetch: {ErrorCode(error).name}")
        self.polls += 1
        if not session:  # the broker keeps no session for it
            self._pipe.send(fetch_frame(self._topic, 0, 0, 0))
            return
        self._session, self._epoch = session, self._epoch + 1
        self._pipe.send(fetch_frame(None, 0, session, self._epoch))


class Tail:
    """A consumer that waits for each record of a topic; latencies run from the creation of a record to its arrival."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._offset = 0
        self.latencies_ms: list[float] = []
        self.arrived = asyncio.Event()
        self._pipe: Pipe

    async def begin(self, bootstrap: str) -> None:
        self._pipe = await connect(bootstrap, self._answered)
        self._poll()

    def close(self) -> None:
        self._pipe.close()

    def _poll(self) -> None:
        self._pipe.send(fetch_frame(self._topic, self._offset, 0, -1))

    def _answered(self, answer: bytes) -> None:
        now = time.perf_counter()
        response = m.FetchResponse.decode(answer, FETCH_VERSION, 4)
        data = response.responses[0].partitions[0].records or b"" if response.responses else b""
        for position, _ in headers(memoryview(data)):
            for each in records(memoryview(data), position):
                (made,) = struct.unpack(">d", bytes(each.value or b""))
                self.latencies_ms.append((now - made) * 1000)
                self._offset = each.offset + 1
        self.arrived.set()
        self._poll()


async def idle_consumers(bootstrap: str, idle: str, busy: str, seconds: float) -> Mapping[str, float]:
    """IDLE_CONSUMERS in long polls of the topic `idle`, and beside them a paced producer of `busy` and its consumer."""
    consumers = [IdleConsumer(idle) for _ in range(IDLE_CONSUMERS)]
    await asyncio.gather(*(each.begin(bootstrap) for each in consumers))
    tail = Tail(busy)
    await tail.begin(bootstrap)
    producer = await connect(bootstrap, check_produced)
    loop = asyncio.get_running_loop()
    began, count = loop.time(), round(seconds * BESIDE_A_SECOND)
    for number in range(count):
        due = began + number / BESIDE_A_SECOND
        await asyncio.sleep(max(0.0, due - loop.time()))
        now_ms, stamp = time.time_ns() // 1_000_000, struct.pack(">d", time.perf_counter())
        producer.send(produce_frame(busy, 0, build([Record(0, now_ms, None, stamp)])))
    while len(tail.latencies_ms) < count:
        tail.arrived.clear()
        await tail.arrived.wait()
    polls = sum(each.polls for each in consumers)
    for consumer in consumers:
        consumer.close()
    tail.close()
    producer.close()
    if polls < IDLE_CONSUMERS:
        raise RuntimeError(f"{polls} polls of {IDLE_CONSUMERS} consumers were answered in {seconds} s")
    return {**percentiles(tail.latencies_ms, p50_ms=0.5, p99_ms=0.99), "polls": polls}


async def small_producers(bootstrap: str, topic: str, partitions: int, requests: int) -> Mapping[str, float]:
    """SMALL_PRODUCERS that each send a small batch when the one before is answered, `requests` in all."""
    batch = batch_of(SMALL_BATCH_RECORDS, SMALL_RECORD_BYTES)
    frames = [produce_frame(topic, partition, batch) for partition in range(partitions)]
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    latencies_ms: list[float] = []
    left = requests

    class Producer:
        sent_s = 0.0

        def __init__(self, number: int) -> None:
            self.frame = frames[number % partitions]
            self.pipe: Pipe

        def send(self) -> None:
            nonlocal left
            if left > 0:
                left -= 1
                self.sent_s = time.perf_counter()
                self.pipe.send(self.frame)

        def answered(self, answer: bytes) -> None:
            latencies_ms.append((time.perf_counter() - self.sent_s) * 1000)
            check_produced(answer)
            if len(latencies_ms) == requests and not done.done():
                done.set_result(None)
            self.send()

    producers = [Producer(number) for number in range(SMALL_PRODUCERS)]
    for each in producers:
        each.pipe = await connect(bootstrap, each.answered)
    began = time.perf_counter()
    for each in producers:
        each.send()
    await done
    elapsed_s = time.perf_counter() - began
    for each in producers:
        each.pipe.close()
    return {
        "records_per_s": requests * SMALL_BATCH_RECORDS / elapsed_s,
        **percentiles(latencies_ms, p50_ms=0.5, p99_ms=0.99),
    }


async def paced(bootstrap: str, topic: str, rate_mb: float, seconds: float) -> Mapping[str, float]:
    """`rate_mb` MB (10^6 bytes) of values a second over PACED_CONNECTIONS partitions, a connection for each.

    `held` is 1 where the last answer came within LARGEST_LAG_S of its time.
    """
    batch = batch_of(PACED_BATCH_RECORDS, PACED_RECORD_BYTES)
    count = round(rate_mb * 1_000_000 * seconds / (PACED_BATCH_RECORDS * PACED_RECORD_BYTES))
    frames = [produce_frame(topic, partition, batch) for partition in range(PACED_CONNECTIONS)]
    waiting: list[deque[float]] = [deque() for _ in frames]
    latencies_ms: list[float] = []
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def answered(partition: int, answer: bytes) -> None:
        latencies_ms.append((time.perf_counter() - waiting[partition].popleft()) * 1000)
        check_produced(answer)
        if len(latencies_ms) == count and not done.done():
            done.set_result(None)

    pipes = [await connect(bootstrap, lambda answer, at=at: answered(at, answer)) for at in range(len(frames))]
    began = time.perf_counter()
    for number in range(count):
        due = began + number * seconds / count
        wait_s = due - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        elif number % 8 == 0:
            await asyncio.sleep(0)  # late: responses are still read
        partition = number % len(frames)
        waiting[partition].append(due)
        pipes[partition].send(frames[partition])
    await done
    lag_s = time.perf_counter() - began - seconds
    for each in pipes:
        each.close()
    return {
        **percentiles(latencies_ms, p50_ms=0.5, p99_ms=0.99, p999_ms=0.999),
        "held": float(lag_s < LARGEST_LAG_S),
        "batches": count,
    }
