"""Survey of expensive requests: the costliest request of every API, version and size, alone and from 50 connections.

A search in steps, because all requests of all sizes would take hours, and the versions of an API share their code:

1. 64 KB, alone: every request of the generator, for each version;
2. 1 MB, alone: for each version the request that was the costliest in step 1;
3. 20 MB, alone: for each API the request that was the costliest in step 2;
4. CROWD connections at once, 64 KB, 1 MB and 20 MB: for each API the costliest of that size.

Each outcome is a line of a file, and what the file has is not sent again. So a survey whose time is over continues with
the same command. A request ends after TIMEOUT_S, a crowd's after CROWD_TIMEOUT_S; the answer is then `none`, and what
the broker used until then counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from threading import Event
from typing import Final, NamedTuple, Protocol

from odradek.protocol import messages as m
from tests.hostile.attack import Outcome, Target, attack, versions
from tests.hostile.bystander import cpu_s
from tests.hostile.requests import requests
from tests.hostile.stretches import Stretch

SMALL, MIDDLE, LARGE = SIZES = (64_000, 1_000_000, 20_000_000)
_SIZE_NAMES: Final = {SMALL: "64 KB", MIDDLE: "1 MB", LARGE: "20 MB"}
CROWD: Final = 50
TIMEOUT_S: Final = 1.5
CROWD_TIMEOUT_S: Final = 3.0
RECOVERY_S: Final = 15.0
"""A broker that does not answer the well-behaved client for so long is started again."""
IDLE_S: Final = 0.05
IDLE_TIMEOUT_S: Final = 1.0
"""A broker that works on a request for longer is started again, which takes about as long."""
MOST_FOLDERS: Final = 200
"""Logs of a broker that is started again, so that one request pays for no other's topics."""
NOT_SENT: Final = frozenset({7})
"""ControlledShutdown: it would end the broker's leadership."""


class Attempt(NamedTuple):
    """A request of the survey. `array` is the path of the array that is filled, empty for tagged fields."""

    api_key: int
    version: int
    shape: str
    array: str
    size: int
    connections: int

    @property
    def name(self) -> str:
        """A description for the table."""
        return f"v{self.version} {self.shape} {self.array}".rstrip()


class Cost(NamedTuple):
    """What an attempt cost."""

    answer: str
    answered_s: float
    p99_ms: float
    longest_ms: float
    cpu_ms: float
    peak_mb: int
    stretch_ms: float = 0.0
    """The longest stretch of the event loop; 0 where it was not measured."""
    stretch_wall_ms: float = 0.0
    """How long it lasted: more, where the broker did not run all the time."""
    stolen_ms: int = 0
    """What the host of a virtual machine took from its processors meanwhile (`Stretch`)."""

    @property
    def rank(self) -> tuple[float, float]:
        """The order by cost: CPU time before latency, which other programs of the machine change."""
        return self.cpu_ms, self.p99_ms


Costs = dict[Attempt, Cost]
Versions = Mapping[int, tuple[int, int]]


class Restartable(Protocol):
    """A broker that can be started again."""

    running: Target
    topic_id: bytes

    @property
    def logs(self) -> int:
        """How many files and folders its directory has."""
        ...

    def longest_stretch(self) -> Stretch:
        """The longest stretch of the event loop since the last call or the start; one of 0 ms where it is not
        measured.
        """
        ...

    def restart(self) -> None:
        """End the broker and start another one."""
        ...


def survey(target: Restartable, results: Path, deadline_s: float, names: Iterable[str] = ()) -> bool:
    """Send what `results` does not have, until `deadline_s` (monotonic); returns whether the survey is complete.

    `names` are lower-case names of APIs; by default all.
    """
    served = {
        key: range_
        for key, range_ in sorted(versions(target.running).items())
        if key not in NOT_SENT and (not names or m.APIS[key].name.lower() in names)
    }
    costs = read(results)
    with results.open("a") as file:
        for attempt in attempts(served, costs):
            if time.monotonic() > deadline_s:
                return False
            cost = _cost(target, attempt)
            costs[attempt] = cost
            file.write(json.dumps([attempt, cost]) + "\n")
            file.flush()
    return True


