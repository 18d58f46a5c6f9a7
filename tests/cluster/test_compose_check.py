"""compose-check without an engine: its reasons to skip, and that its verdicts fail where something is wrong."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.runtime.open_files import RECOMMENDED
from tests.compose_check import campaign, verdict
from tests.compose_check.verdict import CheckError
from tests.support.checker import History, Value

pytestmark = pytest.mark.slow
Logs = list[dict[int, Value]]
BROKERS = ["broker-1", "broker-2"]


# Without an engine


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, beside the shell's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def make_docker(path: Path, script: str) -> None:
    docker = path / "docker"
    docker.write_text(f"#!{path}/sh\n{script}\n")
    docker.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "no docker command on the PATH"),
        ("echo Cannot connect to the daemon >&2; exit 1", "no engine answers: Cannot connect to the daemon"),
        ("exit 7", "no engine answers: exit status 7"),
        (
            "case $1 in info) ;; *) echo \"docker: 'compose' is not a docker command\" >&2; exit 1;; esac",
            "the docker command has no Compose v2 plugin: docker: 'compose' is not a docker command",
        ),
    ],
)
def test_it_skips_with_the_reason(path: Path, script: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    if script:
        make_docker(path, script)
    assert campaign.main([]) == 0
    assert capsys.readouterr().out == f"compose-check skipped: {reason}\n"


def test_an_engine_that_does_not_answer_in_time_counts_as_absent(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.compose_check.engine._PROBE_TIMEOUT_S", 0.1)
    make_docker(path, "while :; do :; done")
    assert campaign.main([]) == 0
    assert "docker info does not end within 0.1 s" in capsys.readouterr().out


def test_a_command_that_fails_ends_the_check_with_status_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_docker(path, 'for word; do case $word in info|version) exit 0;; esac; done; echo "$*: no space" >&2; exit 1')
    assert campaign.main([]) == 1
    notified = capsys.readouterr().err
    assert notified.startswith("compose-check failed: docker compose ")
    assert "no space" in notified


# Verdicts that fail


def loaded(count: int = verdict.LEAST_ACKNOWLEDGED) -> tuple[History, Logs]:
    """A history of `count` acknowledged records in two partitions, and the logs that fit it."""
    history = History(2)
    logs: Logs = [{}, {}]
    for number in range(count):
        log = logs[number % 2]
        value = history.next_value(number % 2, "again")
        history.acknowledge(number % 2, len(log), value)
        log[len(log)] = value
    return history, logs


def test_all_records_pass() -> None:
    assert verdict.require_nothing_lost(*loaded()) == verdict.LEAST_ACKNOWLEDGED


@pytest.mark.parametrize("offset", [0, 250, 499])
def test_one_lost_record_of_many_fails(offset: int) -> None:
    history, logs = loaded()
    del logs[1][offset]
    with pytest.raises(CheckError, match="lost-write in partition 1"):
        verdict.require_nothing_lost(history, logs)


def test_a_load_too_small_for_a_verdict_fails() -> None:
    with pytest.raises(CheckError, match="only 999 records were acknowledged"):
        verdict.require_nothing_lost(*loaded(999))


def test_logs_that_differ_after_a_start_fail() -> None:
    _, logs = loaded(100)
    assert verdict.require_same_logs(logs, [dict(log) for log in logs]) == 100
    lost, changed, more = ([dict(log) for log in logs] for _ in range(3))
    del lost[0][7]
    changed[1][3] = Value("other", 0)
    more[0][50] = Value("again", 100)
    for after, notified in (
        (lost, r"lost or changed the records at \[7\]"),
        (changed, r"at \[3\]"),
        (more, r"at \[50\]"),
    ):
        with pytest.raises(CheckError, match=notified):
            verdict.require_same_logs(logs, after)
    with pytest.raises(CheckError, match="2 partitions before, 1 after"):
        verdict.require_same_logs(logs, logs[:1])


def test_a_build_for_each_service_fails() -> None:
    services: dict[str, Any] = {name: {"image": "odradek"} for name in BROKERS}
    with pytest.raises(CheckError, match=r"each of \[\]"):
        verdict.require_one_build({"services": services}, BROKERS)
    services["broker-1"]["build"] = {"context": "."}
    verdict.require_one_build({"services": services}, BROKERS)
    services["broker-2"]["build"] = {"context": "."}
    with pytest.raises(CheckError, match="broker-2"):
        verdict.require_one_build({"services": services}, BROKERS)
    services["broker-2"] = {"image": "other"}
    with pytest.raises(CheckError, match="several images"):
        verdict.require_one_build({"services": services}, BROKERS)


def test_containers_that_are_not_healthy_by_the_images_check_fail() -> None:
    check = {"Test": ["CMD", "odradek", "health"]}
    image = {"Id": "sha256:1", "Config": {"Healthcheck": check}}
    good = {"Image": "sha256:1", "Config": {"Healthcheck": check}, "State": {"Health": {"Status": "healthy"}}}
    verdict.require_image_health(image, {"broker-1": good})
    for wrong, notified in (
        ({"Image": "sha256:2"}, "another image"),
        ({"Config": {"Healthcheck": {"Test": ["CMD", "true"]}}}, "of its own"),
        ({"State": {"Health": {"Status": "starting"}}}, "broker-1 is starting"),
        ({"State": {}}, "broker-1 is None"),
    ):
        with pytest.raises(CheckError, match=notified):
            verdict.require_image_health(image, {"broker-1": {**good, **wrong}})
    with pytest.raises(CheckError, match="no HEALTHCHECK"):
        verdict.require_image_health({"Id": "sha256:1", "Config": {}}, {"broker-1": good})


def test_a_root_that_is_writable_fails() -> None:
    mount = {"Destination": verdict.VOLUME, "RW": True}
    good = {"HostConfig": {"ReadonlyRootfs": True}, "Mounts": [mount, {"Destination": "/etc/policies", "RW": False}]}
    verdict.require_read_only("broker-1", good, ["ready"])
    for wrong, lines, notified in (
        ({"HostConfig": {"ReadonlyRootfs": False}}, [], "the root of broker-1 is writable"),
        ({"Mounts": [mount, {"Destination": "/tmp", "RW": True}]}, [], "broker-1 can write to"),
        ({}, ["OSError: [Errno 30] Read-only file system: '/root/.cache'"], r"outside its volume: .*/root/\.cache"),
    ):
        with pytest.raises(CheckError, match=notified):
            verdict.require_read_only("broker-1", {**good, **wrong}, lines)


def test_a_low_limit_is_logged_once_with_its_number() -> None:
    line = f"WARNING odradek.broker: {verdict.LOW_LIMIT}; raise it limit=1024 recommended={RECOMMENDED}"
    verdict.require_limit_warning("broker-1", 1024, ["other", line])
    verdict.require_limit_warning("broker-1", RECOMMENDED, ["other"])
    for limit, lines in ((1024, []), (1024, [line, line]), (1024, [line[:50]]), (2048, [line]), (RECOMMENDED, [line])):
        with pytest.raises(CheckError, match="broker-1"):
            verdict.require_limit_warning("broker-1", limit, lines)


def test_uncounted_words_fail() -> None:
    lines = ["a b a", "c a b"]
    assert Counter(" ".join(lines).split())["a"] == 3
    verdict.require_word_counts("a   3\nb   2\n", lines, 2)
    for printed in ("", "a 3\n", "a 2\nb 2\n", "b 2\na 3\n"):
        with pytest.raises(CheckError, match="the pipeline counted"):
            verdict.require_word_counts(printed, lines, 2)


def test_the_report_and_the_way_out_are_set_over_the_compose_file(tmp_path: Path) -> None:
    text = campaign.sealed(tmp_path, tmp_path / "report").read_text()
    assert os.path.join(tmp_path, "report") + ":/report" in text
    assert '"sealed": {"internal": true}' in text
