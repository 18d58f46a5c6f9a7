"""The benchmarks run Apache Kafka as its users run it; these tests, which time nothing, use faster settings."""

from __future__ import annotations

import pytest

from tests.benchmarks import (
    clusters,
    contestants,
    coordinator_loads,
    crowd_cases,
    crowd_loads,
    log_cases,
    perf_tools,
    rebalances,
    streams_applications,
)
from tests.jvm.kafka import SMALL_JVM
from tests.jvm.process import QUICK_START, QUIET

AT_ONCE = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
"""Otherwise Kafka deletes no files before it is half a minute old, and Odradek checks for them every ten seconds."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """JVMs that start quickly, brokers that delete files at once, and loads of a size for tests."""
    for module in (contestants, clusters, log_cases):
        monkeypatch.setattr(module, "STOCK_JVM", SMALL_JVM)
    for module in (perf_tools, coordinator_loads):
        monkeypatch.setattr(module, "JAVA_OPTIONS", ("-Duser.language=en", "-Duser.country=US", *QUICK_START, *QUIET))
    for module in (rebalances, streams_applications):
        monkeypatch.setattr(module, "JAVA_OPTIONS", QUICK_START)
    monkeypatch.setattr(contestants, "PROPERTIES", {**contestants.PROPERTIES, **AT_ONCE})
    monkeypatch.setattr(
        clusters,
        "_CLUSTER_PROPERTIES",
        {**clusters._CLUSTER_PROPERTIES, **AT_ONCE, "zookeeper.session.timeout.ms": "2000"},
    )
    monkeypatch.setattr(crowd_loads, "IDLE_CONSUMERS", 100)
    monkeypatch.setattr(crowd_cases, "RATES_MB", (10, 5))
