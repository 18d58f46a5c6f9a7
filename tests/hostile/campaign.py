"""`python -m tests hostile`: expensive requests and misbehaving clients beside a well-behaved client, as a table.

    python -m tests hostile                        64 KB and 1 MB, the lowest and the highest version of each API
    python -m tests hostile --sizes 20000000 --apis Metadata,Produce --shapes smallest
    python -m tests hostile --versions all --minutes 60
    python -m tests hostile --connections 50 --apis Metadata
    python -m tests hostile --clients              the clients of clients.py instead: slow, silent, without reading, …
    python -m tests hostile --clients churn,half-open --seconds 30
    python -m tests hostile --survey FILE          the costliest requests of every API, with their outcomes in a file;
                                                   the same command continues a survey whose --minutes are over
    python -m tests hostile --survey FILE --repeat OTHER   the costliest requests of 1 MB in another survey, one for
                                                   each API, alone and from 50 connections
    python -m tests hostile --table OURS KAFKAS    the table of two such files
    python -m tests hostile --summary FILE         a table of the sizes in such a file
    python -m tests hostile --stretches            with another column: for how long the event loop served no other
                                                   connection at a stretch, at most
    python -m tests hostile --existing             requests for 5,000 partitions that exist, with the longest stretches
    python -m tests hostile --existing offset-commit,topics --partitions 10000
    python -m tests hostile --kafka                the same with Apache Kafka 3.9.2

A broker that an attack has stopped, or that needs more than --timeout for a request, is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.ready_process import OWN_COMMAND
from tests.hostile.attack import Outcome, Target, attack, prepare, versions
from tests.hostile.clients import CLIENTS
from tests.hostile.clients import prepare as prepare_clients
from tests.hostile.existing import SCENARIOS, measure
from tests.hostile.misbehavior import HEADING as HEADING_OF_CLIENTS
from tests.hostile.misbehavior import client_row, misbehave
from tests.hostile.requests import SHAPES, Hostile, requests
from tests.hostile.stretches import MEASURED, Stretch, Stretches
from tests.hostile.survey import NOT_SENT, read, repeat, summary, survey, table

SIZES: Final = (64_000, 1_000_000)
WORST_ROWS: Final = 40
WIDTHS: Final = (10, 16, 8, 9, 9, 9, 7)
COLUMNS: Final = ("bytes", "answer", "s", "p99 ms", "max ms", "cpu ms", "MB")
HEADING: Final = f"{'request':<71}" + "".join(f"{name:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True))
HEADING_OF_STRETCHES: Final = f"{'loop ms':>9}{'lasted':>9}"


def main(arguments: Sequence[str]) -> int:
    """Run the campaign; the status is 1 if the broker did not survive it."""
    options = _parser().parse_args(arguments)
    if options.table:
        print(*table(*map(read, options.table)), sep="\n")
        return 0
    if options.summary:
        print(*summary(read(options.summary)), sep="\n")
        return 0
    if options.survey:
        return run_survey(options)
    if options.existing is not None:
        return run_existing(options)
    return run_clients(options) if options.clients is not None else run_requests(options)


def run_existing(options: argparse.Namespace) -> int:
    """Send requests for partitions and groups that exist; the status is 0."""
    print(f"{'step':<50}{'s':>9}{'p99 ms':>9}{'max ms':>9}{'cpu ms':>9}{HEADING_OF_STRETCHES}")
    for name in options.existing:
        for step in measure(name, options.partitions, options.logs):
            took = step.latencies
            numbers = took.p99_ms, took.longest_ms, took.cpu_ms, step.stretch.ms, step.stretch.wall_ms
            print(f"{step.name:<50}{step.took_s:>9.2f}" + "".join(f"{each:>9.1f}" for each in numbers), flush=True)
    return 0


def run_clients(options: argparse.Namespace) -> int:
    """Run misbehaving clients, one kind after the other; the status is 1 if the broker did not survive one."""
    failures = 0
    print(HEADING_OF_CLIENTS)
    with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as folder:
        target = _Restarted(Path(folder), kafka=options.kafka)
        try:
            prepare_clients(target.running.port)
            for name in options.clients:
                try:
                    print(client_row(misbehave(target.running, name, options.seconds)), flush=True)
                except (OSError, IndexError, RuntimeError) as error:
                    failures += 1
                    print(f"{name}: the broker does not answer: {error!r}", flush=True)
                    target.restart()
                    prepare_clients(target.running.port)
        finally:
            target.close()
    return 1 if failures else 0


def run_requests(options: argparse.Namespace) -> int:
    """Send expensive requests; the status is 1 if the broker did not survive one."""
    deadline_s = time.monotonic() + options.minutes * 60
    outcomes: list[Outcome] = []
    failures: list[str] = []
    print(HEADING + HEADING_OF_STRETCHES * options.stretches)
    with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as folder:
        target = _Restarted(Path(folder), kafka=options.kafka, is_measured=options.stretches)
        try:
            for request in chosen(target, options):
                if time.monotonic() > deadline_s:
                    print("the time is over")
                    break
                try:
                    target.longest_stretch()
                    outcome = attack(target.running, request, options.timeout, options.connections)
                except (OSError, IndexError) as error:
                    failures.append(f"{request.name}: {error!r}")
                    print(f"{request.name}: the broker does not answer: {error!r}", flush=True)
                    target.restart()
                    continue
                outcomes.append(outcome)
                if outcome.latencies.cpu_ms >= options.above or outcome.answer.startswith("none"):
                    print(row(outcome) + _cell(target.longest_stretch(), options), flush=True)
                if outcome.answer.startswith("none"):
                    target.restart()
        finally:
            target.close()
    print(f"\n{len(outcomes)} requests, {len(failures)} that the broker did not survive; the worst:\n{HEADING}")
    for outcome in sorted(outcomes, key=lambda each: -each.latencies.cpu_ms)[:WORST_ROWS]:
        print(row(outcome))
    return 1 if failures else 0


def run_survey(options: argparse.Namespace) -> int:
    """Run a survey; the status is 1 if it is not complete."""
    with tempfile.TemporaryDirectory(prefix="odradek-hostile-") as folder:
        target = _Restarted(Path(folder), kafka=options.kafka, is_measured=options.stretches)
        try:
            names = options.apis.lower().split(",") if options.apis else ()
            deadline_s = time.monotonic() + options.minutes * 60
            if options.repeat:
                complete = repeat(target, read(options.repeat), options.survey, deadline_s)
            else:
                complete = survey(target, options.survey, deadline_s, names)
        finally:
            target.close()
    print("complete" if complete else "the time is over")
    return 0 if complete else 1


def _cell(stretch: Stretch, options: argparse.Namespace) -> str:
    return f"{stretch.ms:>9.1f}{stretch.wall_ms:>9.1f}" if options.stretches else ""


def row(outcome: Outcome) -> str:
    """A line of the table."""
    latencies = outcome.latencies
    times = (latencies.p99_ms, latencies.longest_ms, latencies.cpu_ms)
    cells = (
        str(len(outcome.request.frame)),
        outcome.answer,
        f"{outcome.answered_s:.2f}",
        *(f"{each:.0f}" for each in times),
        str(outcome.peak_bytes >> 20),
    )
    return f"{outcome.request.name[:70]:<71}" + "".join(f"{cell:>{n}}" for cell, n in zip(cells, WIDTHS, strict=True))


def chosen(target: _Restarted, options: argparse.Namespace) -> Iterator[Hostile]:
    """The requests of a campaign."""
    served = versions(target.running)
    names = {m.APIS[key].name.lower(): key for key in served}
    asked = options.apis.lower().split(",") if options.apis else names
    keys = sorted(names[each] for each in asked if each in names)
    for size in options.sizes:
        for key in keys:
            if key in NOT_SENT:
                continue
            low, high = served[key]
            wanted = range(low, high + 1) if options.versions == "all" else sorted({low, high})
            for version in wanted:
                yield from requests(key, version, size, target.topic_id, options.shapes.split(","))


class _Restarted:
    """The broker under attack, which is started again after an attack that it did not survive."""

    def __init__(self, folder: Path, *, kafka: bool, is_measured: bool = False) -> None:
        """`is_measured`: Odradek's event loop measures its stretches."""
        self._folder = folder
        self._kafka = kafka
        self._is_measured = is_measured
        self._stretches: Stretches | None = None
        self._data = folder
        self._number = 0
        self._undo = contextlib.ExitStack()
        self.running: Target
        self.topic_id = bytes(16)
        self._start()

    def _start(self) -> None:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        if self._kafka:
            from tests.jvm.kafka import STOCK_JVM, running_kafka  # only here: it needs Java

            kafka = self._undo.enter_context(running_kafka(folder / "kafka", jvm=STOCK_JVM))
            self.running, self._data = kafka, kafka.data_dir
        else:
            environment = MEASURED if self._is_measured else None
            broker = BrokerProcess(folder, command=OWN_COMMAND, environment=environment)
            broker.start()
            self._stretches = Stretches(broker) if self._is_measured else None
            self._undo.callback(broker.kill)
            self.running, self._data = broker, broker.data_dir
        self.topic_id = prepare(self.running)
        self.longest_stretch()

    def longest_stretch(self) -> Stretch:
        """The longest stretch of the loop since the last call or the start; one of 0 ms where it is not measured."""
        return Stretch() if self._stretches is None else self._stretches.longest()

    @property
    def logs(self) -> int:
        """How many files and folders its directory has."""
        return len(os.listdir(self._data))

    def restart(self) -> None:
        """End the broker and start another one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the broker."""
        self._undo.close()


