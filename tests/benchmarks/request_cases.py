"""The cost of a small request: CPU microseconds of the broker for each, by kind of request.

Both brokers stay up. Each round takes all cases, and each case both brokers, one after the other; round 0 warms up and
is not counted. The load (`request_loads`) is one process that is the same for both. The CPU clock of a process has
ticks of 10 ms, so a case lasts until the broker has used a second or so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.benchmarks import request_groups, request_loads, request_servers, request_transactions
from tests.benchmarks.broker_course import BrokerCourse
from tests.benchmarks.cluster_cases import Measure
from tests.benchmarks.picking import pick_from
from tests.benchmarks.request_groups import Rebalances
from tests.benchmarks.request_loads import LONG_POLL_MS, RECORD_BYTES, Prepare
from tests.benchmarks.request_servers import Server, Servers
from tests.benchmarks.request_transactions import PRODUCERS

NAMES: Final = ("kafka", "odradek")
GROUP: Final = "requests"
"""The name of all these cases together."""
LEAST_REQUESTS: Final = 500
KINDS: Final[Mapping[str, Prepare]] = {
    each.__name__: each
    for each in (
        request_loads.produce,
        request_loads.produce_idempotent,
        request_loads.fetch_idle,
        request_loads.fetch_long_poll,
        request_loads.fetch_batch,
        request_loads.metadata,
        request_loads.list_offsets,
        request_groups.heartbeat,
        request_groups.offset_commit,
        request_groups.find_coordinator,
        request_groups.consumer_group_heartbeat,
        request_transactions.transaction,
    )
}
REBALANCE: Final = "rebalance"
"""The kind of the requests that members send together."""

CPU: Final = Measure("cpu_us", "CPU us a request", 1, largest=0.5)
RATE: Final = Measure("requests_per_s", "requests a second", 0)
MEASURES: Final = (CPU, RATE)
REPLICATED: Final = (
    CPU._replace(title="CPU us of the leader"),
    Measure("followers_cpu_us", "CPU us of both followers", 1, largest=0.5),
    RATE,
)


@dataclass(frozen=True, slots=True)
class RequestCase:
    """One kind of request, of KINDS or REBALANCE. `size` is the number of requests, `filled` whether its topic has a
    record.
    """

    name: str
    title: str
    kind: str
    connections: int = 8
    in_flight: int = 1
    size: int = 40_000
    filled: bool = False
    servers: Servers = "single"
    measures: tuple[Measure, ...] = MEASURES

    def scaled(self, factor: float) -> RequestCase:
        """The same with `factor` times the size, within reason."""
        return replace(self, size=max(LEAST_REQUESTS, round(self.size * factor)))

    @property
    def amount(self) -> str:
        """The size in words."""
        return f"{self.size:,} requests"


REQUEST_CASES: tuple[RequestCase, ...] = (
    RequestCase("request-produce", f"produce, one {RECORD_BYTES} B record, 8 connections", "produce"),
    RequestCase("request-produce-200", "produce, the same, 200 connections", "produce", connections=200),
    RequestCase(
        "request-produce-50",
        "produce, the same, one connection with 50 in flight",
        "produce",
        connections=1,
        in_flight=50,
    ),
    RequestCase("request-produce-idempotent", "produce, the same, idempotent, acks=all", "produce_idempotent"),
    RequestCase("request-fetch-idle", "fetch of an idle session, answered at once", "fetch_idle"),
    RequestCase(
        "request-fetch-long-poll",
        f"fetch of an idle session, answered after {LONG_POLL_MS} ms, 200 connections",
        "fetch_long_poll",
        connections=200,
        size=20_000,
    ),
    RequestCase("request-fetch-batch", "fetch of one small batch", "fetch_batch", filled=True),
    RequestCase("request-heartbeat", "heartbeat", "heartbeat"),
    RequestCase("request-offset-commit", "offset commit of one partition", "offset_commit"),
    RequestCase("request-metadata", "metadata of one topic", "metadata"),
    RequestCase("request-list-offsets", "end offset of one partition", "list_offsets"),
    RequestCase("request-find-coordinator", "coordinator of one group", "find_coordinator"),
    RequestCase(
        "request-rebalance", "join and sync of 200 members, each of them", REBALANCE, connections=200, size=20_000
    ),
    RequestCase(
        "request-transaction",
        f"AddPartitionsToTxn and EndTxn, each of them, one connection, {PRODUCERS} producers",
        "transaction",
        connections=1,  # with more, Kafka writes markers more slowly than it accepts EndTxn requests
        size=10_000,
    ),
    RequestCase(
        "request-consumer-heartbeat",
        "heartbeat, consumer protocol (Kafka 4.3.0)",
        "consumer_group_heartbeat",
        servers="newest",
    ),
    RequestCase(
        "request-produce-replicated",
        f"produce, one {RECORD_BYTES} B record, idempotent, acks=all, three brokers",
        "produce_idempotent",
        size=10_000,
        servers="three",
        measures=REPLICATED,
    ),
)


def pick(names: Sequence[str]) -> tuple[list[RequestCase], list[str]]:
    """The cases of these names, all if there are none or the name of the group, and the names that are of no such
    case.
    """
    picked, others = pick_from(REQUEST_CASES, [name for name in names if name != GROUP])
    return (list(REQUEST_CASES) if GROUP in names else picked), others


class RequestCourse(BrokerCourse):
    """All cases in each round."""

    def run(self, cases: Sequence[RequestCase]) -> None:
        """Run them all. A failure is recorded and does not end the rest."""
        for kind in dict.fromkeys(case.servers for case in cases):
            with self._brokers(functools.partial(request_servers.make, kind)) as servers:
                for number in self._rounds_in_time("all cases"):
                    for case in cases:
                        if case.servers == kind:
                            for each in servers:
                                run = functools.partial(measure, each, case, f"{case.name}-{number}")
                                self._keep(case.name, each.name, number, run)


def measure(one: Server, case: RequestCase, topic: str) -> Mapping[str, float]:
    """One case on one broker or cluster, with a topic of its own."""
    one.make_topic(topic)
    if case.filled:
        fill(one, topic)
    load = prepare(one.bootstrap, case, topic)
    before = one.cpu_seconds()
    done = load()
    after = one.cpu_seconds()
    one.drop_topic(topic)
    return {**done, **{key: (after[key] - before[key]) / done["requests"] * 1_000_000 for key in after}}


def prepare(bootstrap: str, case: RequestCase, topic: str) -> Callable[[], Mapping[str, float]]:
    """The load of a case, ready to be sent: returns what it did."""
    if case.kind == REBALANCE:
        group = Rebalances(bootstrap, topic, case.connections)
        return lambda: group.run(case.size)
    requests = [KINDS[case.kind](bootstrap, topic, number) for number in range(case.connections)]
    return lambda: request_loads.repeat(bootstrap, requests, case.in_flight, case.size)


def fill(one: Server, topic: str) -> None:
    """Write one record to the topic."""
    request_loads.repeat(one.bootstrap, [request_loads.produce(one.bootstrap, topic, 0)], 1, 1)
