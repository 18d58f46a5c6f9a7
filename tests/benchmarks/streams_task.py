"""The speed of a task of Odradek without a broker: records made beforehand go through it, and its output is counted.

    python -m tests.benchmarks.streams_task [--kinds stateless,wordcount,…] [--records N] [--bytes B] [--no-cache]
        [--commit-every N] [--repeat N] [--profile]

It prints records for a second of this process's own CPU, which is what a profile before and after a change compares;
the cost of a broker and its client is not in it. With --profile it lists the functions that take longest, too.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from odradek.streams.config import StreamsConfig
from odradek.streams.context import TaskContext
from odradek.streams.records import Headers, TaskId
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.task import Task
from odradek.streams.topology import make_store
from tests.benchmarks.streams_load import records, rows
from tests.benchmarks.streams_topologies import INPUT, KINDS, TABLE, Kind, build

BATCH = 1_000
CHUNK = 256
COMMIT_EVERY = 100_000
"""With exactly-once processing it is nearer to 10,000: a commit interval of 100 ms in place of 30 s."""


class Counting:
    """A collector that counts."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Count a record."""
        self.sent[topic] = self.sent.get(topic, 0) + 1

    def sender(self, context: TaskContext) -> Any:
        """The same for every task."""
        return self.send

    def add_writer(self, topic: str, node: str) -> None:
        """Not used."""

    def send_dead_letter(self, letter: Any) -> None:
        """Count a record."""
        self.send(letter.topic, letter.key, letter.value, None, letter.timestamp, letter.headers)

    def partitions_of(self, topic: str) -> int:
        """One."""
        return 1


def make_task(kind: Kind, folder: Path, cache_bytes: int, collector: Any) -> Task:
    """A task of the topology, its stores open under `folder`."""
    topology = build(kind)
    config = StreamsConfig(
        {"application.id": "bench", "bootstrap.servers": "nowhere:1", "statestore.cache.max.bytes": cache_bytes}
    )
    part = topology.subtopologies("bench")[0]
    context = TaskContext(
        TaskId(0, 0), collector, lambda: 0, config, ThreadCache(cache_bytes), store_dir=folder, handlers=config.handlers
    )
    stores = {}
    for name in part.stores:
        stores[name] = make_store(topology.stores[name], config)
        stores[name].init(context)
        if name in part.changelogs and name not in topology.source_changelogs:
            context.changelog(name, part.changelogs[name])
    task = Task(topology, part, context, stores, {})
    task.init()
    return task


def messages(topic: str, given: Sequence[tuple[bytes, bytes, int]]) -> list[Message]:
    """The records as a consumer returns them."""
    return [
        Message(topic=topic, partition=0, offset=offset, key=key, value=value, timestamp=(1, timestamp))
        for offset, (key, value, timestamp) in enumerate(given)
    ]


def run(task: Task, batches: Sequence[Sequence[Message]], commit_every: int = COMMIT_EVERY) -> None:
    """Process them as a stream thread does."""
    done = 0
    place = (INPUT, 0)
    for batch in batches:
        task.add(place, batch)
        while count := task.process(CHUNK) if len(task.partitions) == 1 else task.process_partition(place, CHUNK):
            done += count
            task.punctuations.run_stream_time()
            if done % commit_every < count:
                task.flush_caches()
                task.committable()
                task.committed()
    task.flush_caches()


def measure(kind: Kind, options: argparse.Namespace) -> None:
    """Run one kind, and print its best line."""
    count, value_bytes = options.records, options.bytes
    cache_bytes = 0 if options.no_cache else 10 * 1024 * 1024
    given = messages(INPUT, list(records(count, value_bytes)))
    batches = [given[at : at + BATCH] for at in range(0, count, BATCH)]
    seconds = []
    for _ in range(options.repeat):
        collector = Counting()
        seconds.append(_run_once(kind, batches, cache_bytes, collector, options.commit_every, options.profile))
    cpu_s, wall_s = map(min, zip(*seconds, strict=True))
    sent = ", ".join(f"{topic} {number:,}" for topic, number in collector.sent.items())
    print(f"{kind:<10} {count / cpu_s:>10,.0f} rec/CPU s  {count / wall_s:>10,.0f} rec/s   written: {sent}", flush=True)


def _run_once(
    kind: Kind,
    batches: Sequence[Sequence[Message]],
    cache_bytes: int,
    collector: Counting,
    commit_every: int,
    profile: bool,
) -> tuple[float, float]:
    """CPU seconds and seconds."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        task = make_task(kind, Path(folder), cache_bytes, collector)
        if kind == "join":
            task.add((TABLE, 0), messages(TABLE, list(rows())))
            task.process_partition((TABLE, 0), 1_000_000)
            task.flush_caches()
        profiler = cProfile.Profile() if profile else None
        gc.collect()
        before, began = time.process_time(), time.perf_counter()
        if profiler is not None:
            profiler.runcall(run, task, batches, commit_every)
        else:
            run(task, batches, commit_every)
        cpu_s, wall_s = time.process_time() - before, time.perf_counter() - began
        task.close()
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return cpu_s, wall_s


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.streams_task", description=__doc__)
    parser.add_argument("--kinds", default=",".join(kind for kind in KINDS if kind != "stores"))
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--commit-every", type=int, default=COMMIT_EVERY, help="records between two commits")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best is shown")
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    for kind in options.kinds.split(","):
        measure(kind, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
