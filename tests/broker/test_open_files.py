"""The broker's open file limit: raised as far as the system allows, with one warning where that is low."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from odradek.broker.runtime import open_files
from odradek.broker_process import BrokerProcess
from tests.broker.crowd import limited_command

LOW = "the open file limit is lower than recommended"


class System:
    """The limits of a process whose hard limit can be lowered and never raised."""

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = soft, hard

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if limits[1] > self.limits[1]:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "taken", "warned"),
    [
        (1024, 20_000, 20_000, True),
        (99_999, 99_999, 99_999, True),
        (1024, 100_000, 100_000, False),
        (1024, 1_048_576, 1_048_576, False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
        (1024, resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
    ],
)
def test_the_hard_limit_is_used_and_a_low_one_logged(
    soft: int,
    hard: int,
    taken: int,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    system = System(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", system.getrlimit)
    # The kernel takes RLIM_INFINITY, which Python writes as -1, for the largest number.
    monkeypatch.setattr(resource, "setrlimit", system.setrlimit)
    open_files.raise_open_file_limit()
    open_files.warn_of_low_open_file_limit()
    assert system.limits == (taken, hard)
    notified = [(record.__dict__["limit"], record.__dict__["recommended"]) for record in caplog.records]
    assert notified == ([(taken, open_files.RECOMMENDED)] if warned else [])


def test_a_system_that_refuses_keeps_the_soft_limit_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(resource, "getrlimit", System(256, resource.RLIM_INFINITY).getrlimit)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    open_files.raise_open_file_limit()
    open_files.warn_of_low_open_file_limit()
    assert [record.__dict__["limit"] for record in caplog.records] == [256]


@pytest.mark.slow
def test_a_broker_with_few_files_starts_and_warns_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, command=limited_command(300, hard=True)) as process:
        lines = [line for line in process.output.splitlines() if LOW in line]
        assert len(lines) == 1
        assert lines[0].endswith(f" limit=300 recommended={open_files.RECOMMENDED}")
