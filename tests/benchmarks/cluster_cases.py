"""The cases of a cluster of three brokers: replicated loads, the death of a leader, many partitions at once.

Every case has several measures, and each of them is a ratio to Apache Kafka's. Only some have a goal; the others show
where the time went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from tests.benchmarks.cases import CASES, TOOL_START_S, Case, choose

Kind = Literal["replicated", "transactions", "failover", "create"]

REPLICAS = 3
LOAD_PARTITIONS = 6
WARMED_UP: Final[frozenset[Kind]] = frozenset({"replicated", "transactions"})
"""Loads whose first round is not counted."""
_LEAST_SIZE: dict[Kind, int] = {"replicated": 1_000, "transactions": 20, "create": 30}


class Measure(NamedTuple):
    """One number of a case: its key in a sample, its name in the report, and the ratio to Kafka's that is the goal."""

    key: str
    title: str
    digits: int
    least: float | None = None
    largest: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """One operation on a cluster.

    `size` is the number of records to write, of transactions of one record, of seconds to write before the leader is
    killed, or of partitions to create. At most `most_rounds` rounds of it run in the lifetime of one cluster.
    `expected_s` estimates the length of a round, for the progress lines only.
    """

    name: str
    title: str
    kind: Kind
    size: int
    measures: tuple[Measure, ...]
    expected_s: float
    most_rounds: int = 10

    def scaled(self, factor: float) -> ClusterCase:
        """The same with `factor` times the size, within limits; the time to detect a dead leader does not depend on the
        size.
        """
        if self.kind == "failover":
            return self
        size = max(_LEAST_SIZE[self.kind], round(self.size * factor))
        expected_s = TOOL_START_S + (self.expected_s - TOOL_START_S) * size / self.size
        return replace(self, size=size, expected_s=expected_s)

    @property
    def amount(self) -> str:
        """The size in words."""
        units: dict[Kind, str] = {
            "replicated": "records",
            "transactions": "transactions",
            "failover": "s before the kill",
            "create": "partitions",
        }
        return f"{self.size:,} {units[self.kind]}"

    @property
    def load(self) -> Case:
        """The properties of the producer, for a replicated load; acks=all and idempotence are the defaults."""
        if self.kind == "transactions":
            return Case(self.name, self.title, "transactions", self.size, 100, (), 0.5)
        producer = ("acks=all", "enable.idempotence=true")
        return Case(self.name, self.title, "produce", self.size, 1024, producer, 0.5, partitions=LOAD_PARTITIONS)


CLUSTER_CASES: tuple[ClusterCase, ...] = (
    ClusterCase(
        "replicated-1k",
        f"produce 1 KB, acks=all, 16 KB batches, {LOAD_PARTITIONS} partitions x {REPLICAS} replicas",
        "replicated",
        250_000,
        (
            Measure("mib_per_s", "MiB/s", 1, least=1.0),
            Measure("p99_ms", "p99 ms", 0),
            Measure("average_ms", "mean ms", 1),
            Measure("cpu_s_per_gb", "CPU s/GB, all brokers", 2, largest=0.5),
            Measure("resident_mb", "resident MB, all brokers", 0),
        ),
        expected_s=14,
    ),
    ClusterCase(
        "replicated-transactions",
        f"begin, send one record of 100 B, flush, commit; one partition x {REPLICAS} replicas",
        "transactions",
        600,
        (
            Measure("transactions_per_s", "transactions/s", 1, least=1.5),
            Measure("p50_ms", "p50 ms", 2),
            Measure("average_ms", "mean ms", 2),
            Measure("p99_ms", "p99 ms", 1),
            Measure("cpu_ms", "CPU ms a transaction, all brokers", 2),
        ),
        expected_s=20,
    ),
    ClusterCase(
        "failover",
        "acks=all, one record after the other; kill -9 to the leader",
        "failover",
        3,
        (
            Measure("gap_s", "s without acknowledgement", 3, largest=1.0),
            Measure("after_session_s", "of these after the session", 3),
            Measure("client_gap_s", "s of librdkafka (adds 0-2)", 3),
        ),
        expected_s=18,
    ),
    ClusterCase(
        "create-2000",
        f"one CreateTopics, {REPLICAS} replicas",
        "create",
        2_000,
        (
            Measure("led_s", "s to leaders at every broker", 2),
            Measure("placed_s", "s to every replica's folder", 2),
            Measure("cpu_s", "CPU s, all brokers", 2),
        ),
        expected_s=25,
        most_rounds=1,
    ),
)


def split(names: Sequence[str]) -> tuple[list[Case], list[ClusterCase]]:
    """The cases of these names, all if there are none: of one broker, and of a cluster.

    Raises ValueError for an unknown name.
    """
    if not names:
        return list(CASES), list(CLUSTER_CASES)
    known = {case.name: case for case in CLUSTER_CASES}
    alone = [name for name in names if name not in known]
    try:
        of_one_broker = choose(alone) if alone else []
    except ValueError as error:
        raise ValueError(f"{error}, {', '.join(known)}") from None
    return of_one_broker, [known[name] for name in names if name in known]
