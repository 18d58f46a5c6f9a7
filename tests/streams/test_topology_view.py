"""Drawing of topologies with measurements: from pages that real applications and drivers serve."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given, settings
from prometheus_client import CollectorRegistry, generate_latest

from odradek.streams import LONG, STRING, Consumed, Grouped, Produced, StreamsBuilder, Topology, TopologyTestDriver
from odradek.streams.metrics_page import StreamsCollector
from odradek.streams.picture import picture
from odradek.streams.topology_view import amounts
from odradek.streams.topology_view.annotations import notes_of
from odradek.streams.topology_view.measurements import Measurements, NodeMeasurement, measurements_of
from odradek.streams.topology_view.model import view_of
from odradek.streams.topology_view.tree import as_ascii, draw
from tests.streams.random_topologies import NODES, Node, write


def counts() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("text.in", Consumed(STRING, STRING)).flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped(STRING, STRING, "words"))
    grouped.count("counts").to_stream().to("out", Produced(STRING, LONG))
    builder.global_table("everywhere", Consumed(STRING, STRING), "all")
    return builder.build()


TREE = """\
Sub-topology 0
text.in
└─ KSTREAM-SOURCE-0000000000
   └─ KSTREAM-FLATMAPVALUES-0000000001
      └─ words
         └─ words-repartition-filter
            └─ words-repartition-sink → words-repartition

Sub-topology 1
words-repartition
└─ words-repartition-source
   └─ KSTREAM-AGGREGATE-0000000003 [counts]
      └─ KTABLE-TOSTREAM-0000000007
         └─ KSTREAM-SINK-0000000008 → out

Sub-topology 2 (global, makes no tasks)
everywhere
└─ KSTREAM-SOURCE-0000000009
   └─ KTABLE-SOURCE-0000000010 [all]

