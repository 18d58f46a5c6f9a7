"""The cases of the benchmark: those of the performance table in DESIGN.md, consuming, end-to-end latency, coordinators.

Loads on coordinators that write no records have a nominal record size: their MiB/s and CPU s/GB serve the ratios only.

Records and sizes are chosen so that one run takes about ten seconds on a two-core machine: long enough for the CPU
clock of /proc, which ticks every 10 ms, and for the client's JVM to be warm for most of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["produce", "consume", "latency", "transactions", "commits", "rebalances"]

# Since KIP-679 the producer's own defaults are acks=all and idempotence.
LEADER_ONLY = ("acks=1", "enable.idempotence=false")
BATCHES_64K = ("batch.size=65536", "linger.ms=5")
TOOL_START_S = 2.0  # a JVM, and a topic created and deleted; no case is shorter
LARGEST_CPU_RATIO = 0.5
LARGEST_CPU_RATIO_1K = 0.35
LARGEST_CPU_RATIO_TLS = 0.6
RECORDS_IN_A_TRANSACTION = 100
TLS_CIPHER = "TLS_AES_256_GCM_SHA384"


@dataclass(frozen=True, slots=True)
class Case:
    """One load. `producer` are producer properties; for consuming, those that fill the topic before.

    `cpu_goal` is the largest share of Kafka's CPU seconds for the same bytes. `text` sends generated log lines, which
    compress as real ones do, in place of the tool's random letters, which do not. `tls` is a load over TLS 1.3 with
    TLS_CIPHER. `expected_s` is a guess at the length
    of one run, for the progress lines only.
    """

    name: str
    title: str
    kind: Kind
    records: int
    record_bytes: int
    producer: tuple[str, ...]
    cpu_goal: float
    partitions: int = 1
    text: bool = False
    tls: bool = False
    expected_s: float = 10.0

    @property
    def payload_bytes(self) -> int:
        """Bytes of all record values, before compression."""
        return self.records * self.record_bytes

    @property
    def stored_records(self) -> int:
        """The number of records in the log of the topic after a run, with a marker for each transaction."""
        if self.kind == "transactions":
            return self.records - (-self.records // RECORDS_IN_A_TRANSACTION)
        return 0 if self.kind in ("commits", "rebalances") else self.records

    @property
    def stored_bytes(self) -> int:
        """The minimum number of bytes of its files."""
        return 0 if self.text or not self.stored_records else self.payload_bytes

    @property
    def measures_floor(self) -> bool:
        """Whether the floor takes part: it can only be written to."""
        return self.kind == "produce" and not self.tls

    def scaled(self, factor: float) -> Case:
        """The same load with `factor` times the records, at least 1,000 of them."""
        records = max(1_000, round(self.records * factor))
        expected_s = TOOL_START_S + (self.expected_s - TOOL_START_S) * records / self.records
        return replace(self, records=records, expected_s=expected_s)


CASES: tuple[Case, ...] = (
    Case(
        "produce-1k",
        "produce 1 KB, acks=1, 16 KB batches",
        "produce",
        500_000,
        1024,
        LEADER_ONLY,
        LARGEST_CPU_RATIO_1K,
    ),
    Case(
        "produce-1k-64k",
        "produce 1 KB, acks=1, 64 KB batches, linger 5",
        "produce",
        800_000,
        1024,
        (*LEADER_ONLY, *BATCHES_64K),
        LARGEST_CPU_RATIO_1K,
    ),
    Case(
        "produce-100b",
        "produce 100 B, acks=1, 16 KB batches",
        "produce",
        3_500_000,
        100,
        LEADER_ONLY,
        LARGEST_CPU_RATIO,
    ),
    Case(
        "produce-1k-lz4",
        "produce 1 KB, lz4, 64 KB batches, 6 partitions",
        "produce",
        700_000,
        1024,
        (*LEADER_ONLY, *BATCHES_64K, "compression.type=lz4"),
        LARGEST_CPU_RATIO_1K,
        partitions=6,
        text=True,
    ),
    Case(
        "produce-1k-all",
        "produce 1 KB, acks=all, idempotent",
        "produce",
        450_000,
        1024,
        ("acks=all", "enable.idempotence=true"),
        LARGEST_CPU_RATIO_1K,
    ),
    Case(
        "produce-single",
        "produce, one 100 B record a request",
        "produce",
        60_000,
        100,
        (*LEADER_ONLY, "batch.size=0"),
        LARGEST_CPU_RATIO,
    ),
    Case(
        "consume-1k",
        "consume 1 KB",
        "consume",
        1_000_000,
        1024,
        LEADER_ONLY,
        LARGEST_CPU_RATIO_1K,
        expected_s=7,
    ),
    Case(
        "consume-100b",
        "consume 100 B",
        "consume",
        6_000_000,
        100,
        LEADER_ONLY,
        LARGEST_CPU_RATIO,
        expected_s=8,
    ),
    Case(
        "latency",
        "end to end, one 100 B record at a time, acks=1",
        "latency",
        8_000,
        100,
        ("acks=1",),
        LARGEST_CPU_RATIO,
        expected_s=9,
    ),
    Case(
        "transactions",
        f"transactional produce, {RECORDS_IN_A_TRANSACTION} records of 100 B a transaction",
        "transactions",
        200_000,
        100,
        (),
        LARGEST_CPU_RATIO,
    ),
    Case(
        "offset-commits",
        "offset commits, 8 consumers, each one at a time",
        "commits",
        40_000,
        100,
        (),
        LARGEST_CPU_RATIO,
    ),
    Case(
        "rebalances",
        "a group of 200 members rebalancing (rec/s: joins; ms: a rebalance)",
        "rebalances",
        6_000,
        100,
        (),
        LARGEST_CPU_RATIO,
    ),
)


TLS_CASES: tuple[Case, ...] = (
    Case(
        "tls-produce-1k",
        "produce 1 KB over TLS, acks=1, 16 KB batches",
        "produce",
        500_000,
        1024,
        LEADER_ONLY,
        LARGEST_CPU_RATIO_TLS,
        tls=True,
    ),
    Case(
        "tls-consume-1k",
        "consume 1 KB over TLS",
        "consume",
        1_000_000,
        1024,
        LEADER_ONLY,
        LARGEST_CPU_RATIO_TLS,
        tls=True,
    ),
)
"""Run by name only: a broker with a TLS listener holds more memory, which would change the other cases."""


def choose(names: list[str]) -> list[Case]:
    """The cases of these names, CASES if there are no names. Raises ValueError for an unknown name."""
    known = {case.name: case for case in (*CASES, *TLS_CASES)}
    for name in names:
        if name not in known:
            raise ValueError(f"no case {name!r}; cases are {', '.join(known)}")
    return [known[name] for name in names] or list(CASES)
