"""Which worker runs which files of `make test`: files that share an oracle stay together, the longest come first.

An oracle lives as long as the worker that started it: a JVM with Kafka Streams in the test process, Apache Kafka 3.9.2,
a Spark session. pytest-xdist's `--dist loadfile` gives files to any free worker, so that each worker ends up with one
of each. Here all files that use the same one are a scope, and a scope belongs to one worker.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).parent
LONGEST = (
    *("cluster/test_faults.py", "machines/test_replication.py", "compatibility/test_exactly_once.py"),
    *("cluster/test_cluster_process.py", "cluster/test_transactions_faults.py", "compatibility/test_directories.py"),
    *("compatibility/test_clients_walks.py", "streams/test_joins_tables.py"),
    *("compatibility/test_consumer_protocol.py", "compatibility/test_directories_compaction.py"),
    *("compatibility/test_groups.py", "simulation/test_simulation.py", "comparison/test_comparison.py"),
    "comparison/test_clusters.py",
    *("compatibility/test_mixed_replication.py", "compatibility/test_console_tools.py"),
    *("storage/test_compaction_power_loss.py", "streams/test_chaos_takeover.py", "cluster/test_compose.py"),
    *("broker/test_transactions_oracle_newest.py", "benchmarks/test_streams_cases.py"),
    *("compatibility/test_backup.py", "storage/test_power_loss.py", "benchmarks/test_crowd_cases.py"),
    *("compatibility/test_transactions_tools.py", "streams/test_java_interop.py", "benchmarks/test_clusters.py"),
    *("registry/test_server_against_zookeeper.py", "compatibility/test_kafka_takes_part.py"),
    *("compatibility/test_clients_failover.py", "registry/test_server_stock.py", "simulation/test_compaction.py"),
    *(
        "storage/test_dump_log.py",
        "benchmarks/test_log_cases.py",
        "benchmarks/test_latency_cases.py",
        "mutants/test_mutants.py",
        "protocol/test_fuzz.py",
    ),
    *("compatibility/test_streams_application.py", "streams/test_chaos.py", "streams/test_membership.py"),
    *("streams/test_runtime_faults.py", "streams/test_runtime.py", "streams/test_reset.py"),
    *("streams/test_membership_connection.py", "streams/test_examples_running.py", "streams/test_exactly_once.py"),
    *("streams/test_standby.py", "streams/test_runtime_life.py", "streams/test_queries_live.py"),
)
"""The files that take longest come first: where several run at a time, the run should not end with one of them. Of
files that are one scope the first counts.
"""

_ORACLES = (
    ("Kafka Streams", re.compile(r"^from tests\.streams\.oracle\b|\bjava: ", re.MULTILINE)),
    ("ZooKeeper", re.compile(r"\bzookeeper: ZooKeeperServer\b|\bensemble: Ensemble\b")),
    ("Apache Kafka", re.compile(r"\bkafka: Kafka[,)]|getfixturevalue\(\"kafka\"\)")),
)
"""The text by which a file that uses an oracle is found. Where two apply, the first oracle is the more expensive."""
_OWN = re.compile(r"^def (kafka|zookeeper)\(", re.MULTILINE)
"""A file with a fixture of its own in place of the shared one."""


def place(path: Path) -> int:
    """The rank of a file: those that need Spark, the longest, the others behind all of them."""
    return -1 if path.is_relative_to(HERE / "spark_jobs") else _PLACES.get(path, len(_PLACES))


_PLACES = {HERE / name: place for place, name in enumerate(LONGEST)}


@cache
def scope_of(file: str) -> str:
    """The scope of a file (its path from the root of the project): an oracle, or the file itself."""
    if file.startswith("tests/spark_jobs/") or file == "tests/benchmarks/test_spark_cases.py":
        return "Spark"
    text = (HERE.parent / file).read_text()
    if not _OWN.search(text):
        for oracle, sign in _ORACLES:
            if sign.search(text):
                return oracle
    return file


class Together(LoadFileScheduling):
    """xdist's scheduling by files, with one scope for all files that share an oracle."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.split("::", 1)[0])
