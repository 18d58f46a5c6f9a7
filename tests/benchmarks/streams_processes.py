"""One application in 1, 2 and 4 processes of `odradek streams run`: records and CPU seconds.

    python -m tests.benchmarks.streams_processes [--records N] [--processes 1,2,4] [--kinds stateless,wordcount]

The records are in a topic of eight partitions before an application starts. Time and CPU count from the moment at which
all of its processes are running until the last record is processed; what was processed before does not count. Every
process has one thread. The broker is one Odradek on the same machine, and its CPU seconds have a column of their own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.ready_process import OWN_COMMAND
from odradek.streams.supervisor.status_table import rows_of
from odradek.streams.topology import Topology
from tests.benchmarks.streams_load import records
from tests.benchmarks.streams_topologies import INPUT, OUTPUT, Kind, build
from tests.benchmarks.usage import cpu_seconds
from tests.jvm.process import BackgroundProcess
from tests.streams import counting
from tests.support.eventually import eventually

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 8
VALUE_BYTES: Final = 84
TIMEOUT_S: Final = 600.0


class Measured(NamedTuple):
    """One run. `records` were processed in `seconds`."""

    records: int
    seconds: float
    cpu_s: float
    broker_cpu_s: float
    load: float
    """The load average of the last minute at the end of the run: that of other programs, too."""


def topology() -> Topology:
    """The measured application, in a worker process."""
    return build(cast(Kind, os.environ["KIND"]), INPUT, os.environ["OUTPUT"])


def write_input(bootstrap: str, count: int) -> None:
    """Write the records, keys spread over the partitions."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "partitioner": "murmur2_random",
        }
    )
    for number, (key, value, timestamp) in enumerate(records(count, VALUE_BYTES)):
        producer.produce(INPUT, value, key, timestamp=timestamp)
        if number % 10_000 == 0:
            while len(producer) > 500_000:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def processed(url: str) -> int:
    """Records that all processes have processed."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return int(sum(row.processed for row in rows_of(response.read().decode())))


def measure(broker: BrokerProcess, kind: Kind, processes: int, count: int, folder: Path) -> Measured:
    """Run an application of this many processes over the whole input."""
    application_id = f"{kind}-{processes}"
    output = f"{OUTPUT}-{application_id}"
    counting.make_topics(broker.bootstrap, {output: PARTITIONS})
    os.environ.update(KIND=kind, OUTPUT=output)
    properties = {
        "application.id": application_id,
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder / application_id),
        "topic.retention.ms": "-1",
    }
    command = [*OWN_COMMAND, "streams", "run", "tests.benchmarks.streams_processes:topology", f"--app-dir={ROOT}"]
    options = [f"--processes={processes}", "--threads=1", "--metrics=127.0.0.1:0", "--log-level=warning"]
    sets = [f"--set={name}={value}" for name, value in properties.items()]
    with BackgroundProcess([*command, *options, *sets]) as application:
        url = application.stdout.wait_for(" ready: ", TIMEOUT_S).split()[-1]
        began = time.perf_counter(), cpu_seconds(application.pid), cpu_seconds(broker.pid)
        before = processed(url)
        eventually(lambda: processed(url), lambda done: done >= count, timeout_s=TIMEOUT_S)
        ended = time.perf_counter(), cpu_seconds(application.pid), cpu_seconds(broker.pid)
        assert processed(url) == count, "a record was processed twice"
        assert application.stop(TIMEOUT_S) == 0, application.stderr.lines()[-20:]
    seconds, cpu_s, broker_cpu_s = (after - at_first for after, at_first in zip(ended, began, strict=True))
    return Measured(count - before, seconds, cpu_s, broker_cpu_s, os.getloadavg()[0])


def row(kind: str, processes: int, found: Measured) -> str:
    """The row of a table."""
    millions = found.records / 1e6
    return (
        f"| {kind} | {processes} | {found.records / found.seconds:,.0f} | {found.cpu_s / millions:.1f} "
        f"| {found.broker_cpu_s / millions:.1f} | {found.records:,} | {found.load:.1f} |"
    )


def main(arguments: Sequence[str]) -> int:
    """Measure and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000, metavar="N")
    options.add_argument("--processes", default="1,2,4", metavar="N,…")
    options.add_argument("--kinds", default="stateless,wordcount", metavar="KIND,…")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name) / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {INPUT: PARTITIONS})
        write_input(broker.bootstrap, chosen.records)
        print(f"{os.cpu_count()} cores, {PARTITIONS} partitions, {VALUE_BYTES}-byte values\n")
        print("| application | processes | records a second | CPU s a million | broker's | records | load |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for kind in chosen.kinds.split(","):
            for processes in map(int, chosen.processes.split(",")):
                found = measure(broker, kind, processes, chosen.records, Path(name))
                if not found.records:
                    raise SystemExit("all records were processed before all processes were running: more --records")
                print(row(kind, processes, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
