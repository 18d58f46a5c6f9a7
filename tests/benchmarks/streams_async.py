"""How many records a second a stream application maps by a service that takes 10 ms, one at a time and many at a time.

    python -m tests.benchmarks.streams_async [--records 20000] [--concurrency 100] [--guarantee exactly_once_v2]

One broker, one instance with one thread, one partition. `map_values` waits for each response (`time.sleep`),
`map_values_async` for up to `--concurrency` of them (`asyncio.sleep`), and `none` maps without a service. The service
costs no CPU, so the CPU seconds are those of the runtime; they cover the whole process. The time is that from the start
of the processing to the last record in the output topic, which a consumer sees as committed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.streams import STRING, Consumed, KafkaStreams, KStream, Produced, StreamsBuilder, Topology
from odradek.streams.runtime import State
from tests.streams import counting

SERVICE_S: Final = 0.010
TIMEOUT_S: Final = 600.0
KINDS: Final = ("map_values", "map_values_async", "none")
SYNC_SHARE: Final = 20
"""The synchronous map gets this part of the records: its time for each does not depend on their number."""


class Measured(NamedTuple):
    """One run."""

    kind: str
    records: int
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        rate, cpu_us = self.records / self.wall_s, self.cpu_s / self.records * 1e6
        return f"{self.kind:<18}{self.records:>8,} records{rate:>10,.0f} rec/s{cpu_us:>8.0f} us of CPU a record"


def topology_of(kind: str, source: str, sink: str, concurrency: int) -> Topology:
    """The application of one kind."""

    def wait(value: str) -> str:
        time.sleep(SERVICE_S)
        return value

    async def await_response(value: str) -> str:
        await asyncio.sleep(SERVICE_S)
        return value

    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream(source, Consumed(STRING, STRING))
    if kind == "map_values":
        stream = stream.map_values(wait)
    elif kind == "map_values_async":
        stream = stream.map_values_async(await_response, concurrency=concurrency)
    else:
        stream = stream.map_values(lambda value: value)
    stream.to(sink, Produced(STRING, STRING))
    return builder.build()


def measure(bootstrap: str, folder: Path, kind: str, records: int, concurrency: int, guarantee: str) -> Measured:
    """Run one kind over so many records."""
    source, sink = f"{kind}-in", f"{kind}-out"
    counting.make_topics(bootstrap, {source: 1, sink: 1})
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        producer.produce(source, f"value-{number}".encode(), b"k")
    assert producer.flush(TIMEOUT_S) == 0
    config: dict[str, Any] = {
        "application.id": f"async-{kind}",
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder),
        "processing.guarantee": guarantee,
    }
    streams = KafkaStreams(topology_of(kind, source, sink, concurrency), config)
    with streams:
        streams.wait_until(State.RUNNING, TIMEOUT_S)
        wall, cpu = time.perf_counter(), time.process_time()
        with counting.reading(bootstrap, sink) as (consumer, _):
            seen = 0
            while seen < records:
                seen += sum(message.error() is None for message in consumer.consume(10_000, 0.05))
        return Measured(kind, records, time.perf_counter() - wall, time.process_time() - cpu)


def main(arguments: Sequence[str] | None = None) -> list[Measured]:
    """Measure every kind, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.streams_async", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--guarantee", default="at_least_once")
    given = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        path = Path(folder)
        with BrokerProcess(path / "broker", counting.BROKER) as broker:
            for kind in KINDS:
                records = max(1, given.records // SYNC_SHARE) if kind == "map_values" else given.records
                result = measure(broker.bootstrap, path / "state", kind, records, given.concurrency, given.guarantee)
                print(result, flush=True)
                results.append(result)
    return results


if __name__ == "__main__":
    main()
