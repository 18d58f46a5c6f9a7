"""The benchmark's own arithmetic: what it parses from the tools, from /proc and from logs, and how it compares. These
tests time nothing; the output of the tools is from runs against Apache Kafka 3.9.2.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import coordinator_loads, logs, perf_tools, report, usage
from tests.benchmarks.__main__ import parse
from tests.benchmarks.cases import CASES, TLS_CASES, TOOL_START_S, Case, choose
from tests.benchmarks.contestants import contestant
from tests.benchmarks.floor import FIRST_CAPACITY, Connection, Logs
from tests.benchmarks.rounds import Failure, Progress, Sample

PRODUCER = """\
63572 records sent, 12711.9 records/sec (12.41 MB/sec), 557.3 ms avg latency, 1655.0 ms max latency.
300000 records sent, 30540.568055 records/sec (29.82 MB/sec), 511.33 ms avg latency, 1655.00 ms max latency, \
504 ms 50th, 729 ms 95th, 756 ms 99th, 779 ms 99.9th.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-21 04:58:01:112, 2026-11-21 04:58:05:120, 97.6563, 24.3653, 100000, 24950.0998, 3210, 798, 122.3762, 125313.2832
"""
LATENCY = """\
0\t27.3
1000\t0.61
Avg latency: 0.5000 ms

