"""The applications under measurement as processes: how each contestant is started for a case."""

from __future__ import annotations

import compileall
import contextlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks import streams_fetch
from tests.benchmarks.streams_cases import JAVA, OURS, OWN, StreamsCase
from tests.jvm.cache import FetchError, Say
from tests.jvm.jars import classpath
from tests.jvm.process import QUIET, BackgroundProcess, ToolError, java_command

JAVA_RELEASE: Final = "streams-3.9.2"
JAVA_OPTIONS: tuple[str, ...] = ("-Xmx1g",)
COMMIT_MS: Final = 500
STORES_BYTES: Final = 64 * 1024 * 1024
"""The memory of all RocksDB stores together, where a case bounds it."""
COMMIT_ONCE_MS: Final = 100  # Kafka Streams' default for exactly once
START_TIMEOUT_S: Final = 120.0  # longer than any wait that still makes progress, however slow the machine
STOP_TIMEOUT_S: Final = 30.0
_HERE: Final = Path(__file__).parent
_PACKAGES: Final = ("odradek", "odradek.protocol", "odradek.streams", "tests.benchmarks")
"""What Odradek's application imports of this repository."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an application runs: its id, its topics, its folder for state."""

    bootstrap: str
    application: str
    source: str
    output: str
    table: str
    folder: Path


def fetch(names: Sequence[str], say: Say) -> None:
    """Fetch what the contestants need now, not in the middle of a measurement; print those that cannot be fetched."""
    if OURS in names or OWN in names:
        compile_modules()
    for name in names:
        try:
            if name == JAVA:
                classpath(JAVA_RELEASE, say)
            elif name not in (OURS, OWN):
                streams_fetch.interpreter(name, say)
        except FetchError as error:
            say(f"without {name}: {error}")


def compile_modules() -> None:
    """Compile Odradek's modules to bytecode, as pip does for an installed package: no contestant compiles its sources
    in the time that is measured. StreamsLoad.java is a jar, and the other libraries are installed by pip.
    """
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            compileall.compile_dir(folder, quiet=2)


def command(contestant: str, case: StreamsCase, place: Place) -> Sequence[str]:
    """The command line of one contestant. Raises FetchError where it cannot be had."""
    topics = [f"kind={case.kind}", f"input={place.source}", f"output={place.output}", f"table={place.table}"]
    if contestant in (OURS, OWN, JAVA):
        settings = [*topics, *(f"{name}={value}" for name, value in _config(case, place).items())]
        if contestant == JAVA:
            return java_command(JAVA_RELEASE, str(_HERE / "StreamsLoad.java"), settings, (*JAVA_OPTIONS, *QUIET))
        if contestant == OWN:
            settings.append("client.implementation=odradek")
        return [sys.executable, "-m", "tests.benchmarks.streams_ours", *settings]
    return [
        str(streams_fetch.interpreter(contestant)),
        str(_HERE / f"streams_{contestant}.py"),
        *topics,
        f"bootstrap={place.bootstrap}",
        f"application={place.application}",
        f"state={place.folder}",
        f"guarantee={'exactly-once' if case.exactly_once else 'at-least-once'}",
        f"commit_s={_commit_ms(case) / 1000}",
    ]


def _commit_ms(case: StreamsCase) -> int:
    return COMMIT_ONCE_MS if case.exactly_once else COMMIT_MS


def _config(case: StreamsCase, place: Place) -> Mapping[str, object]:
    bound = {"rocksdb.memory.max.bytes": STORES_BYTES} if case.kind == "stores" else {}
    return {
        **bound,
        "application.id": place.application,
        "bootstrap.servers": place.bootstrap,
        "state.dir": place.folder,
        "commit.interval.ms": _commit_ms(case),
        "processing.guarantee": "exactly_once_v2" if case.exactly_once else "at_least_once",
        "statestore.cache.max.bytes": case.cache_bytes,
    }


class RunningApplication:
    """A running application; as a context manager it ends the application on exit."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = BackgroundProcess(arguments)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def await_line(self, start: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """Wait for a line that begins so. Raises ToolError with the application's own output if it ends before."""
        try:
            lines = self._process.stdout.wait_until(
                lambda lines: any(line.startswith(start) for line in lines), timeout_s
            )
        except (EOFError, TimeoutError) as error:
            raise ToolError(f"no {start} from the application: {type(error).__name__}; {self.complaint}") from None
        return next(line for line in lines if line.startswith(start))

    def check(self) -> None:
        """Raises ToolError where it has ended."""
        if not self._process.running:
            raise ToolError(f"the application has ended: {self.complaint}")

    @property
    def complaint(self) -> str:
        """The end of its standard error."""
        return " | ".join(self._process.stderr.lines()[-3:]) or "no output"

    def __enter__(self) -> RunningApplication:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # an application that does not end is killed
            self._process.stop(STOP_TIMEOUT_S)
