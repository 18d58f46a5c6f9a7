"""Metrics pages belong to brokers: by what a page names, or by its address."""

from __future__ import annotations

from odradek.console.metrics_pages import metrics_pages
from odradek.console.request_metrics import broker_metrics
from odradek.console.sample import BrokerNode

LATENCY = """# TYPE kafka_network_requestmetrics_totaltimems gauge
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 4.5
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 7
"""
NODES = [BrokerNode(1, "127.0.0.1", 9092, None), BrokerNode(2, "a", 1, None), BrokerNode(3, "b", 1, None)]


def test_a_page_has_the_name_of_its_broker() -> None:
    ours = broker_metrics(LATENCY + '# TYPE odradek_broker_info gauge\nodradek_broker_info{broker_id="3"} 1.0\n')
    kafka = broker_metrics('kafka_server_app_info_starttimems{id="2",} 1.7e+12\n')
    assert (ours.broker_id, kafka.broker_id) == (3, 2)
    pages = {"http://b:9404/metrics": ours, "http://x/metrics": broker_metrics(LATENCY), "http://a/metrics": kafka}
    pages["http://localhost:1/metrics"] = broker_metrics(LATENCY + 'odradek_broker_info{broker_id="nine"} 1\n')
    named = metrics_pages(pages, NODES)
    assert [(each.title, each.address) for each in named] == [
        ("Broker 1", "http://localhost:1/metrics"),
        ("Broker 2", "http://a/metrics"),
        ("Broker 3", "http://b:9404/metrics"),
        ("http://x/metrics", "http://x/metrics"),
    ]
    assert [(each.request, each.count, each.p99_ms) for each in named[2].busiest(5)] == [("Produce", 7, 4.5)]
    shared = metrics_pages({"http://a/metrics": broker_metrics(LATENCY)}, [*NODES, BrokerNode(4, "a", 2, None)])
    assert shared[0].broker_id is None, "two brokers are on this host"
