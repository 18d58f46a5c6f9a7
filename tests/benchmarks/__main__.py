"""`make bench`: Odradek beside Apache Kafka 3.9.2 and the floor, on this machine, driven by the stock perf tools; first
one broker of each, then crowds of clients, the latency of each API, starts over full directories, a cluster of three;
and at the end stream applications, Odradek's beside Java's and others, over one broker, and Spark's jobs over both
brokers.

    python -m tests.benchmarks [--cases NAME,…] [--only NAME,…] [--rounds N] [--records-scale X] [--minutes M] [--quick]
        [--broker odradek|kafka] [--in-turn]
    python -m tests.benchmarks --profile CASE

The table goes to the terminal; results.json and results.png to build/bench/. The exit status is 0 if every run came
through, whether or not goals were met. Ctrl-C ends it early with a report of what there is. All traffic stays on
loopback, and nothing outlives the command.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, TypeVar

from tests.benchmarks import (
    cluster_report,
    clusters,
    crowd_cases,
    latency_cases,
    log_cases,
    report,
    request_cases,
    spark_cases,
    streams_applications,
    streams_cases,
    streams_report,
)
from tests.benchmarks.cases import Case
from tests.benchmarks.cluster_cases import ClusterCase, split
from tests.benchmarks.cluster_report import AnyCase, ClusterResults
from tests.benchmarks.cluster_rounds import ClusterCourse, ClusterSample
from tests.benchmarks.clusters import Cluster
from tests.benchmarks.contestants import Contestant, contestant
from tests.benchmarks.crowd_cases import CrowdCase, CrowdCourse
from tests.benchmarks.latency_cases import LatencyCourse, LatencyResults
from tests.benchmarks.log_cases import LogCase, LogCourse
from tests.benchmarks.request_cases import RequestCase, RequestCourse
from tests.benchmarks.rounds import Course, Failure, measure_start
from tests.benchmarks.spark_cases import SparkCase, SparkCourse
from tests.benchmarks.streams_cases import StreamsCase
from tests.benchmarks.streams_report import StreamsResults
from tests.benchmarks.streams_rounds import StreamsCourse
from tests.jvm.cache import FetchError
from tests.jvm.jars import classpath

OUTPUT = Path("build/bench")
CONTESTANTS = "kafka,odradek,floor"
ONLY = f"{CONTESTANTS}; of the streams-* cases {','.join(streams_cases.NAMES)}"
ROUNDS = 3
STARTS = 5
MINUTES = 25.0
STREAMS_MINUTES = 9.0
QUICK_STREAMS_MINUTES = 1.7
QUICK_SCALE = 0.1
C = TypeVar("C", bound=AnyCase, contravariant=True)
HEADINGS = {"crowds": "crowds of clients", "starts": "starts over full directories", "cluster": "three brokers"}
HEADINGS |= {"requests": "small requests", "spark": "Spark jobs"}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    deadline = time.monotonic() + options.minutes * 60
    try:
        of_streams, names = streams_cases.pick(options.cases)
        of_spark, names = spark_cases.pick(names) if names or not options.cases else ([], [])
        of_crowds, names = crowd_cases.pick(names) if names or not options.cases else ([], [])
        of_requests, names = request_cases.pick(names) if names or not options.cases else ([], [])
        of_logs, names = log_cases.pick(names) if names or not options.cases else ([], [])
        with_latencies = not options.cases or latency_cases.NAME in names
        names = [name for name in names if name != latency_cases.NAME]
        of_one_broker, of_a_cluster = split(names) if names or not options.cases else ([], [])
        OUTPUT.mkdir(parents=True, exist_ok=True)
        say(report.interpreter())
        classpath("3.9.2")  # fetched now, not in the middle of a measurement
        results = run([case.scaled(options.records_scale) for case in of_one_broker], options)
        options.minutes = (deadline - time.monotonic()) / 60
        crowds = run_crowds([case.scaled(options.records_scale) for case in of_crowds], options)
        options.minutes = (deadline - time.monotonic()) / 60
        requests = run_requests([case.scaled(options.records_scale) for case in of_requests], options)
        options.minutes = (deadline - time.monotonic()) / 60
        latencies = run_latencies(options) if with_latencies else LatencyResults([], [])
        options.minutes = (deadline - time.monotonic()) / 60
        starts = run_logs([case.scaled(options.records_scale) for case in of_logs], options)
        options.minutes = (deadline - time.monotonic()) / 60
        cluster = run_clusters([case.scaled(options.records_scale) for case in of_a_cluster], options)
        options.minutes = (deadline - time.monotonic()) / 60
        streams = run_streams([case.scaled(options.records_scale) for case in of_streams], options)
        options.minutes = (deadline - time.monotonic()) / 60
        spark = run_spark([case.scaled(options.records_scale) for case in of_spark], options)
    except (ValueError, FetchError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    others = {"crowds": crowds, "requests": requests, "starts": starts, "cluster": cluster, "spark": spark}
    show(results, others, streams, latencies, keep=not options.profile)
    failures = [*results.failures, *streams.failures, *latencies.failures]
    failures += [failure for each in others.values() for failure in each.failures]
    return 1 if failures else 0


def show(
    results: report.Results,
    others: Mapping[str, ClusterResults],
    streams: StreamsResults,
    latencies: LatencyResults,
    *,
    keep: bool,
) -> None:
    """Print what there is and, with `keep`, write it to files."""
    if results.cases:
        print(report.table(results))
    for name, found in others.items():
        if found.cases:
            print(cluster_report.table(found, HEADINGS[name]))
    if latencies.samples or latencies.failures:
        print(latency_cases.table(latencies))
    if streams.cases:
        print(streams_report.table(streams))
    if keep:
        written = [OUTPUT / "results.json"]
        parts = {name: cluster_report.as_json(found) for name, found in others.items()}
        parts["latencies"] = latency_cases.as_json(latencies)
        report.write_json(results, written[0], **parts, streams=streams_report.as_json(streams))
        if results.cases:
            written.append(OUTPUT / "results.png")
            report.draw(results, written[-1])
        print(f"\nwritten: {', '.join(map(str, written))}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with --quick and --profile worked into the others."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=_names, default=[], metavar="NAME,…", help="these cases (default: all)")
    parser.add_argument("--only", type=_names, default=_names(CONTESTANTS), metavar="NAME,…", help=ONLY)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="counted rounds (default: %(default)s)")
    parser.add_argument("--records-scale", type=float, default=1.0, metavar="X", help="times the size of each case")
    parser.add_argument(
        "--starts", type=int, default=STARTS, help="starts to take the median of (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="begin no round that would end later (default: %(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the size: to try things out")
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="clusters: all at once, in turn in each round, for a machine that is busy",
    )
    parser.add_argument("--profile", metavar="CASE", help="only Odradek, under py-spy: build/bench/CASE*.svg")
    parser.add_argument(
        "--broker", choices=("odradek", "kafka"), default="odradek", help="which one serves the streams-* cases"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.starts, options.records_scale = 1, 1, options.records_scale * QUICK_SCALE
    if options.profile:
        options.cases, options.only, options.rounds, options.starts = [options.profile], ["odradek"], 1, 1
    if options.rounds < 1 or options.starts < 1 or options.records_scale <= 0:
        parser.error("--rounds and --starts are at least 1, --records-scale is more than 0")
    return options


def run(cases: Sequence[Case], options: argparse.Namespace) -> report.Results:
    """Start the contestants, run the cases, end everything. Raises ValueError for an unknown contestant."""
    if not cases:
        return report.Results([], [], [], {})
    began = time.monotonic()
    profiler = find_py_spy() if options.profile else ""

    @contextmanager
    def profiled(one: Contestant) -> Iterator[None]:
        with recording(profiler, one.pid, OUTPUT / f"{options.profile}.svg"):
            yield

    contestants: list[Contestant] = []
    start_s: dict[str, float] = {}
    failures: list[Failure] = []
    with ExitStack() as stack:
        # On the disk of the working copy: the usual place for temporary files may be memory.
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT)).resolve()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in options.only:
            (folder / name).mkdir()
            one = contestant(name, folder / name, tls=any(case.tls for case in cases))
            stack.callback(end, one, failures)
            say(f"starting {name}, {options.starts} times")
            start_s[name] = measure_start(one, options.starts)
            contestants.append(one)
        budget_s = options.minutes * 60 - (time.monotonic() - began)
        course = Course(
            contestants, folder, say, budget_s=budget_s, beside=profiled if options.profile else nullcontext
        )
        try:
            course.run(cases, options.rounds)
        except KeyboardInterrupt:
            failures.append(Failure("all", "all", 0, "interrupted; shown is what was measured before"))
    return report.Results(cases, course.samples, [*course.failures, *failures], start_s)


def run_crowds(cases: Sequence[CrowdCase], options: argparse.Namespace) -> ClusterResults:
    """Set crowds of clients on both brokers."""
    return run_pairs(cases, CrowdCourse, crowd_cases.NAMES, options)


def run_requests(cases: Sequence[RequestCase], options: argparse.Namespace) -> ClusterResults:
    """Send small requests of each kind to both brokers."""
    return run_pairs(cases, RequestCourse, request_cases.NAMES, options)


def run_logs(cases: Sequence[LogCase], options: argparse.Namespace) -> ClusterResults:
    """Start both brokers over one full directory after the other."""
    return run_pairs(cases, LogCourse, log_cases.NAMES, options)


def run_spark(cases: Sequence[SparkCase], options: argparse.Namespace) -> ClusterResults:
    """Run Spark's jobs over both brokers."""
    return run_pairs(cases, SparkCourse, spark_cases.NAMES, options)


