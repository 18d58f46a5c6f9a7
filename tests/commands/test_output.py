"""Tables, JSON, YAML, times and durations; exit codes; names that the shell completes; the time to start."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from odradek.broker_process import BrokerProcess
from odradek.cli import LAZY, main
from odradek.commands.config_output import changes_of
from odradek.commands.failures import exit_code_of
from odradek.commands.output import Column, TextTable, byte_size, cell, render, time_text
from odradek.commands.session import parse_partitions
from odradek.commands.times import duration_ms, timestamp_ms
from odradek.commands.topic import matcher, parse_assignment
from odradek.protocol.client.errors import LoginFailedError, SecurityConfigError, UnsupportedRequestError
from odradek.protocol.errors import ErrorCode, KafkaError

ROWS: list[dict[str, Any]] = [
    {"name": "orders", "replicas": [1, 2], "none": None},
    {"name": "x", "replicas": [], "none": ""},
]
TABLE = TextTable((Column("NAME", "name"), Column("REPLICAS", "replicas"), Column("NONE", "none", wide=True)), ROWS)


def test_formats() -> None:
    assert render("table", ROWS, [TABLE]) == "NAME    REPLICAS\norders  1,2\nx       -"
    assert render("wide", ROWS, [TABLE]) == "NAME    REPLICAS  NONE\norders  1,2       -\nx       -         -"
    assert json.loads(render("json", ROWS, [TABLE])) == ROWS
    assert yaml.safe_load(render("yaml", ROWS, [TABLE])) == ROWS
    assert render("table", [], [TextTable(TABLE.columns, [])]) == "NAME  REPLICAS"
    two = [TextTable(TABLE.columns, [], "nothing"), TextTable(TABLE.columns, ROWS[:1], "one")]
    assert render("table", [], two) == "nothing\n\none\nNAME    REPLICAS\norders  1,2"
    assert [cell(value) for value in (True, 0, {"a": 1, "b": None}, "ä")] == ["yes", "0", "a=1 b=-", "ä"]
    assert [byte_size(value) for value in (None, -1, 0, 1023, 1536, 5 << 30, 7 << 50)] == [
        *("-", "-", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "7168.0 TiB"),
    ]
    assert [time_text(value) for value in (None, -1, 1_700_000_000_123)] == ["-", "-", "2023-11-14T22:13:20.123Z"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("1d12h", 129_600_000), ("1.5h", 5_400_000), ("PT4H", 14_400_000), ("P1DT30M", 88_200_000)],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text, "--since") == expected


@pytest.mark.parametrize("text", ["", "4", "h", "P", "PT", "4 h", "-4h", "4hours"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"--since: .* is not a duration"):
        duration_ms(text, "--since")


def test_times() -> None:
    assert timestamp_ms("1700000000000", "--time") == 1_700_000_000_000
    assert timestamp_ms("2023-11-14T22:13:20", "--time") == 1_700_000_000_000
    assert timestamp_ms("2023-11-14T23:13:20.5+01:00", "--time") == 1_700_000_000_500
    with pytest.raises(click.UsageError, match="--time"):
        timestamp_ms("yesterday", "--time")


def test_arguments() -> None:
    assert parse_partitions(["a", "b:0,2", "b:3", "a:1"]) == {"a": None, "b": [0, 2, 3]}
    assert parse_assignment("0:1,1:2") == ((0, 1), (1, 2))
    assert [(each.name, each.operation.name, each.value) for each in changes_of(["a=1", "b+=2", "c-=3="], ["d"])] == [
        ("a", "SET", "1"),
        ("b", "APPEND", "2"),
        ("c", "SUBTRACT", "3="),
        ("d", "DELETE", None),
    ]
    for wrong in (lambda: parse_partitions(["a:x"]), lambda: parse_assignment("0;1"), lambda: changes_of(["a"], [])):
        with pytest.raises(click.UsageError):
            wrong()


def test_a_pattern_of_a_user_takes_linear_time() -> None:
    """Python's `re` takes years for the first one."""
    assert not matcher("(a|aa)+")("a" * 200 + "!")
    assert matcher("orders.*")("orders-late")
    assert not matcher("orders")("orders-late"), "whole names"
    for wrong in ("(", "(?=a)", r"(a)\1"):
        with pytest.raises(click.UsageError, match="is not a regular expression of RE2"):
            matcher(wrong)