Percentiles: 50th = 0, 99th = 2, 99.9th = 9
"""


def sample(contestant: str, number: int, mib_per_s: float = 50.0, cpu: float = 4.0, case: str = "produce-1k") -> Sample:
    return Sample(case, contestant, number, mib_per_s, 1e4, 5.0, 4.0, 9.0, 2.0, cpu, 60.0, 61.0)


def results(samples: list[Sample], cases: str = "produce-1k") -> report.Results:
    return report.Results(choose(cases.split(",")), samples, [], {"kafka": 4.0, "odradek": 0.25, "floor": 0.2})


class TestTools:
    def test_the_producers_last_summary_counts(self) -> None:
        assert perf_tools.read_producer(PRODUCER) == (300_000, 30540.568055, 29.82, 511.33, 504.0, 756.0)

    def test_the_consumers_rates_leave_out_the_join(self) -> None:
        assert perf_tools.read_consumer(CONSUMER) == (100_000, 125313.2832, 122.3762, None, None, None)

    def test_end_to_end_rate_is_the_inverse_of_the_latency(self) -> None:
        case = choose(["latency"])[0].scaled(0.5)
        outcome = perf_tools.read_latency(LATENCY, case)
        assert outcome.records == case.records
        assert outcome.records_per_s == 2000
        assert (outcome.average_ms, outcome.p50_ms, outcome.p99_ms) == (0.5, 0, 2)

    @pytest.mark.parametrize("printed", ["", PRODUCER.splitlines()[0], CONSUMER.splitlines()[0], "Avg latency: 1 ms"])
    def test_a_missing_summary_is_an_error(self, printed: str) -> None:
        with pytest.raises(perf_tools.UnreadableOutputError):
            perf_tools.read_producer(printed)
        with pytest.raises(perf_tools.UnreadableOutputError):
            perf_tools.read_consumer(printed)
        with pytest.raises(perf_tools.UnreadableOutputError):
            perf_tools.read_latency(printed, CASES[-1])

    def test_a_load_on_a_coordinator_prints_its_summary(self) -> None:
        case = choose(["transactions"])[0]
        outcome = coordinator_loads.read_load("200000 8.0 3.5 3.25 9.0\n", case)
        assert outcome == (200_000, 25_000.0, 25_000 * 100 / 1024 / 1024, 3.5, 3.25, 9.0)
        with pytest.raises(perf_tools.UnreadableOutputError):
            coordinator_loads.read_load("", case)

    def test_rebalances_are_timed_one_by_one(self) -> None:
        outcome = coordinator_loads.summed_up(choose(["rebalances"])[0], 600, 0.3, [80.0, 100.0, 120.0])
        assert outcome == (600, 2000.0, 2000 * 100 / 1024 / 1024, 100.0, 100.0, 120.0)

    @pytest.mark.slow
    def test_text_lines_have_the_size_of_the_records(self, tmp_path: Path) -> None:
        perf_tools.write_text_file(tmp_path / "events.txt", 1024)
        lines = (tmp_path / "events.txt").read_text().splitlines()
        assert {len(line) for line in lines} == {1024}
        assert len(set(lines)) == len(lines)
        assert set(json.loads(lines[0])) > {"ts", "trace", "customer", "text"}


class TestCases:
    def test_names_are_unique_and_choose_finds_each(self) -> None:
        assert [choose([case.name])[0] for case in CASES] == list(CASES)
        assert choose([]) == list(CASES)
        assert [choose([case.name])[0] for case in TLS_CASES] == list(TLS_CASES)
        with pytest.raises(ValueError, match="no case 'produce-2k'; cases are produce-1k, "):
            choose(["produce-2k"])

    def test_the_cpu_goal_is_stricter_for_1_kb(self) -> None:
        assert {case.cpu_goal for case in CASES if case.record_bytes == 1024} == {0.35}
        assert {case.cpu_goal for case in CASES if case.record_bytes != 1024} == {0.5}
        assert {case.cpu_goal for case in TLS_CASES} == {0.6}

    @given(st.sampled_from(CASES), st.floats(0.0001, 10))
    def test_scaling_changes_the_number_of_records_only(self, case: Case, factor: float) -> None:
        scaled = case.scaled(factor)
        assert scaled.records == max(1_000, round(case.records * factor))
        assert scaled.expected_s >= TOOL_START_S
        assert replace(scaled, records=case.records, expected_s=case.expected_s) == case

    def test_a_log_holds_a_marker_for_each_transaction_and_no_records_of_a_group(self) -> None:
        case = choose(["transactions"])[0]
        assert replace(case, records=1000).stored_records == 1010
        assert replace(case, records=1001).stored_records == 1012
        assert [each.stored_records for each in choose(["offset-commits", "rebalances"])] == [0, 0]
        assert {each.stored_records == each.records for each in CASES[:9]} == {True}

    def test_options(self) -> None:
        quick = parse(["--quick", "--cases", "latency,consume-1k", "--only", "odradek"])
        assert (quick.cases, quick.only) == (["latency", "consume-1k"], ["odradek"])
        assert (quick.rounds, quick.records_scale) == (1, 0.1)
        assert parse(["--profile", "latency"]).only == ["odradek"]
        assert parse([]).only == ["kafka", "odradek", "floor"]


class TestComparison:
    def test_ratios_pair_the_runs_of_a_round(self) -> None:
        found = results(
            [
                *(sample("kafka", 1, 50.0), sample("kafka", 2, 100.0), sample("kafka", 3, 80.0)),
                *(sample("odradek", 1, 100.0), sample("odradek", 2, 100.0), sample("odradek", 3, 120.0)),
                sample("odradek", 4, 900.0),  # no rival to compare with
            ]
        )
        assert found.ratio("produce-1k", "kafka", "mib_per_s") == (1.5, 1.0, 2.0)
        assert found.ratio("produce-1k", "floor", "mib_per_s") is None

    def test_goals_are_met_missed_or_not_measured(self) -> None:
        found = results([sample("kafka", 1, 50.0, 10.0), sample("odradek", 1, 50.0, 4.0)])
        assert [(goal.text, goal.met) for goal in report.goals(found)] == [
            ("throughput to Kafka's >= 1.00", True),
            ("CPU to Kafka's <= 0.35", False),
            ("CPU to the floor's <= 1.40", None),
            ("ready in 0.3 s", True),
            ("resident at most 80 MB", True),
        ]

    def test_the_table_shows_all_that_was_measured_and_all_that_failed(self) -> None:
        found = results([sample("kafka", 1, 51.25), sample("odradek", 1, 72.5)], "produce-1k,latency")
        failed = replace(found, failures=[Failure("latency", "odradek", 1, "TimeoutError: too late")])
        printed = report.table(failed)
        for text in (
            "51.2",
            "72.5",
            "produce 1 KB",
            "odradek 0.25 s",
            "FAILED latency, round 1, odradek: TimeoutError",
        ):
            assert text in printed

    @pytest.mark.slow
    def test_json_and_picture_are_written(self, tmp_path: Path) -> None:
        found = results([sample(name, 1) for name in ("kafka", "odradek", "floor")])
        report.write_json(found, tmp_path / "results.json")
        content = json.loads((tmp_path / "results.json").read_text())
        assert [one["contestant"] for one in content["samples"]] == ["kafka", "odradek", "floor"]
        assert {goal["met"] for goal in content["goals"]} == {True, False}
        report.draw(found, tmp_path / "results.png")
        assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")

    def test_progress_adapts_to_the_pace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        printed: list[str] = []
        progress = Progress(40, printed.append)
        progress.next("first", 10)
        now[0] = 20  # it took twice as long as expected
        progress.next("second", 10)
        assert printed == ["[   0 s gone, about   40 s left] first", "[  20 s gone, about   60 s left] second"]


class TestUsage:
    def test_cpu_time_and_memory_include_children(self) -> None:
        burn = "import time\nwhile time.process_time() < 0.1: pass\n"
        parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\ninput()"
        with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert usage.cpu_seconds(process.pid) >= 0.1
            resident, peak = usage.memory(process.pid)
            assert 1_000_000 < resident <= peak
            assert usage.age_s(process.pid) >= 0.09
            assert usage.memory(os.getpid()).resident >= resident + 1_000_000
            process.communicate(b"\n")

    def test_a_process_that_has_ended(self) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            process.wait()
        with pytest.raises(ProcessLookupError):
            usage.cpu_seconds(process.pid)


def batch(base_offset: int, count: int, payload: bytes = b"x" * 40) -> bytes:
    checked = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base_offset, 9 + len(checked), 0, 2, crc32c(checked)) + checked


class TestHonesty:
    def write(self, folder: Path, *batches: bytes) -> Path:
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
        return folder / f"{0:020d}.log"

    def test_a_log_that_holds_the_sent_records(self, tmp_path: Path) -> None:
        self.write(tmp_path / "t-0", batch(0, 3), batch(3, 2))
        (tmp_path / "t-0" / f"{5:020d}.log").write_bytes(batch(5, 1))
        self.write(tmp_path / "t-1")
        assert logs.check_topic(tmp_path, "t", 6, 120) == (6, 3, 303)

    @pytest.mark.parametrize(
        "content",
        [
            batch(0, 3) + batch(4, 2),  # a gap
            batch(0, 3) + batch(3, 2)[:-1],  # torn
            batch(0, 3) + batch(3, 2)[:-1] + b"y",  # damaged
            batch(0, 3) + bytes(70),  # preallocated, never written
        ],
    )
    def test_a_log_that_lacks_sent_records(self, tmp_path: Path, content: bytes) -> None:
        self.write(tmp_path / "t-0", content)
        with pytest.raises(logs.DishonestLogError):
            logs.read_topic(tmp_path, "t")

    def test_too_few_records_or_bytes(self, tmp_path: Path) -> None:
        self.write(tmp_path / "t-0", batch(0, 3))
        with pytest.raises(logs.DishonestLogError, match="3 records in 101 bytes, expected 4 in at least 0"):
            logs.check_topic(tmp_path, "t", 4, 0)
        with pytest.raises(logs.DishonestLogError, match="expected 3 in at least 102"):
            logs.check_topic(tmp_path, "t", 3, 102)


class Transport(asyncio.Transport):
    """Keeps the floor's responses."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