def run_latencies(options: argparse.Namespace) -> LatencyResults:
    """Time every API on both contestants."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT)).resolve()
    names = [name for name in options.only if name in latency_cases.NAMES]
    course = LatencyCourse(
        folder, names, options.rounds, say, budget_s=options.minutes * 60, scale=options.records_scale
    )
    try:
        course.run()
    except KeyboardInterrupt:
        course.failures.append(Failure("all", "all", 0, "interrupted; shown is what was measured before"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return LatencyResults(course.samples, course.failures)


class PairCourse(Protocol[C]):
    """Cases that both brokers run."""

    samples: list[ClusterSample]
    failures: list[Failure]

    def run(self, cases: Sequence[C]) -> None:
        """Run all cases; record each failure."""
        ...


def run_pairs(
    cases: Sequence[C], make: Callable[..., PairCourse[C]], contestants: Sequence[str], options: argparse.Namespace
) -> ClusterResults:
    """Run both brokers through the cases. The floor has no part in it, nor has a profiler."""
    if not cases:
        return ClusterResults([], [], [], {})
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT)).resolve()
    names = [name for name in options.only if name in contestants]
    course = make(folder, names, options.rounds, say, budget_s=options.minutes * 60)
    try:
        course.run(cases)
    except KeyboardInterrupt:
        course.failures.append(Failure("all", "all", 0, "interrupted; shown is what was measured before"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ClusterResults(cases, course.samples, course.failures, {})


def run_clusters(cases: Sequence[ClusterCase], options: argparse.Namespace) -> ClusterResults:
    """Run one cluster after the other through the cases. Contestants that only run alone do not take part."""
    names = [name for name in options.only if name in clusters.NAMES] if cases else []
    profiler = find_py_spy() if options.profile and cases else ""

    @contextmanager
    def profiled(cluster: Cluster) -> Iterator[None]:
        with ExitStack() as stack:
            for number, node in cluster.nodes.items():
                stack.enter_context(recording(profiler, node.pid, OUTPUT / f"{options.profile}-{number}.svg"))
            yield

    course = ClusterCourse(
        cases,
        options.rounds,
        say,
        expected_clusters=len(names),
        budget_s=options.minutes * 60,
        beside=profiled if profiler else nullcontext,
    )
    failures: list[Failure] = []
    for together in [names] if options.in_turn and names else [[name] for name in names]:
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT)).resolve()
        try:
            course.run_in_turn([Cluster(name, folder / name) for name in together])
        except KeyboardInterrupt:
            failures.append(Failure("all", "all", 0, "interrupted; shown is what was measured before"))
            break
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return ClusterResults(cases, course.samples, [*course.failures, *failures], course.start_s)


def end(one: Contestant, failures: list[Failure]) -> None:
    """End a contestant. A contestant that does not end well is a failure, but the results stay."""
    try:
        one.close()
    except Exception as error:
        failures.append(Failure("end", one.name, 0, f"{type(error).__name__}: {error}"))


def run_streams(cases: Sequence[StreamsCase], options: argparse.Namespace) -> StreamsResults:
    """Start one broker and run the applications over it. `--only` may name some of them."""
    if not cases:
        return StreamsResults(options.broker, [], [], [])
    streams_applications.fetch(streams_cases.NAMES, say)
    names = [name for name in options.only if name in streams_cases.NAMES]
    if options.only == _names(CONTESTANTS):
        names = list(streams_cases.NAMES)
    minutes = min(options.minutes, QUICK_STREAMS_MINUTES if options.quick else STREAMS_MINUTES)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT)).resolve()
    failures: list[Failure] = []

    def profiled(pid: int) -> AbstractContextManager[None]:
        return recording(find_py_spy(), pid, OUTPUT / f"{options.profile}.svg")

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        broker = contestant(options.broker, folder)
        stack.callback(end, broker, failures)
        broker.start()
        beside = profiled if options.profile else None
        course = StreamsCourse(broker, folder, names, say, budget_s=minutes * 60, beside=beside)
        stack.callback(course.close)
        try:
            course.run(cases, options.rounds)
        except KeyboardInterrupt:
            failures.append(Failure("all", "all", 0, "interrupted; shown is what was measured before"))
    return StreamsResults(options.broker, cases, course.samples, [*course.failures, *failures], course.left_out)


@contextmanager
def recording(profiler: str, pid: int, picture: Path) -> Iterator[None]:
    """Attach py-spy to the process while the context lasts and draw a flame graph to `picture`."""
    command = [profiler, "record", "--pid", str(pid), "--output", str(picture), "--rate", "200", "--native"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)  # py-spy stops sampling and draws
        _, complaints = process.communicate(timeout=60)
        if process.returncode == 0:
            say(f"    profile in {picture}")
        else:
            say(f"    py-spy failed: {complaints.decode(errors='replace').strip()}")


def find_py_spy() -> str:
    """The path of py-spy. Raises ValueError if it is not installed."""
    found = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if found is None:
        raise ValueError("--profile needs py-spy: pip install py-spy")
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    # On SIGTERM the command ends what it started and reports what it has, as after Ctrl-C.
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # kazoo warns of each connection that it closes itself
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
