"""Which worker runs which tests of `make test`: a group is one worker's (pytest-xdist's `xdist_group`), longest first.

A file is a group, so that fixtures of a module are made once. Files that use the same oracle are one group: a JVM with
Kafka Streams in the test process, Apache Kafka 3.9.2, a ZooKeeper or a Spark session lives as long as the worker that
started it. A file with a mark `pytest.mark.xdist_group` of its own keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
LONGEST: Final = (
    "compatibility/test_mirror.py",
    "release/test_wheel.py",
    "cluster/test_faults.py",
    "machines/test_replication.py",
    "compatibility/test_exactly_once.py",
    "cluster/test_cluster_process.py",
    "cluster/test_transactions_faults.py",
    "compatibility/test_directories.py",
    "compatibility/test_clients_walks.py",
    "console/test_browser.py",
    "streams/test_joins_tables.py",
    "storage/test_compaction_oracle.py",
    "compatibility/test_consumer_protocol.py",
    "release/test_streams_pages.py",
    "compatibility/test_directories_compaction.py",
    "compatibility/test_groups.py",
    "simulation/test_simulation.py",
    "comparison/test_comparison.py",
    "comparison/test_clusters.py",
    "compatibility/test_mixed_replication.py",
    "compatibility/test_console_tools.py",
    "storage/test_compaction_power_loss.py",
    "streams/test_chaos_takeover.py",
    "cluster/test_compose.py",
    "cluster/test_compose_secure.py",
    "broker/test_transactions_oracle_newest.py",
    "benchmarks/test_streams_cases.py",
    "hostile/test_hostile.py",
    "benchmarks/test_request_cases.py",
    "benchmarks/test_rebalances.py",
    "broker/test_metrics.py",
    "security/test_security_page.py",
    "security/test_migration.py",
    "security/test_witnesses_tools.py",
    "compatibility/test_oldest_tools.py",
    "compatibility/test_backup.py",
    "storage/test_power_loss.py",
    "benchmarks/test_crowd_cases.py",
    "compatibility/test_transactions_tools.py",
    "streams/test_java_interop.py",
    "benchmarks/test_clusters.py",
    "registry/test_server_against_zookeeper.py",
    "compatibility/test_kafka_takes_part.py",
    "compatibility/test_clients_failover.py",
    "registry/test_server_stock.py",
    "simulation/test_compaction.py",
    "storage/test_dump_log.py",
    "benchmarks/test_log_cases.py",
    "benchmarks/test_latency_cases.py",
    "mutants/test_mutants.py",
    "streams/test_types.py",
    "test_tour.py",
    "protocol/test_fuzz.py",
    "compatibility/test_streams_application.py",
    "streams/test_chaos.py",
    "streams/test_membership.py",
    "streams/test_runtime_faults.py",
    "streams/test_runtime.py",
    "streams/test_reset.py",
    "streams/test_membership_connection.py",
    "streams/test_examples_running.py",
    "streams/test_exactly_once.py",
    "streams/test_standby.py",
    "streams/test_runtime_life.py",
    "streams/test_queries_live.py",
)
"""The files that take longest come first: where several run at a time, the run should not end with one of them. Of
files that are one group the first counts.
"""
ORACLES: Final = {
    "spark": "Spark",
    "java": "Kafka Streams",
    "zookeeper": "ZooKeeper",
    "ensemble": "ZooKeeper",
    "kafka": "Apache Kafka",
    "authorized": "Apache Kafka with an authorizer",
}
"""The fixtures of an oracle, and the group of the files that use them. Where a file has two, the first is the more
expensive. A fixture of this name that a file has for itself is not of the session and does not count, nor is a
parameter of a test.
"""
_PLACES: Final = {HERE / name: place for place, name in enumerate(LONGEST)}


def arrange(items: list[pytest.Item], root: Path = HERE) -> None:
    """Sort the tests of `root` (Spark, then the longest files, then all others) and mark each with its group."""
    items.sort(key=lambda item: _place(item.path))
    for path, found in groupby(items, key=lambda item: item.path):
        tests = list(found)
        if not any(test.get_closest_marker("xdist_group") for test in tests):
            group = pytest.mark.xdist_group(_group(path.relative_to(root), tests))
            for test in tests:
                test.add_marker(group)


def _place(path: Path) -> int:
    return -1 if path.is_relative_to(HERE / "spark_jobs") else _PLACES.get(path, len(_PLACES))


def _group(path: Path, tests: Sequence[pytest.Item]) -> str:
    oracle = next((group for name, group in ORACLES.items() if any(_shares(test, name) for test in tests)), None)
    return oracle or path.as_posix()


def _shares(test: pytest.Item, fixture: str) -> bool:
    """Whether a test uses this fixture, maybe through others, and its module neither defines it nor parametrizes the
    test with values of this name.
    """
    if fixture in getattr(getattr(test, "callspec", None), "params", ()):
        return False
    definitions = test._fixtureinfo.name2fixturedefs.get(fixture)  # type: ignore[attr-defined]
    return bool(definitions) and not definitions[-1].baseid.startswith(test.nodeid.partition("::")[0])
