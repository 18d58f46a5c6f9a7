"""A coordinator whose computations apart from requests advance step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.machines.group_harness import Harness, MemoryTopics


class Stepwise(Harness):
    """What is computed apart from requests waits for `step`."""

    def __init__(self) -> None:
        self.works: deque[Callable[[], None]] = deque()
        super().__init__()

    def _run(self, work: Callable[[], None], kept: object = None) -> None:
        self.works.append(work)

    def step(self) -> None:
        """Compute one part, up to the next event of the group."""
        if self.works:
            self.works.popleft()()


class KnownTopics(MemoryTopics):
    """Topics that are found by their ids as fast as a broker finds them."""

    def __init__(self, count: int, partitions: int) -> None:
        super().__init__()
        self._names: dict[bytes, str] = {}
        for number in range(count):
            self.put(f"t{number}", partitions)

    def put(self, name: str, partitions: int) -> None:
        super().put(name, partitions)
        self._names[self._ids[name]] = name

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)


def large(topics: int, partitions: int = 1) -> Stepwise:
    """A coordinator that computes apart from requests."""
    harness = Stepwise()
    harness.topics = KnownTopics(topics, partitions)
    harness.coordinator = harness._new_coordinator()
    harness.coordinator.runtime.load(0, 0)
    return harness