def test_exit_codes() -> None:
    errors: dict[Exception, int] = {
        KafkaError(ErrorCode.INVALID_CONFIG): 1,
        UnsupportedRequestError(): 1,
        SecurityConfigError(): 2,
        KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): 3,
        KafkaError(ErrorCode.GROUP_ID_NOT_FOUND): 3,
        KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED): 4,
        LoginFailedError(): 4,
        ConnectionRefusedError(): 5,
        TimeoutError(): 5,
    }
    assert {error: exit_code_of(error) for error in errors} == errors


def test_every_command_has_a_short_help() -> None:
    """It also imports the module of every command."""
    runner = CliRunner()
    listed = runner.invoke(main, ["--help"]).stdout
    for name in LAZY:
        (line,) = [line for line in listed.splitlines() if line.split()[:1] == [name]]
        assert len(line.split()) > 1, name
        ended = runner.invoke(main, [name, "--help"])
        assert ended.exit_code == 0, ended.output
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert LAZY[name].help == command.get_short_help_str(200), name
    for name in ("list", "configs", "log-dirs"):
        assert "Usage: odradek broker" in runner.invoke(main, ["broker", name, "--help"], prog_name="odradek").stdout


UNUSED = (
    *("odradek.admin.client", "odradek.protocol.messages", "odradek.protocol.grammar"),
    "odradek.protocol.client.connection",
    *("odradek.protocol.client.security", "odradek.console", "odradek.storage", "odradek.streams", "textual", "rich"),
    *("re2", "ssl", "asyncio", "logging", "cryptography", "confluent_kafka", "yaml", "tomllib", "http"),
)

# On a broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        for name in ("orders", "orders-late", "payments"):
            assert CliRunner().invoke(main, ["topic", "create", name, "-b", running.bootstrap]).exit_code == 0
        yield running


def completed(*words: str) -> list[str]:
    shell = ShellComplete(main, {}, "odradek", "_ODRADEK_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_the_shell_completes_commands_and_names_of_the_cluster(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed("to") == ["token", "top", "topic"]
    assert completed("topic", "d") == ["delete", "describe"]
    assert completed("broker", "l")[:2] == ["list", "log-dirs"]
    at = ("-b", broker.bootstrap)
    assert completed("topic", "describe", *at, "or") == ["orders", "orders-late"]
    assert completed("config", "get", *at, "topic", "p") == ["payments"]
    assert completed("config", "get", *at, "broker", "") == ["0"]
    assert completed("group", "describe", *at, "") == []
    assert completed("topic", "describe", "-b", "127.0.0.1:1", "or") == []
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", broker.bootstrap)
    assert completed("get-offsets", "pay") == ["payments"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    assert f"_ODRADEK_COMPLETE={shell}_complete" in script


def cpu_s(*command: str) -> float:
    """The processor time of a command, the least of some runs: load on the machine only adds to it."""
    spent = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


def test_help_imports_no_client() -> None:
    """Each of the modules costs as much as a tenth of the limit of 150 ms."""
    words = [[], ["acl"], ["consume"], ["group", "lag"], ["top"], ["topic", "list"], ["cluster", "status"]]
    code = f"""if True:
        import sys
        from odradek.cli import main
        for words in {words}:
            try: main([*words, "--help"])
            except SystemExit as end: assert not end.code
            print(*words, *(each for each in sys.modules if each.startswith({UNUSED})), file=sys.stderr)"""
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stderr.splitlines() == [" ".join(each) for each in words]


@pytest.mark.slow
def test_a_command_starts_with_little_more_than_python_and_click(broker: BrokerProcess) -> None:
    """To its answer a command takes about twice the time in which Python starts and imports click."""
    click_s = cpu_s(sys.executable, "-c", "import click")
    command = [sys.executable, "-m", "odradek", "topic", "list", "-b", broker.bootstrap]
    assert cpu_s(*command) < 2.5 * click_s


@pytest.mark.slow
def test_a_command_imports_no_module_of_brokers_and_none_for_tls(broker: BrokerProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "odradek", "topic", "list", "-b", broker.bootstrap]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    imported = {line.rpartition("|")[2].strip() for line in log.splitlines() if line.startswith("import time:")}
    heavy = {"asyncio", "uvloop", "ssl", "logging", "cryptography", "confluent_kafka", "yaml", "tomllib", "http"}
    assert imported & heavy == set()
    assert not {name for name in imported if name.startswith(("odradek.broker", "odradek.streams", "odradek.storage"))}
    assert len(imported) < 160