def produce_request(correlation_id: int, batches: list[bytes], acks: int = 1) -> bytes:
    header = struct.pack(">hhih4s", 0, 8, correlation_id, 4, b"perf")
    partitions = b"".join(struct.pack(">ii", index, len(data)) + data for index, data in enumerate(batches))
    body = struct.pack(">hhiih1si", -1, acks, 1000, 1, 1, b"t", len(batches)) + partitions
    return struct.pack(">i", len(header) + len(body)) + header + body


def answers(written: bytes) -> list[bytes]:
    frames = []
    while written:
        end = 4 + struct.unpack_from(">i", written)[0]
        frames.append(written[4:end])
        written = written[end:]
    return frames


def feed(connection: Connection, data: bytes, chunk_sizes: list[int]) -> None:
    sizes = itertools.cycle(chunk_sizes)
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), next(sizes), len(data))
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


class TestFloor:
    @given(st.lists(st.integers(1, 500_000), min_size=1, max_size=5))
    def test_requests_cut_anywhere(self, chunk_sizes: list[int]) -> None:
        if max(chunk_sizes) < 1000:
            chunk_sizes = [*chunk_sizes, 100_000]
        payloads = [b"x" * 40, b"y" * (FIRST_CAPACITY * 2), b"z" * (FIRST_CAPACITY - 200), b"x", b"y" * 90_000]
        stream = b"".join(
            produce_request(number, [batch(777, 2, payload), batch(777, 1)]) for number, payload in enumerate(payloads)
        )
        transport = Transport()
        with tempfile.TemporaryDirectory() as folder:
            connection = Connection(Logs(Path(folder), 2), 9092)
            connection.connection_made(transport)
            feed(connection, stream, chunk_sizes)
            assert logs.check_topic(Path(folder), "t", 15, sum(map(len, payloads))).batches == 10
        replies = answers(bytes(transport.written))
        assert [struct.unpack_from(">i", reply)[0] for reply in replies] == [0, 1, 2, 3, 4]
        first = 4 + 4 + 3 + 4  # correlation id, topics, the name, partitions
        assert [struct.unpack_from(">ihq", reply, first) for reply in replies] == [(0, 0, 2 * n) for n in range(5)]

    def test_a_damaged_batch_is_rejected(self, tmp_path: Path) -> None:
        connection = Connection(Logs(tmp_path, 1), 9092)
        connection.connection_made(Transport())
        with pytest.raises(ValueError, match="not a sound batch"):
            feed(connection, produce_request(1, [batch(0, 2)[:-1] + b"?"]), [1000])

    @pytest.mark.jvm
    def test_the_stock_producer_fills_it(self, tmp_path: Path) -> None:
        case = choose(["produce-1k-all"])[0].scaled(0.001)
        floor = contestant("floor", tmp_path / "floor")
        try:
            floor.make_topic("t", 3)
            outcome = perf_tools.produce(case, floor.bootstrap, "t", tmp_path / "no-text")
            assert outcome.records == case.records
            assert logs.check_topic(floor.data_dir, "t", case.records, case.payload_bytes).batches > 3
        finally:
            floor.close()
