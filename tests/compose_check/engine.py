"""A container engine and one Compose project on it, by the commands that a user types.

The project has a name of its own, so that containers and volumes of a cluster that the user runs from the same file are
not touched. The engine is the one that `docker` reaches (DOCKER_HOST, DOCKER_CONTEXT); its settings are the caller's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = "odradek-compose-check"
COMMAND_TIMEOUT_S: Final = 120.0
BUILD_TIMEOUT_S: Final = 1800.0
_PROBE_TIMEOUT_S: Final = 30.0
_SHOWN_LINES: Final = 30


class EngineError(Exception):
    """A command of the engine failed. The message holds the command and the end of its output."""


def reason_for_no_engine() -> str:
    """Why no engine with Compose v2 is available here; empty where one is."""
    if shutil.which("docker") is None:
        return "no docker command on the PATH"
    probes = (
        (["docker", "info"], "no engine answers"),
        (["docker", "compose", "version", "--short"], "the docker command has no Compose v2 plugin"),
    )
    for command, reason in probes:
        try:
            done = _captured(command, _PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"{reason}: {' '.join(command)} does not end within {_PROBE_TIMEOUT_S:g} s"
        if done.returncode:
            return f"{reason}: {_last_line(done.stderr) or f'exit status {done.returncode}'}"
    return ""


class Compose:
    """The project of docker-compose.yml, with further files over it."""

    def __init__(self, *overrides: Path) -> None:
        files = [ROOT / "docker-compose.yml", *overrides]
        self._command = ["docker", "compose", "--project-name", PROJECT]
        self._command += [word for file in files for word in ("--file", str(file))]

    def run(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """`docker compose` with these arguments; returns stdout. Raises EngineError."""
        return run([*self._command, *arguments], timeout_s)

    def config(self) -> dict[str, Any]:
        """The whole configuration as Compose reads it, profiles included."""
        found: dict[str, Any] = json.loads(self.run("--profile", "*", "config", "--format", "json"))
        return found

    def container(self, service: str) -> dict[str, Any]:
        """What `docker inspect` shows of the service's container, running or not. Raises EngineError."""
        identifier = self.run("ps", "--all", "--quiet", service).strip()
        if not identifier:
            raise EngineError(f"{service} has no container")
        return inspect(identifier)

    def logs(self, service: str) -> list[str]:
        """The log lines of the service's container."""
        return self.run("logs", "--no-color", "--no-log-prefix", service).splitlines()


def inspect(name: str) -> dict[str, Any]:
    """The engine's data about a container or an image. Raises EngineError."""
    (found,) = json.loads(run(["docker", "inspect", name]))
    return dict(found)


def run(command: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Runs a command to its end; returns stdout. Raises EngineError where it fails or takes too long."""
    try:
        done = _captured(command, timeout_s)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command)} does not end within {timeout_s:g} s") from error
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-_SHOWN_LINES:])
        raise EngineError(f"{' '.join(command)} ended with status {done.returncode}:\n{output}")
    return done.stdout


def _captured(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
