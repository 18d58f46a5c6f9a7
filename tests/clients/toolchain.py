"""The programs of tests/clients, fetched and built once into the user's cache, ready to be run.

What a program needs is pinned beside it: go.mod and go.sum, package.json and package-lock.json. Where a toolchain or
its package index is missing, the functions raise `AbsentError`, and the tests that need it skip with its message. A
program that does not build is an error like any other.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.jvm.cache import FetchError, cache_folder, obtain, run_quietly
from tests.jvm.jars import classpath
from tests.jvm.java import find_java
from tests.jvm.process import QUICK_START, QUIET, clients_archive

HERE: Final = Path(__file__).parent
GO: Final = HERE / "go"
NODE: Final = HERE / "node"
JAVA: Final = HERE / "java"
# Neither may fetch another toolchain, and no Go program here needs a C compiler.
_GO_SETTINGS: Final = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
_FIRST_NODE: Final = 18
KASKADE: Final = "kaskade==5.1.0"


class AbsentError(Exception):
    """A toolchain, or what it would have to fetch, is not available here; the message is one line."""


def go_command(program: str) -> list[str]:
    """The command of a program of go/: `franz` or `sarama`, before its own arguments.

    Raises AbsentError without Go or its modules, and CalledProcessError when the program does not build.
    """
    return [str(_built_go()), program]


def node_command(program: str) -> list[str]:
    """The command of a program of node/, before its own arguments. Raises AbsentError without Node, npm or the
    packages.
    """
    folder = _installed_node()
    # The program runs from the source tree; its packages are beside the lock file in the cache.
    return [
        "env",
        f"NODE_PATH={folder / 'node_modules'}",
        "KAFKAJS_NO_PARTITIONER_WARNING=1",
        "node",
        str(NODE / program),
    ]


def java_command(release: str, program: str) -> list[str]:
    """The command of a class of java/ with the clients of a Kafka release, before its own arguments.

    Raises AbsentError without a compiler (a JRE has none), CalledProcessError when the program does not build with it.
    """
    # The archive of classes fits a class path that begins with the jars.
    path = ":".join(map(str, (*classpath(release), _compiled_java(release))))
    return [str(find_java()), *QUICK_START, *clients_archive(release), *QUIET, "-cp", path, program]


def kaskade_command() -> list[str]:
    """The command of kaskade, a terminal program in Python with dependencies of its own, before its arguments.

    Raises AbsentError where the package index cannot be reached.
    """
    start = "import sys; from kaskade.main import cli; sys.argv[0] = 'kaskade'; cli()"
    return ["env", f"PYTHONPATH={_installed_kaskade()}", sys.executable, "-c", start]


@functools.cache
def _installed_kaskade() -> Path:
    def fill(folder: Path) -> None:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            run_quietly([*install, "--target", str(folder), KASKADE], failure=f"{KASKADE} cannot be fetched")
        except FetchError as error:
            raise AbsentError(str(error)) from error

    return obtain(cache_folder() / "clients" / "kaskade", f"{KASKADE}\n{sys.version}", fill)


@functools.cache
def _built_go() -> Path:
    go = shutil.which("go")
    if go is None:
        raise AbsentError("no Go on this machine (install golang)")
    environment = {**os.environ, **_GO_SETTINGS}

    def fill(folder: Path) -> None:
        try:
            run_quietly(
                [go, "-C", str(GO), "mod", "download"],
                failure="the modules of the Go clients cannot be fetched",
                environment=environment,
            )
        except FetchError as error:
            raise AbsentError(str(error)) from error
        _build([go, "-C", str(GO), "build", "-trimpath", "-o", str(folder / "clients"), "."], environment)

    stamp = _stamp(GO, "*.go", "go.mod", "go.sum") + _says(go, "version")
    return obtain(cache_folder() / "clients" / "go", stamp, fill) / "clients"


@functools.cache
def _installed_node() -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise AbsentError("no Node with npm on this machine (install nodejs and npm)")
    version = _says("node", "--version")
    if int(version.removeprefix("v").partition(".")[0]) < _FIRST_NODE:
        raise AbsentError(f"Node {version} is older than {_FIRST_NODE}")

    def fill(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE / name, folder)
        try:
            run_quietly(
                [npm, "ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"],
                failure="the packages of the Node clients cannot be fetched",
            )
        except FetchError as error:
            raise AbsentError(str(error)) from error

    return obtain(cache_folder() / "clients" / "node", _stamp(NODE, "package*.json"), fill)


@functools.cache
def _compiled_java(release: str) -> Path:
    compiler = find_java().resolve().with_name("javac")
    if not compiler.exists():
        raise AbsentError(f"{compiler} is missing: this Java cannot compile (install a JDK)")
    jars = ":".join(map(str, classpath(release)))

    def fill(folder: Path) -> None:
        # Code that differs between releases is in a class of its own, in two variants.
        variant = JAVA / ("before-3.1" if release.startswith("2.") else "since-3.1")
        sources = [str(path) for each in (JAVA, variant) for path in sorted(each.glob("*.java"))]
        _build([str(compiler), "-nowarn", "-Xlint:none", "-d", str(folder), "-cp", jars, *sources], dict(os.environ))

    return obtain(cache_folder() / "clients" / f"java-{release}", _stamp(JAVA, "**/*.java") + jars, fill)


def _build(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} could not build:\n{done.stdout}{done.stderr}")


def _stamp(folder: Path, *patterns: str) -> str:
    """The name of a build: a hash of the content of its sources."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
