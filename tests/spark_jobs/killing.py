"""Jobs in a process that can be killed: several at a time in one Spark session, as `python -m` would run each.

    python -m tests.spark_jobs.killing '{"archive": ["--bootstrap", "…"], "mirror": […]}'

Names are those of jobs, and may go on after a dot: sessions.state. The process prints `ended NAME STATUS` for each, and
the jobs' lines on their batches on stderr. `run_killed` starts it, and kills it and its JVM with SIGKILL after a number
of printed batches, repeatedly; `run_to_the_end` completes the jobs.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.jvm.process import BackgroundProcess

TIMEOUT_S: Final = 240.0
AT_A_TIME: Final = 3
"""Jobs that run beside each other: Spark gives a Python worker ten seconds to start, under any load."""
_BATCH: Final = re.compile(r"^\w+: (?:batch \d+|[\d,]+ offsets|version \d+)")
Jobs = Mapping[str, Sequence[str]]


def run_killed(jobs: Jobs, kills: Sequence[int]) -> list[int]:
    """Runs `jobs` (name -> arguments) in a process of their own, once for each of `kills`, that is killed.

    A number is the count of batches, of all jobs together, after which it is killed; each run begins with other jobs.
    Returns how many batches each run printed; jobs that end with another status than 0 fail. JARS_VARIABLE and
    JAVA_HOME have to be in the environment.
    """
    notified: list[int] = []
    for run, batches in enumerate(kills):
        first = [*jobs][run * AT_A_TIME % len(jobs) :]
        with _host({name: jobs[name] for name in (*first, *jobs)}) as host:
            host.stderr.wait_until(lambda lines, least=batches: _notified(lines) >= least or _failed(lines), TIMEOUT_S)
            _kill(host)
            _check_ended(host)
            notified.append(_notified(host.stderr.wait_for_end(TIMEOUT_S)))
    return notified


def run_to_the_end(jobs: Jobs) -> dict[str, int]:
    """Runs `jobs` in the session of this process; returns the status of each."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return dict(zip(jobs, threads.map(_run, jobs, jobs.values()), strict=True))


def _run(name: str, arguments: Sequence[str]) -> int:
    job = importlib.import_module(f"odradek.spark_jobs.{name.partition('.')[0]}")
    status: int = job.main(arguments)
    return status


def _host(jobs: Jobs) -> BackgroundProcess:
    given = json.dumps({name: list(arguments) for name, arguments in jobs.items()})
    return BackgroundProcess([sys.executable, "-m", "tests.spark_jobs.killing", given])


def _check_ended(host: BackgroundProcess) -> None:
    """Asserts that jobs that have ended did so with status 0."""
    ended = [line.split() for line in host.stdout.wait_for_end(TIMEOUT_S)]
    assert all(status == "0" for _, _, status in ended), "\n".join(map(str, [*ended, *host.stderr.lines()[-60:]]))


def _kill(host: BackgroundProcess) -> None:
    """SIGKILL to Python and to the JVM, which is in its group."""
    os.killpg(host.pid, signal.SIGKILL)


def _notified(lines: Sequence[str]) -> int:
    return sum(bool(_BATCH.match(line)) for line in lines)


def _failed(lines: Sequence[str]) -> bool:
    return any("Traceback" in line for line in lines)  # a mistake of the job, or of this host


def main(given: str) -> int:
    """Runs the jobs side by side; each one's status is printed when it has ended."""
    from odradek.spark_jobs.session import open_session
    from tests.spark_jobs.conftest import QUICK_JVM

    session = open_session("killing", settings=QUICK_JVM)

    def run(name: str, arguments: Sequence[str]) -> None:
        print("ended", name, _run(name, arguments), flush=True)

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for _ in threads.map(lambda each: run(*each), json.loads(given).items()):
            pass
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