STORE   KIND     CHANGELOG  SUB-TOPOLOGY
counts  rocksdb  yes        1
all     rocksdb  no         2"""


def test_a_topology_as_a_tree() -> None:
    assert draw(view_of(counts())) == TREE
    assert as_ascii(TREE).isascii()


@given(NODES)
@settings(max_examples=20)
def test_a_tree_has_every_node_once_and_every_edge(nodes: list[Node]) -> None:
    topology = Topology()
    write(topology, nodes, [f"node-{number}" for number in range(len(nodes) + 1)])
    lines = draw(view_of(topology)).partition("\n\nSTORE ")[0].splitlines()
    found: list[tuple[str, str]] = []
    above: list[tuple[int, str]] = []
    drawn = []
    for line in lines:
        match = re.match(r"([ │]*)[└├]─ (\S+)(.*)", line)
        if match is None:
            above = []
            continue
        above = [each for each in above if each[0] < len(match[1])]
        found += [(above[-1][1], match[2])] if above else []
        above.append((len(match[1]), match[2]))
        drawn += [] if match[3] == " ↑" else [match[2]]
    edges = [(parent, name) for name, node in topology.nodes.items() for parent in getattr(node, "parents", ())]
    assert sorted(drawn) == sorted(topology.nodes)
    # An edge below a node that is drawn elsewhere is drawn there alone.
    assert sorted(found) == sorted(edges)


def page(driver: TopologyTestDriver) -> str:
    registry = CollectorRegistry()
    registry.register(StreamsCollector(driver.metrics))
    return generate_latest(registry).decode()


def driven(**config: Any) -> list[Measurements]:
    """Measurements after one line of two words, and after two."""
    with TopologyTestDriver(counts(), {name.replace("_", "."): value for name, value in config.items()}) as driver:
        lines = driver.create_input_topic("text.in", STRING, STRING)
        found = []
        for line in ("spool thread", "spool star"):
            lines.pipe_input("k", line)
            found.append(measurements_of(page(driver)))
    found[1].measure_rates(found[0], 2.0)
    return found


def test_all_nodes_are_measured_at_the_level_debug() -> None:
    before, measured = driven(metrics_recording_level="DEBUG")
    assert measured.detailed
    rates = {name: each.rate for name, each in measured.nodes.items()}
    assert rates == {
        "KSTREAM-SOURCE-0000000000": 0.5,
        "KSTREAM-FLATMAPVALUES-0000000001": 0.5,
        "words": 1.0,
        "words-repartition-filter": 1.0,
        "words-repartition-sink": 1.0,
        "words-repartition-source": 1.0,
        "KSTREAM-AGGREGATE-0000000003": 1.0,
        "KTABLE-TOSTREAM-0000000007": 1.0,
        "KSTREAM-SINK-0000000008": 1.0,
    }
    assert all(each.latency_ns is not None and each.latency_ns > 0 for each in measured.nodes.values())
    assert (before.stores["counts"].keys, measured.stores["counts"].keys) == (2, 3)
    drawn = draw(view_of(counts()), measured)
    lines = {line.split()[1]: line.split() for line in drawn.splitlines() if "─ " in line}
    assert lines["words-repartition-filter"][2] == "1.0"
    assert lines["words-repartition-filter"][4] in ("ns", "µs", "ms")
    assert [line.split() for line in drawn.splitlines() if line.startswith("counts")] == [
        ["counts", "rocksdb", "yes", "1", "3", "-", "-"]
    ]
    assert "DEBUG" not in drawn


def test_sources_are_measured_at_the_level_info() -> None:
    _, measured = driven()
    assert {name: (each.records, each.rate) for name, each in measured.nodes.items()} == {
        "KSTREAM-SOURCE-0000000000": (2, 0.5),
        "words-repartition-source": (4, 1.0),
    }
    assert "metrics.recording.level=DEBUG" in draw(view_of(counts()), measured)


LAG = """\
kafka_streams_stream_metrics_alive_stream_threads 1.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="a",partition="0",topic="text_in"} 4.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="b",partition="1",topic="text_in"} 1200.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="b",partition="0",topic="app-words-repartition"} 7.0
kafka_streams_stream_state_metrics_estimate_num_keys{process="0",rocksdb_state_id="counts",task_id="1_0"} 10.0
kafka_streams_stream_state_metrics_estimate_num_keys{process="1",rocksdb_state_id="counts",task_id="1_1"} 20.0
kafka_streams_stream_state_metrics_total_sst_files_size{process="1",rocksdb_state_id="counts",task_id="1_1"} 2048.0
"""


def test_lag_and_sizes_are_sums_over_all_processes() -> None:
    measured = measurements_of(LAG)
    view = view_of(counts())
    lags = {node.name: measured.lag_of(node, view) for node in view.nodes()}
    assert (lags["KSTREAM-SOURCE-0000000000"], lags["words-repartition-source"]) == (1204, 7)
    assert lags["KSTREAM-SOURCE-0000000009"] is None
    store = measured.stores["counts"]
    assert (store.keys, store.is_estimate, store.disk_bytes, store.tasks) == (30, True, 2048, 2)
    text = draw(view, measured)
    assert re.search(r"KSTREAM-SOURCE-0000000000 +- +- +1,204\n", text)
    assert re.search(r"counts +rocksdb +yes +1 +~30 +2.0 KiB +-\n", text)
    assert re.search(r"text_in +1,204 +0:4 1:1200\n", text)


def test_the_data_is_json() -> None:
    view, measured = view_of(counts()), measurements_of(LAG)
    data = json.loads(json.dumps({"topology": view.as_json(), "measurements": measured.as_json()}))
    assert [part["id"] for part in data["topology"]["subtopologies"]] == [0, 1, 2]
    assert data["topology"]["stores"][0]["name"] == "counts"
    assert data["measurements"]["lag"]["text_in"] == {"0": 4.0, "1": 1200.0}


def test_a_picture_has_the_measurements() -> None:
    view, measured = view_of(counts()), measurements_of(LAG)
    measured.nodes["words-repartition-filter"] = NodeMeasurement(10, 2.5, 1_500)
    drawn = picture(view, notes_of(view, measured))
    texts = [
        "".join(each.itertext()) for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "words-repartition-filter  2.5/s, 1.5 µs" in texts
    assert "text.in  lag 1,204" in texts
    assert "counts  ~30 keys, 2.0 KiB" in texts
    assert "out" in texts


def test_tasks_that_moved_do_not_count_for_rates() -> None:
    text = (
        'kafka_streams_stream_processor_node_metrics_process_total{task_id="0_0",thread_id="%s",'
        'processor_node_id="n"} %d\n'
    )
    before = measurements_of(text % ("a", 10) + text % ("b", 90))
    after = measurements_of(text % ("a", 16) + text % ("b", 3) + text % ("c", 1_000))
    after.measure_rates(before, 2.0)
    assert after.nodes["n"].rate == 3.0


def test_another_page_is_rejected() -> None:
    with pytest.raises(ValueError, match="no metrics of a stream application"):
        measurements_of("process_cpu_seconds_total 1.0\n")


def test_amounts() -> None:
    assert [amounts.size(each) for each in (None, 0, 1023, 1024, 15 * 1024, 3 * 1024**2, 2 * 1024**4)] == [
        "-",
        "0 B",
        "1023 B",
        "1.0 KiB",
        "15 KiB",
        "3.0 MiB",
        "2.0 TiB",
    ]
    assert [amounts.duration(each) for each in (None, 850, 1_500, 20_000_000, 2_500_000_000)] == [
        "-",
        "850 ns",
        "1.5 µs",
        "20 ms",
        "2.5 s",
    ]
    assert [amounts.rate(each) for each in (None, 0, 0.25, 12_345.6)] == ["-", "0", "0.2", "12,346"]
