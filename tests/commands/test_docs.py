"""docs/commands.md: its commands have the options that it shows, its tables are those of the code, its program runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from odradek.broker_cli import BrokerCommand
from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.commands import failures
from odradek.commands.session import connects
from odradek.records.generator import TYPES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text()
OLDER = {"broker", "cluster", "dump-log", "health", "registry", "scram", "stop", "streams", "tls"}
"""Commands that have pages of their own."""


def commands() -> list[list[str]]:
    """The arguments of every command on the page."""
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith("    odradek ")]
    words = [shlex.split(line, comments=True)[1:] for line in lines]
    return [each[: next((at for at, word in enumerate(each) if word in "<>|"), None)] for each in words]


def test_the_page_has_commands() -> None:
    assert len(commands()) > 20


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_commands_have_these_options(arguments: list[str]) -> None:
    context = click.Context(main)
    while True:
        group = context.command
        assert isinstance(group, click.Group)
        name, command, arguments = group.resolve_command(context, arguments)
        assert command is not None
        context = command.make_context(name, arguments, parent=context, resilient_parsing=True)
        arguments = context._protected_args + context.args
        if not isinstance(context.command, click.Group):
            break
    assert arguments == []


def leaves(command: click.Command, name: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield name
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from leaves(found, f"{name} {each}".strip())


def test_the_table_has_every_command() -> None:
    rows = re.findall(r"^\| (`.*?) \| .* \| .*\|$", PAGE.partition("## All commands")[2], re.MULTILINE)
    shown: set[str] = set()
    for row in rows:
        first, *others = re.findall(r"`([\w -]+)`", row)
        group = first.rpartition(" ")[0]
        shown |= {first, *(f"{group} {each}" for each in others)}
    there = {name for name in leaves(main, "") if name.split()[0] not in OLDER}
    there |= {f"broker {name}" for name in BrokerCommand.INSPECTIONS} | {"cluster status"}
    assert shown == there


def test_the_tables_of_exit_codes_and_of_options() -> None:
    codes = re.findall(r"^\| (\d) \| (.*) \|$", PAGE, re.MULTILINE)
    assert failures.__doc__ is not None
    documented = re.findall(r"^\| (\d) \| (.*) \|$", failures.__doc__, re.MULTILINE)
    assert codes == documented
    assert [int(code) for code, _ in codes] == [
        *(0, failures.FAILED, failures.USAGE, failures.NOT_FOUND, failures.DENIED, failures.UNREACHABLE),
    ]
    options = {
        (option, variable) for option, variable in re.findall(r"^\| `(--[\w-]+)`.* \| `(ODRADEK_\w+)`", PAGE, re.M)
    }
    types = re.findall(r"^\| (`.*\(.*`|`\w+`) \| ", PAGE.partition("| Type |")[2].partition("## ")[0], re.MULTILINE)
    assert {name for each in types for name in re.findall(r"`(\w+)", each)} == set(TYPES)
    command = click.command()(connects(lambda session: None))
    assert options == {
        (option.opts[0], str(option.envvar)) for option in command.params if isinstance(option, click.Option)
    }


@pytest.mark.slow
def test_the_program(odradek_broker: BrokerProcess) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    program = program.replace('("localhost", 9092)', f'("{odradek_broker.host}", {odradek_broker.port})')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    created, listed = done.stdout.splitlines()
    assert created.startswith("CreatedTopic(name='invoices', topic_id='")
    assert created.endswith("partitions=6, replication_factor=1)")
    assert listed == "[]"
