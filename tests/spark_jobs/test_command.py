"""The common command line: the options it takes, its output, and the status with which a job ends."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark_jobs import archive, replay, source
from odradek.spark_jobs.command import (
    EARLIEST,
    LATEST,
    Options,
    Position,
    job_command,
    offsets_json,
    parse_offsets,
    run,
)
from odradek.spark_jobs.errors import DONE, FAILED, NOT_THERE, WRONG_USAGE, JobError, NotThereError, explained
from odradek.spark_jobs.progress import lag

NEEDED = ("--bootstrap", "localhost:9092", "--topic", "orders", "--checkpoint", "/c")


def asked(*arguments: str, result: int | Exception = DONE, streaming: bool = True) -> tuple[int, Options | None]:
    """The status, and the options that the job received."""
    given: list[Options] = []

    @job_command("sample", example="example: nothing", streaming=streaming, output="Where to.")
    @click.option("--own", default="nothing")
    def command(options: Options, own: str) -> int:
        given.append(options)
        if isinstance(result, Exception):
            raise result
        return result

    return run(command, [*arguments, "--output", "/o"]), given[0] if given else None


def test_options_reach_the_job() -> None:
    status, options = asked(
        *(*NEEDED, "--topic", "payments", "--once", "--batch-records", "5", "--kafka", "kafka.client.id=a=b"),
        *("--from", '{"orders": {"0": 5}}', "--isolation", "read_uncommitted", "--master", "local[3]"),
    )
    assert status == DONE
    assert options == Options(
        job="sample",
        bootstrap="localhost:9092",
        topics=("orders", "payments"),
        checkpoint="/c",
        start=Position("offsets", offsets={"orders": {0: 5}}),
        once=True,
        isolation="read_uncommitted",
        output="/o",
        group="odradek-sample",
        master="local[3]",
        batch_records=5,
        kafka={"client.id": "a=b"},
    )
    assert options.trigger == {"availableNow": True}
    assert options.client == {"client.id": "a=b", "bootstrap.servers": "localhost:9092"}


def test_a_job_reads_all_committed_records_for_ever_by_default() -> None:
    _, options = asked(*NEEDED, "--interval", "1.5", "--group", "mine")
    assert options is not None
    assert (options.start, options.until, options.isolation, options.group) == (
        EARLIEST,
        LATEST,
        "read_committed",
        "mine",
    )
    assert options.trigger == {"processingTime": "1500 milliseconds"}


@pytest.mark.parametrize(("more", "wait"), [((), "20"), (("--kafka", "fetch.max.wait.ms=500"), "500")])
def test_a_batch_does_not_wait_for_a_fetch_of_the_batch_before(more: tuple[str, ...], wait: str) -> None:
    """Unless it is configured: the consumers of tasks are kept, and each has a fetch open where records end."""
    _, options = asked(*NEEDED, *more)
    assert options is not None
    assert source._settings(options)["kafka.fetch.max.wait.ms"] == wait


@pytest.mark.parametrize(
    ("arguments", "notified"),
    [
        (("--bootstrap", "x"), "Missing option"),
        ((*NEEDED, "--from", "yesterday"), "'yesterday' is not earliest, latest, a time as"),
        ((*NEEDED, "--from", '{"orders": 5}'), "is not offsets as"),
        ((*NEEDED, "--from", '{"orders": {"0": -1}}'), "offsets are not negative"),
        ((*NEEDED, "--kafka", "nothing"), "'nothing' is not KEY=VALUE|@FILE"),
        ((*NEEDED, "--kafka", "@/no/such/file"), "/no/such/file cannot be read"),
        ((*NEEDED, "--isolation", "some"), "'some' is not one of"),
        ((*NEEDED, "--batch-records", "0"), "0 is not in the range"),
        ((*NEEDED, "--until", "latest"), "No such option"),
    ],
)
def test_wrong_usage_is_reported_with_status_2(
    arguments: tuple[str, ...], notified: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(*arguments) == (WRONG_USAGE, None)
    assert notified in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("result", "status", "printed"),
    [
        (4, 4, ""),
        (JobError("it went wrong"), FAILED, "sample: it went wrong\n"),
        (NotThereError("no such topic: orders"), NOT_THERE, "sample: no such topic: orders\n"),
        (OSError(28, "No space left on device", "/o"), FAILED, "sample: [Errno 28] No space left on device: '/o'\n"),
        (KeyboardInterrupt(), DONE, ""),
    ],
)
def test_how_a_job_ends(result: Any, status: int, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(*NEEDED, result=result)[0] == status
    assert capsys.readouterr().err == printed


def test_a_mistake_of_the_job_shows_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(*NEEDED, result=KeyError("x"))[0] == FAILED
    assert "Traceback" in capsys.readouterr().err


def test_sigterm_ends_a_job_as_ctrl_c_does() -> None:
    @job_command("sample", example="example: nothing")
    def command(options: Options) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal was not handled")

    before = signal.getsignal(signal.SIGTERM)
    assert run(command, NEEDED) == DONE
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("job", [archive, replay])
def test_help_shows_whole_examples_that_are_commands(job: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(["--help"]) == DONE
    printed = capsys.readouterr().out
    for line in job.EXAMPLE.strip("\n").splitlines():
        assert line in printed
    name = job.command.name
    commands = job.EXAMPLE.replace("\\\n", " ").split(f"python -m odradek.spark_jobs.{name}")[1:]
    assert len(commands) == 2
    for text in commands:
        arguments = text.split("\n")[0].split()
        context = job.command.make_context(name, arguments)
        assert context.params["bootstrap"] == "localhost:9092"


@given(st.dictionaries(st.text(min_size=1), st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1))))
def test_offsets_are_parsed_as_they_are_written(offsets: dict[str, dict[int, int]]) -> None:
    assert parse_offsets(offsets_json(offsets)) == offsets
    assert Position.parse(" " + json.dumps(offsets)).offsets == offsets


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(-12, 12))
def test_times_are_utc_unless_they_name_a_zone(moment: datetime, hours: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    expected = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert Position.parse(moment.isoformat()).time_ms == expected
    elsewhere = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert Position.parse(elsewhere.isoformat()).time_ms == expected - hours * 3_600_000


def test_lag_is_never_negative() -> None:
    assert lag({"t": {0: 5, 1: 9}}, {"t": {0: 7, 1: 8}}) == 2
    assert lag({"t": {0: 5}}, {}) == 0


def test_the_innermost_cause_of_sparks_errors_is_reported() -> None:
    layers = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] It failed.\n"
        "Traceback (most recent call last):\n"
        "odradek.spark_jobs.errors.JobError: the disk is full of thread\n"
        "Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback\n"
    )
    found = explained(RuntimeError(layers))
    assert (str(found), found.status) == ("the disk is full of thread", FAILED)
    gone = explained(RuntimeError("x\nCaused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: at 5"))
    assert (str(gone), gone.status) == ("offsets are gone that were not read yet: at 5", NOT_THERE)
    assert str(explained(RuntimeError("\n plain\nmore"))) == "plain"
