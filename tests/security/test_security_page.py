"""The commands of docs/security.md run as they are written, with Apache Kafka's tools."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.ports import free_port
from tests.jvm.tools import tool_command

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TOOLS = ("kafka-configs", "kafka-acls", "kafka-console-producer", "kafka-console-consumer")
VERSION = "3.9.2"


def _commands() -> list[str]:
    return re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def _bin(folder: Path) -> Path:
    """A folder for PATH with `odradek` and Kafka's tools."""
    folder.mkdir()
    commands = {"odradek": [sys.executable, "-P", "-m", "odradek"]}
    commands |= {tool: tool_command(VERSION, tool, []) for tool in TOOLS}
    for name, command in commands.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    return folder


def test_the_ten_commands_of_the_page(tmp_path: Path) -> None:
    commands = _commands()
    assert len(commands) == 10
    ports = {"9093": str(free_port()), "9094": str(free_port())}
    work = tmp_path / "work"
    work.mkdir()
    path = f"{_bin(tmp_path / 'bin')}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}

    def run(command: str, *, check: bool = True) -> str:
        for port, free in ports.items():
            command = command.replace(f"localhost:{port}", f"localhost:{free}")
        result = subprocess.run(
            ["bash", "-ec", command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        assert not check or result.returncode == 0, f"{command}\n{result.stdout}\n{_log(work)}"
        return result.stdout

    try:
        printed = [run(command) for command in commands]
        assert "hello" in printed[-1].splitlines()
        swapped = commands[-1].replace("bob", "alice").replace("--max-messages 1", "--timeout-ms 5000")
        assert "AuthorizationException: Not authorized to access" in run(swapped, check=False)
        denied = run(commands[-2].replace("alice", "bob"), check=False)
        assert "ClusterAuthorizationException" in denied  # an idempotent producer that may write nothing
        assert "-secret" not in _log(work)
    finally:
        run("odradek stop server.properties", check=False)


def _log(work: Path) -> str:
    return "\n".join(path.read_text("utf-8", "replace") for path in (work / "data").glob("*.log"))