def repeat(target: Restartable, known: Costs, results: Path, deadline_s: float) -> bool:
    """Send what was the costliest request of MIDDLE size of each API in another survey, alone and from CROWD
    connections; returns whether that is complete. So two brokers get the same requests.
    """
    costs, served = read(results), versions(target.running)
    with results.open("a") as file:
        for attempt in repeated(served, known):
            if attempt in costs:
                continue
            if time.monotonic() > deadline_s:
                return False
            file.write(json.dumps([attempt, _cost(target, attempt)]) + "\n")
            file.flush()
    return True


def repeated(served: Versions, known: Costs) -> Iterator[Attempt]:
    """The costliest request of MIDDLE size in `known` of each API, in a version that is served: all alone, then all
    from CROWD connections.
    """
    wanted = [
        next((each for each in costliest(known, key, MIDDLE) if low <= each.version <= high), None)
        for key, (low, high) in sorted(served.items())
    ]
    for crowd in (1, CROWD):
        yield from (each._replace(connections=crowd) for each in wanted if each is not None)


def attempts(served: Versions, costs: Costs) -> Iterator[Attempt]:
    """What is not in `costs` yet, step by step; the caller adds the cost of each before it takes the next one."""
    each_version = [(key, version) for key, (low, high) in served.items() for version in range(low, high + 1)]
    for key, version in each_version:
        for request in requests(key, version, 1):
            attempt = Attempt(key, version, request.shape, request.array, SMALL, 1)
            if attempt not in costs:
                yield attempt
    for key, version in each_version:
        for attempt in costliest(costs, key, SMALL, version)[:1]:
            yield from _missing(costs, attempt._replace(size=MIDDLE))
    for key in served:
        for attempt in costliest(costs, key, MIDDLE)[:1]:
            yield from _missing(costs, attempt._replace(size=LARGE))
    for size in SIZES:
        for key in served:
            for attempt in costliest(costs, key, size)[:1]:
                yield from _missing(costs, attempt._replace(connections=CROWD))


def costliest(costs: Costs, key: int, size: int, version: int | None = None, connections: int = 1) -> list[Attempt]:
    """The attempts of an API with this size, of one version or all, the costliest first."""
    found = [
        each
        for each in costs
        if (each.api_key, each.size, each.connections) == (key, size, connections) and version in (None, each.version)
    ]
    return sorted(found, key=lambda each: costs[each].rank, reverse=True)


def read(results: Path) -> Costs:
    """The outcomes of a file; none where there is no file."""
    if not results.exists():
        return {}
    lines = map(json.loads, results.read_text().splitlines())
    return {Attempt(*attempt): Cost(*cost) for attempt, cost in lines}


def _missing(costs: Costs, attempt: Attempt) -> Iterator[Attempt]:
    if attempt not in costs:
        yield attempt


def _cost(target: Restartable, attempt: Attempt) -> Cost:
    key, version, shape, array, size, connections = attempt
    [request] = requests(key, version, size, target.topic_id, (shape,), array)
    timeout_s = TIMEOUT_S if connections == 1 else CROWD_TIMEOUT_S
    try:
        outcome = attack(target.running, request, timeout_s, connections, RECOVERY_S)
    except (OSError, IndexError) as error:
        target.restart()
        wait_ms = RECOVERY_S * 1000
        return Cost(f"the broker does not answer: {error!r}", RECOVERY_S, wait_ms, wait_ms, wait_ms, 0)
    suspicious = connections > 1 or not outcome.answer.endswith(" B")
    must_restart = (suspicious and not becomes_idle(target.running.pid)) or target.logs > MOST_FOLDERS
    stretch = target.longest_stretch()
    if must_restart:
        target.restart()
    return _measured(outcome, stretch)


