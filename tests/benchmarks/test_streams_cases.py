"""The benchmark of stream applications: its own arithmetic, and that Odradek's and Java's applications complete tiny
cases with the expected output. These tests time nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.serdes import BYTES, STRING
from tests.benchmarks import streams_load, streams_processes, streams_report
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.contestants import contestant
from tests.benchmarks.streams_cases import JAVA, OURS, OWN, STREAMS_CASES, pick
from tests.benchmarks.streams_report import StreamsResults
from tests.benchmarks.streams_rounds import StreamsCourse, summed_up
from tests.benchmarks.streams_topologies import COUNTS, INPUT, KINDS, OUTPUT, TABLE, Kind, build
from tests.streams import counting

CASES = {case.name: case for case in STREAMS_CASES}
STATELESS, WORDCOUNT = CASES["streams-stateless"], CASES["streams-wordcount"]
COUNT, BYTES_EACH = 300, 84


def test_pick_returns_unknown_names() -> None:
    assert pick([]) == (list(STREAMS_CASES), [])
    assert pick(["latency", "streams-wordcount"]) == ([WORDCOUNT], ["latency"])


def test_the_slower_libraries_get_the_first_of_the_same_records() -> None:
    assert [STATELESS.records_for(name) for name in STATELESS.contestants] == [
        600_000,
        600_000,
        600_000,
        60_000,
        12_000,
    ]
    assert list(streams_load.records(5, 84)) == list(streams_load.records(9, 84))[:5]
    assert {len(value) for _, value, _ in streams_load.records(100, 1_000)} == {1_000}


@pytest.mark.parametrize("kind", KINDS)
def test_odradeks_topologies_compute_the_expected_output(kind: Kind) -> None:
    with TopologyTestDriver(build(kind)) as driver:
        if kind == "join":
            rows = driver.create_input_topic(TABLE, STRING, STRING)
            for key, value, timestamp in streams_load.rows():
                rows.pipe_input(key.decode(), value.decode(), timestamp=timestamp)
        records = driver.create_input_topic(INPUT, STRING, STRING)
        for key, value, timestamp in streams_load.records(COUNT, BYTES_EACH):
            records.pipe_input(key.decode(), value.decode(), timestamp=timestamp)
        written = driver.create_output_topic(OUTPUT, BYTES, BYTES).read_key_values_to_list()
    expected = streams_load.expected(kind, COUNT, BYTES_EACH)
    if kind not in COUNTS:
        assert Counter({b"": len(written)}) == expected
    else:
        assert summed_up({key: value for key, value in written if key and value}) == expected


def test_the_report_has_a_row_for_each_contestant_and_the_goals() -> None:
    measured = {"records_per_s": 100_000.0, "cpu_s_per_million": 10.0, "resident_mb": 90.0, "seconds": 1.0}
    slower = {**measured, "records_per_s": 25_000.0, "cpu_s_per_million": 20.0}
    samples = [
        ClusterSample(WORDCOUNT.name, OURS, 1, measured),
        ClusterSample(WORDCOUNT.name, OWN, 1, {**measured, "cpu_s_per_million": 5.0}),
        ClusterSample(WORDCOUNT.name, JAVA, 1, slower),
        ClusterSample(WORDCOUNT.name, "quix", 1, slower),
    ]
    lines = streams_report.table(StreamsResults("odradek", [WORDCOUNT], samples, [], ["x: java"])).splitlines()
    assert lines[4].split() == [OURS, "100,000", "4.00", "100,000", "2.00", "10.0", "90"]
    assert lines[5].split() == [OWN, "100,000", "4.00", "200,000", "4.00", "5.0", "90"]
    assert lines[6].split() == [JAVA, "25,000", "1.00", "50,000", "1.00", "20.0", "90"]
    assert [(line.split()[-2:]) for line in lines if line.startswith(WORDCOUNT.name)][1:] == [
        ["100,000", "pass"],
        ["2.0", "pass"],
        ["2.0", "MISS"],
        ["measured", "-"],
        ["4.0", "pass"],
        ["4.0", "MISS"],
    ]
    assert lines[-1].endswith("x: java")


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.usefixtures("small")
def test_odradek_with_both_clients_and_java_complete_tiny_cases(tmp_path: Path) -> None:
    cases = [
        replace(WORDCOUNT, records=2_000),
        replace(CASES["streams-windowed-eos"], records=2_000),
        replace(CASES["streams-restore"], records=2_000),
    ]
    broker = contestant("odradek", tmp_path)
    try:
        broker.start()
        unhurried = {"budget_s": 1800, "longest_s": 300}
        course = StreamsCourse(broker, tmp_path, (OURS, OWN, JAVA), lambda line: None, beside=None, **unhurried)
        try:
            course.run(cases, 1)
        finally:
            course.close()
    finally:
        broker.close()
    assert course.failures == []
    assert course.left_out == []
    assert [(each.case, each.contestant) for each in course.samples] == [
        (case.name, name) for case in cases for name in (OURS, OWN, JAVA)
    ]


@pytest.mark.slow
def test_an_application_of_two_processes_processes_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KIND", "OUTPUT"):
        monkeypatch.setenv(name, "")  # `measure` sets them
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {INPUT: streams_processes.PARTITIONS})
        streams_processes.write_input(broker.bootstrap, COUNT)
        found = streams_processes.measure(broker, "stateless", 2, COUNT, tmp_path)
        written = counting.read_all(broker.bootstrap, f"{OUTPUT}-stateless-2")
    assert 0 <= found.records <= COUNT
    assert len(written) == streams_load.expected("stateless", COUNT, streams_processes.VALUE_BYTES)[b""]
