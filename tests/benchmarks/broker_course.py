"""The common part of courses whose brokers all stay up and take turns, round by round; round 0 warms up and is not
counted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.rounds import Failure, Say


class Startable(Protocol):
    """A broker, or several."""

    def start(self) -> object: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=Startable)


class BrokerCourse:
    """The results are in `samples` and `failures`. Only the first round begins after `budget_s`."""

    def __init__(
        self, folder: Path, names: Sequence[str], rounds: int, say: Say, *, budget_s: float, warm_up: bool = True
    ) -> None:
        self.samples: list[ClusterSample] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._names = names
        self._rounds = range(0 if warm_up else 1, rounds + 1)
        self._say = say
        self._deadline = time.monotonic() + budget_s

    @contextmanager
    def _brokers(self, make: Callable[[str, Path], S]) -> Iterator[list[S]]:
        """What `make` returns for each name and a folder of its own, started."""
        contestants: list[S] = []
        with ExitStack() as stack:
            for name in self._names:
                folder = self._folder / name
                folder.mkdir()
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                contestants.append(make(name, folder))
                stack.callback(contestants[-1].close)
                contestants[-1].start()
            yield contestants

    def _rounds_in_time(self, what: str) -> Iterator[int]:
        """The numbers of the rounds, as long as the time allows another one; `what` is counted in them."""
        for number in self._rounds:
            if number > 1 and time.monotonic() > self._deadline:
                self._say(f"the time is up: {number - 1} rounds of {what} were counted")
                return
            yield number

    def _keep(self, case: str, name: str, number: int, measure: Callable[[], Mapping[str, float]]) -> None:
        """Measure one broker, and keep the result unless the round warms up. A failure does not end the rest."""
        self._say(f"{f'round {number}' if number else 'warm-up'}, {case}: {name}")
        try:
            measured = measure()
        except Exception as error:
            self._fail(case, name, number, error)
        else:
            if number:
                self.samples.append(ClusterSample(case, name, number, measured))

    def _fail(self, case: str, name: str, number: int, error: Exception) -> None:
        self.failures.append(Failure(case, name, number, f"{type(error).__name__}: {error}"))
        self._say(f"    failed: {case}, {name}: {self.failures[-1].reason}")
