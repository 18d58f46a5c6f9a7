"""Child processes import the installed Odradek, even if the user's current folder has modules of the same names."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.crowded_folder import PACKAGES, crowded_folder, plain_environment, run
from tests.jvm.process import BackgroundProcess

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("odradek")
DEADLINE_S = 120


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    return crowded_folder(tmp_path / "crowded")


def started(command: list[str | Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundProcess]:
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    process = BackgroundProcess([str(part) for part in command])
    try:
        yield process
    finally:
        process.kill()


def await_cluster(process: BackgroundProcess) -> str:
    """The bootstrap addresses of a `cluster up`, once it is ready."""
    line = process.stdout.wait_for(" ready: cluster at ", DEADLINE_S)
    return line.partition(" at ")[2].partition(", data in ")[0]


def test_python_searches_the_current_folder_first(crowded: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "odradek"], cwd=crowded, env=plain_environment(), capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"{crowded}/odradek/__init__.py was imported" in ended.stderr


def test_cluster_up_starts_its_brokers(crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command: list[str | Path] = [COMMAND, "cluster", "up", "--brokers=2", "--port=0", f"--data={tmp_path / 'cluster'}"]
    for process in started(command, crowded, monkeypatch):
        assert await_cluster(process).count(",") == 1


def test_processes_of_the_library_start(crowded: Path) -> None:
    script = (
        "import pathlib; from odradek.cluster_process import ClusterProcess\n"
        "with ClusterProcess(pathlib.Path('cluster'), brokers=1) as cluster: print(cluster.controller())"
    )
    assert run(script, crowded) == "1"


def test_worker_processes_start(crowded: Path) -> None:
    script = (
        "from odradek.storage import worker, read_files\n"
        "process = worker.WorkerProcess(); print(process.call(read_files.log_files, '.')); process.close()"
    )
    assert run(script, crowded) == "[]"


def test_the_fixtures_of_the_pytest_plugin_start(crowded: Path) -> None:
    (crowded / "test_it.py").write_text(
        "def test_it(odradek_broker, odradek_cluster):\n"
        "    assert odradek_broker.running and odradek_cluster(brokers=1).controller() == 1\n"
    )
    # The user chooses where pytest itself searches for modules; with importlib not in the folders of the tests.
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "--import-mode=importlib", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "test_it.py"], cwd=crowded, env=plain_environment(), capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_every_python_process_of_the_source_is_started_with_a_safe_path() -> None:
    commands = [
        (path.relative_to(ROOT), [ast.unparse(element) for element in sequence.elts])
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py")
        if "sys.executable" in (source := path.read_text())
        for sequence in ast.walk(ast.parse(source))
        if isinstance(sequence, (ast.List, ast.Tuple))
        and any(ast.unparse(each) == "sys.executable" for each in sequence.elts)
    ]
    assert len(commands) >= 4
    assert [each for each in commands if each[1][:2] != ["sys.executable", "'-P'"]] == []


# A clone with an install that is not editable


@pytest.fixture(scope="module")
def plain_install(tmp_path_factory: pytest.TempPathFactory, release: tuple[Path, Path]) -> tuple[Path, Path]:
    """A copy of the source, and the command of a virtual environment with a plain install of it."""
    clone, environment = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("environment")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for folder in project["tool"]["setuptools"]["package-dir"].values():
        shutil.copytree(ROOT / folder, clone / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=DEADLINE_S)
    python = environment / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*install, str(release[1])], check=True, timeout=DEADLINE_S)
    # The dependencies are those of the tests. Python searches a path in a .pth, but does not read the .pth files there:
    # an editable install of Odradek in it stays out.
    purelib = next(environment.glob("lib/python*/site-packages"))
    (purelib / "dependencies.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    return clone, environment / "bin/odradek"


def test_cluster_up_starts_its_brokers_in_a_clone_with_a_plain_install(
    plain_install: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, command = plain_install
    for process in started(
        [command, "cluster", "up", "--brokers=2", "--port=0", f"--data={tmp_path}"], clone, monkeypatch
    ):
        assert await_cluster(process).count(",") == 1


def test_an_install_differs_from_the_clone(plain_install: tuple[Path, Path]) -> None:
    clone, command = plain_install
    script = (
        "import odradek, odradek.storage as storage, odradek.protocol._chain; print(odradek.__file__, storage.__file__)"
    )
    ended = subprocess.run(
        [command.with_name("python"), "-P", "-c", script], cwd=clone, env=plain_environment(), capture_output=True,
        text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    assert [Path(path).is_relative_to(command.parents[1]) for path in ended.stdout.split()] == [True, True]
