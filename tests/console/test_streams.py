"""The page of stream applications without a cluster: what is read from their pages, what is refused, escaping."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from odradek.cli import main
from odradek.console.streams_monitor import ApplicationSample, StreamsMonitor
from odradek.console.streams_pages import LARGEST_PICTURE, application_page
from odradek.metrics_source import PageError, address_of, read_page
from odradek.streams import LONG, STRING, Consumed, Grouped, Produced, StreamsBuilder, TopologyTestDriver
from odradek.streams.metrics_page import StreamsCollector
from odradek.streams.topology_view.document import ApplicationDocument, read_document
from odradek.streams.topology_view.measurements import measurements_of
from odradek.streams.topology_view.model import NodeView, SubtopologyView, TopologyView, view_of
from tests.console.served_pages import served
from tests.console.workspaces import GivenWorkspace, browser_of
from tests.support.eventually import eventually

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">"\'&'
EVIL_SOURCE = NodeView(EVIL, "source", (EVIL,), (EVIL,), ("b",))
EVIL_PART = SubtopologyView(0, False, (EVIL_SOURCE, NodeView("b", "sink", (EVIL,), (), ())))
EVIL_DOCUMENT = ApplicationDocument(EVIL, TopologyView((EVIL_PART,), (), frozenset()))
ALIVE = "kafka_streams_stream_metrics_alive_stream_threads 2.0\n"


def counts() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("text.in", Consumed(STRING, STRING)).flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped(STRING, STRING, "words"))
    grouped.count("counts").to_stream().to("out", Produced(STRING, LONG))
    return builder


def test_a_page_shows_the_topology_with_throughput_lag_and_sizes() -> None:
    topology = counts().build()
    pages: dict[str, bytes | str] = {"/topology": ApplicationDocument("counting", view_of(topology)).text()}
    registry = CollectorRegistry()
    with served(pages) as address, TopologyTestDriver(topology, {"metrics.recording.level": "DEBUG"}) as driver:
        registry.register(StreamsCollector(driver.metrics))
        monitor = StreamsMonitor([address], 60)
        lines = driver.create_input_topic("text.in", STRING, STRING)
        for line in ("spool thread", "spool star"):
            lines.pipe_input("k", line)
            lag = 'kafka_consumer_consumer_fetch_manager_metrics_records_lag{topic="text_in",partition="1"} 1200\n'
            pages["/metrics"] = generate_latest(registry).decode() + ALIVE + lag
            monitor.read(address)
    [state] = monitor.states()
    page = application_page(state, "-0")
    assert (page.title, page.error, page.threads, page.lag, page.detailed) == ("counting", None, 2, 1200, True)
    assert page.rate is not None
    assert page.rate > 0
    rows = {row.name: row for row in page.nodes}
    assert list(rows) == list(topology.nodes)
    assert (rows["KSTREAM-SOURCE-0000000000"].lag, rows["words"].kind, rows["words"].subtopology) == (
        "1,200",
        "processor",
        "0",
    )
    assert all(row.rate != "-" and row.time != "-" for row in page.nodes)
    assert [(row.name, row.keys, row.changelog) for row in page.stores] == [("counts", "3", "yes")]
    assert [(row.topic, row.partitions) for row in page.lags] == [("text_in", "1:1200")]
    drawn = ElementTree.fromstring(page.svg)
    texts = ["".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "counts  3 keys" in texts
    assert "text.in  lag 1,200" in texts
    assert any(each.startswith("words  ") and "/s, " in each for each in texts)


def test_the_policy_of_the_console_allows_the_picture_and_everything_in_it_is_escaped() -> None:
    lag = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
    measured = f'{lag}{{topic={json.dumps(EVIL)},partition="0"}} 1\n'
    pages = {"/topology": EVIL_DOCUMENT.text(), "/metrics": ALIVE + measured}
    with served(pages) as address:
        client = browser_of(GivenWorkspace(), streams=(address,))
        with client:
            text = eventually(lambda: client.get("/streams").text, lambda text: "not answered yet" not in text)
    assert '<a href="/streams" aria-current="page">Streams</a>' in text
    assert text.count("alert(1)") >= 5
    for forbidden in ("<script>", "<img src=x", "style=", 'onerror="'):
        assert forbidden not in text
    assert 'id="arrow-0"' in text


def test_a_console_without_applications_has_no_such_page() -> None:
    client = browser_of(GivenWorkspace())
    assert client.get("/streams").status_code == 404
    assert "/streams" not in client.get("/timeline").text


def test_after_an_error_the_last_data_stays() -> None:
    pages: dict[str, bytes | str] = {"/topology": EVIL_DOCUMENT.text(), "/metrics": ALIVE}
    with served(pages) as address:
        monitor = StreamsMonitor([address], 60)
        monitor.read(address)
        assert monitor.states()[0].error is None
        for broken in ("no metrics", 'kafka_streams_stream_topic_metrics_records_consumed_total{a="b"} 1\n'):
            pages["/metrics"] = broken
            monitor.read(address)
            [state] = monitor.states()
            assert (state.document, state.error is None) == (EVIL_DOCUMENT, False)
    monitor.read(address)
    [state] = monitor.states()
    assert "refused" in (state.error or "")
    assert state.measured is not None
    assert state.taken_s is not None


def test_an_application_without_a_topology_has_tables() -> None:
    node = 'kafka_streams_stream_processor_node_metrics_process_total{task_id="0_0",processor_node_id="n"} 5\n'
    with served({"/metrics": ALIVE + node}) as address:
        monitor = StreamsMonitor([address], 60)
        monitor.read(address)
    page = application_page(monitor.states()[0], "")
    assert (page.error, page.svg, page.title, [row.name for row in page.nodes]) == (None, "", address, ["n"])


def test_a_topology_that_takes_long_to_draw_is_not_drawn() -> None:
    names = [f"n{number}" for number in range(LARGEST_PICTURE)]
    nodes = [NodeView(name, "processor", (), (), (after,)) for name, after in itertools.pairwise(names)]
    view = TopologyView((SubtopologyView(0, False, tuple(nodes)),), (), frozenset())
    page = application_page(ApplicationSample("a", 1.0, ApplicationDocument("a", view), measurements_of(ALIVE)), "")
    assert (page.svg, page.too_large, len(page.nodes)) == ("", True, len(nodes))


def test_no_other_address_is_requested_and_no_endless_page_is_read() -> None:
    pages: dict[str, bytes | str] = {"/large": b"x" * 5000}
    with served({"/metrics": "secret"}) as other, served(pages) as address:
        pages["/metrics"] = f"->{other}/metrics"
        with pytest.raises(PageError, match="302"):
            read_page(f"{address}/metrics")
        with pytest.raises(PageError, match=r"more than 4,000 bytes"):
            read_page(f"{address}/large", largest=4000)
        assert len(read_page(f"{address}/large", largest=5000)) == 5000
    with pytest.raises(PageError, match="no address of HTTP"):
        read_page("file:///etc/hostname")


def test_a_page_that_arrives_byte_by_byte_is_given_up() -> None:
    """Each part is there before the timeout of one read."""
    given_up = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as client:
            client.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while not given_up.wait(0.01):
                    client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        with pytest.raises(PageError, match=r"not complete after 0\.2 s"):
            read_page(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", timeout_s=0.2)
        given_up.set()
        thread.join()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("127.0.0.1:9404", "http://127.0.0.1:9404"),
        ("http://127.0.0.1:9404/metrics", "http://127.0.0.1:9404"),
        ("https://[::1]:9404/", "https://[::1]:9404"),
        ("http://proxy.example/shop/metrics", "http://proxy.example/shop"),
    ],
)
def test_the_address_of_an_application(given: str, address: str) -> None:
    assert address_of(given) == address


@pytest.mark.parametrize("given", ["", "file:///etc/passwd", "http://", "http://a:b@c", "http://a?b", "http://a:x"])
def test_other_addresses_are_refused_at_the_start(given: str) -> None:
    ended = CliRunner().invoke(main, ["console", "--streams", given])
    assert ended.exit_code == 2
    assert "--streams" in ended.output


def changed(**fields: Any) -> str:
    """A document whose first node has other fields."""
    data = json.loads(EVIL_DOCUMENT.text())
    data["topology"]["subtopologies"][0]["nodes"][0] |= fields
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"application_id": 1, "topology": {}}',
        "[" * 100_000,
        changed(name=["x"]),
        changed(name="b"),
        changed(kind="script"),
        changed(topics="text"),
        changed(successors=["absent"]),
        changed(name="n", successors=["n"]),
        changed(name="n", successors=[{}]),
    ],
)
def test_another_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no document of a topology|Expecting"):
        read_document(text)


def test_a_document_is_what_was_written() -> None:
    for document in (EVIL_DOCUMENT, ApplicationDocument("a", view_of(counts().build()))):
        assert read_document(document.text()) == document