def _measured(outcome: Outcome, stretch: Stretch) -> Cost:
    took = outcome.latencies
    times = round(took.p99_ms, 2), round(took.longest_ms, 2), round(took.cpu_ms, 2)
    memory_mb = outcome.peak_bytes >> 20
    return Cost(outcome.answer, round(outcome.answered_s, 2), *times, memory_mb, *stretch[:2], stretch.stolen_ms)


def becomes_idle(pid: int) -> bool:
    """Whether the broker has ended its work for a request within IDLE_TIMEOUT_S."""
    deadline_s = time.monotonic() + IDLE_TIMEOUT_S
    while time.monotonic() < deadline_s:
        before = cpu_s(pid)
        Event().wait(IDLE_S)  # the CPU time of an interval is measured, so no event ends it
        if cpu_s(pid) - before < IDLE_S / 4:
            return True
    return False


def table(ours: Costs, kafkas: Costs) -> Iterator[str]:
    """Markdown: a row for each API with the costliest request alone and from CROWD connections, of each broker."""
    titles = "request alone", f"{CROWD} connections", "Kafka: alone", f"{CROWD} connections"
    yield "|" + "|".join(f" {title} | p99, max ms | cpu ms | MB " for title in titles) + "|"
    yield "|---" * 16 + "|"
    for key in sorted({each.api_key for each in ours}):
        cells = [cell for costs in (ours, kafkas) for crowd in (1, CROWD) for cell in _cells(costs, key, crowd)]
        yield f"| {m.APIS[key].name} {' | '.join(cells)} |"


def summary(costs: Costs) -> Iterator[str]:
    """Markdown: a row for each size, alone and from CROWD connections, over all requests of it."""
    yield (
        "| requests | number | lost | p99 median, max ms | p99 of 100 ms and more | cpu median, max ms "
        "| cpu over 20 ms | stretch median, max ms | over 12, 16, 20 ms | MB |"
    )
    yield "|---" * 10 + "|"
    for crowd in (1, CROWD):
        for size in SIZES:
            found = [cost for each, cost in costs.items() if (each.size, each.connections) == (size, crowd)]
            if found:
                name = _SIZE_NAMES[size] + (f" from {crowd} connections" if crowd > 1 else "")
                yield f"| {name} | {' | '.join(_summary(found))} |"


def _summary(found: list[Cost]) -> Iterator[str]:
    lost = [each for each in found if each.peak_mb == 0]
    kept = [each for each in found if each.peak_mb]
    p99, cpu, stretch = ([getattr(each, name) for each in kept] for name in ("p99_ms", "cpu_ms", "stretch_ms"))
    yield str(len(found))
    yield str(len(lost))
    yield f"{median(p99):.0f}, {max(p99):.0f}"
    yield str(sum(each >= 100 for each in p99))
    yield f"{median(cpu):.0f}, {max(cpu):.0f}"
    yield str(sum(each > 20 for each in cpu))
    yield f"{median(stretch):.1f}, {max(stretch):.1f}"
    yield ", ".join(str(sum(each > limit for each in stretch)) for limit in (12, 16, 20))
    yield str(max(each.peak_mb for each in kept))


def _cells(costs: Costs, key: int, connections: int) -> list[str]:
    found = [each for size in SIZES for each in costliest(costs, key, size, connections=connections)[:1]]
    if not found:
        return ["", "", "", ""]
    worst = max(found, key=lambda each: costs[each].rank)
    cost = costs[worst]
    size = _SIZE_NAMES[worst.size]
    numbers = f"{cost.p99_ms:.0f}, {cost.longest_ms:.0f}", f"{cost.cpu_ms:.0f}", str(cost.peak_mb)
    return [f"{worst.name}, {size}", *numbers]
