"""The page of stream applications with a running one."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.console.history import ClusterHistory
from odradek.streams import KafkaStreams
from odradek.streams.metrics_page import serve_metrics
from tests.console.workspaces import GivenWorkspace, browser_of
from tests.streams import counting
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


def shows(keys: int, text: str) -> bool:
    """Whether the picture has the keys of the store, and no lag: of the input, and of the repartition topic twice."""
    return f"{keys} keys</tspan>" in text and text.count("lag 0</tspan>") == 3


def test_the_page_follows_a_running_application(ours: BrokerProcess, name: str, tmp_path: Path) -> None:
    source, sink = f"{name}-in", f"{name}-out"
    counting.make_topics(ours.bootstrap, {source: 2, sink: 1})
    config = {
        "application.id": name,
        "bootstrap.servers": ours.bootstrap,
        "state.dir": str(tmp_path),
        "commit.interval.ms": 100,
        "metrics.recording.level": "DEBUG",
    }
    topology = counting.word_counts(source, sink, in_memory=True)
    with KafkaStreams(topology, config) as streams, serve_metrics(streams, "127.0.0.1", 0) as port:
        workspace, addresses = GivenWorkspace(ClusterHistory()), (f"http://127.0.0.1:{port}",)
        with browser_of(workspace, streams=addresses, interval_s=0.1) as client:
            eventually(lambda: client.get("/streams").text, lambda text: f">{name}</h2>" in text)
            for words, keys in ((["a", "b"] * 50, 2), (["c", "d", "e"], 5)):
                counting.write_words(ours.bootstrap, words, source)
                text = eventually(lambda: client.get("/streams").text, functools.partial(shows, keys))
            streams.close()
            eventually(lambda: client.get("/streams").text, lambda text: "<dt>Threads alive</dt><dd>0</dd>" in text)
    assert re.search(rf"<title>topic: {name}-out</title>", text)

    assert text.count("Sub-topology ") == 2
    assert 'hx-get="/streams" hx-trigger="every 2s"' in text
