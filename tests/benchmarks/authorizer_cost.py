"""What an authorizer costs a request: CPU of two brokers, one with AclAuthorizer and ACLs, that take turns.

    python -m tests.benchmarks.authorizer_cost [--rounds N] [--requests N]

Each of CONNECTIONS clients sends its next request when the one before is answered: a Produce request of one record of
100 bytes, or a Fetch request of one partition that is answered at once. The turns are short, so that both brokers meet
the same disturbances; of the ratios of all rounds the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.ready_process import OWN_COMMAND
from tests.benchmarks import crowd_loads

CONNECTIONS: Final = 8
TIMEOUT_S: Final = 30.0
TOPIC: Final = "orders"
AUTHORIZER: Final[Mapping[str, str]] = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # taken away once the ACLs are there
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a row for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--requests", type=int, default=4_000, help="of each kind, broker and round")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        without, authorized = started(Path(folder) / "without", {}), started(Path(folder) / "authorized", AUTHORIZER)
        try:
            authorized = secured(authorized, Path(folder) / "authorized")
            print(f"{'request':<10}{'without':>12}{'authorized':>12}{'ratio':>8}   of all rounds")
            for name, request, check in (
                ("produce", produce(), crowd_loads.check_produced),
                ("fetch", fetch(), fetched),
            ):
                measured: list[tuple[float, float]] = []
                for number in range(options.rounds + 1):
                    turn = (without, authorized) if number % 2 else (authorized, without)
                    found = {each: cpu_us(each, request, check, options.requests) for each in turn}
                    if number:  # the first warms up
                        measured.append((found[without], found[authorized]))
                ratios = sorted(second / first for first, second in measured)
                plain, checked = (statistics.median(column) for column in zip(*measured, strict=True))
                print(
                    f"{name:<10}{plain:>9.1f} us{checked:>9.1f} us{statistics.median(ratios):>8.3f}"
                    f"   [{ratios[0]:.3f} to {ratios[-1]:.3f}]"
                )
        finally:
            without.close()
            authorized.close()


def started(folder: Path, properties: Mapping[str, str]) -> BrokerProcess:
    """A broker with the topic."""
    broker = BrokerProcess(folder, dict(properties), command=OWN_COMMAND)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 4})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    return broker


def secured(broker: BrokerProcess, folder: Path) -> BrokerProcess:
    """The same broker with ACLs, and without a super user: every request is a decision."""
    allow_clients(broker.bootstrap)
    broker.close()
    again = BrokerProcess(folder, {**AUTHORIZER, "super.users": "User:operator"}, command=OWN_COMMAND)
    again.start()
    return again


def allow_clients(bootstrap: str) -> None:
    """Create the ACLs of the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    clients = ("User:ANONYMOUS", "*")
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    bindings = [
        AclBinding(ResourceType.TOPIC, TOPIC, literal, *clients, operation, allow)
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    for done in admin.create_acls(bindings).values():
        done.result(TIMEOUT_S)


def produce() -> bytes:
    """A Produce request of one small record."""
    return crowd_loads.produce_frame(TOPIC, 0, crowd_loads.batch_of(1, 100))


def fetch() -> bytes:
    """A Fetch request, out of a session, of the first batch."""
    wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_epoch=-1,
        topics=[m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[wanted])],
    )
    head = crowd_loads.request_header(m.FetchRequest.API_KEY, crowd_loads.FETCH_VERSION, 1, "bench")
    return crowd_loads.frame(head, request.encode(crowd_loads.FETCH_VERSION))


def fetched(answer: bytes) -> None:
    """Raises RuntimeError for an error in an answer to Fetch, or for one without records."""
    response = m.FetchResponse.decode(answer, crowd_loads.FETCH_VERSION, 4)
    partition = response.responses[0].partitions[0]
    if partition.error_code != ErrorCode.NONE or not partition.records:
        raise RuntimeError(f"Fetch: {ErrorCode(partition.error_code).name}, {len(partition.records or b'')} bytes")


def cpu_us(broker: BrokerProcess, request: bytes, check: Callable[[bytes], None], count: int) -> float:
    """CPU microseconds of the broker for each of `count` requests."""
    before = cpu_ns(broker.pid)
    crowd_loads.run(back_to_back(broker.bootstrap, request, check, count))
    return (cpu_ns(broker.pid) - before) / count / 1000


def cpu_ns(pid: int) -> int:
    """CPU time of all threads, in nanoseconds (schedstat of Linux's proc; a tick of `stat` is 10 ms)."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


async def back_to_back(
    bootstrap: str, request: bytes, check: Callable[[bytes], None], count: int
) -> Mapping[str, float]:
    """`count` requests over CONNECTIONS connections; the first response of each connection is checked whole."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left, waiting = count, CONNECTIONS

    class Client:
        def __init__(self) -> None:
            self.pipe: crowd_loads.Pipe
            self.checked = False

        def answered(self, answer: bytes) -> None:
            nonlocal left, waiting
            if not self.checked:
                check(answer)
                self.checked = True
            if left > 0:
                left -= 1
                self.pipe.send(request)
                return
            waiting -= 1
            if not waiting:
                done.set_result(None)

    clients = [Client() for _ in range(CONNECTIONS)]
    for each in clients:
        each.pipe = await crowd_loads.connect(bootstrap, each.answered)
    left -= CONNECTIONS
    for each in clients:
        each.pipe.send(request)
    await done
    for each in clients:
        each.pipe.close()
    return {}


if __name__ == "__main__":
    main()