def _clients(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(CLIENTS):
        raise argparse.ArgumentTypeError(
            f"no clients of these names: {', '.join(unknown)}; known are {', '.join(CLIENTS)}"
        )
    return names


def _scenarios(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(SCENARIOS):
        raise argparse.ArgumentTypeError(
            f"no scenarios of these names: {', '.join(unknown)}; known are {', '.join(SCENARIOS)}"
        )
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=list(SIZES))
    parser.add_argument("--apis", default="", help="names, separated by commas; default: all")
    parser.add_argument("--shapes", default=",".join((*SHAPES, "tags")))
    parser.add_argument("--versions", choices=("ends", "all"), default="ends")
    parser.add_argument(
        "--clients", type=_clients, nargs="?", const=list(CLIENTS), help="misbehaving clients; default: all"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind of client")
    parser.add_argument(
        "--existing", type=_scenarios, nargs="?", const=list(SCENARIOS), help="scenarios of existing.py; default: all"
    )
    parser.add_argument("--partitions", type=int, default=5000, help="of the topic of these scenarios")
    parser.add_argument("--logs", type=Path, help="a folder for what the broker logs during each step of a scenario")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=1, help="that send each request at the same time")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one request")
    parser.add_argument("--above", type=float, default=20.0, help="print requests that take the broker this many ms")
    parser.add_argument("--survey", type=Path, help="a file of outcomes, which is created or continued")
    parser.add_argument("--repeat", type=Path, help="send the costliest requests in this file of another survey")
    parser.add_argument("--table", type=Path, nargs=2, help="files of surveys: of Odradek, of Apache Kafka")
    parser.add_argument("--summary", type=Path, help="a file of a survey")
    parser.add_argument("--stretches", action="store_true", help="measure the stretches of Odradek's event loop")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka 3.9.2 in place of Odradek")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
