"""Types of the DSL: mypy and pyright find the errors of a program, in an install from a wheel and in an editable one.

typed_programs/wrong.py marks each line that has an error; right.py has none and asserts the type of each stream.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).parent / "typed_programs"
SOURCES: Final = ("broker", "odradek", "protocol", "storage", "streams", "spark_jobs")
FILES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment, with Odradek installed: the wheel of a release, or a copy of the sources
    as an editable install.
    """
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "wheel":
        what = [request.getfixturevalue("release")[1]]
    else:
        what = ["--editable", copied_sources(folder / "source")]
    found = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, capture_output=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", found, "install", "--quiet", "--no-deps", "--no-compile"),
            *what,
        ],
        check=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "CFLAGS": "-O0"},  # no test here runs the extensions
    )
    return found


def copied_sources(source: Path) -> Path:
    """A folder with the sources, of which nothing is built."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    return source


def mypy(python: Path, folder: Path) -> set[tuple[str, int]]:
    """Files and lines with errors, by mypy's strict rules."""
    cache = f"--cache-dir={folder / 'cache'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", cache, "--python-executable", python, "right.py", "wrong.py"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    errors = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    return {(file, int(line)) for file, line, *_ in errors}


def pyright(python: Path, folder: Path) -> set[tuple[str, int]]:
    """Files and lines with errors, by pyright's standard rules."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python, "right.py", "wrong.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])["generalDiagnostics"]
    unresolved = [each for each in found if "could not be resolved" in each["message"]]
    assert [each for each in unresolved if "from source" not in each["message"]] == []  # the editable install's stub
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found if each["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_type_checkers_find_the_wrong_lines_and_no_others(python: Path, check: object, tmp_path: Path) -> None:
    assert callable(check)
    for name in ("right.py", "wrong.py"):
        shutil.copy(PROGRAMS / name, tmp_path / name)
    lines = (PROGRAMS / "wrong.py").read_text().splitlines()
    marked = {("wrong.py", number) for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}
    assert len(marked) >= 20
    assert check(python, tmp_path) == marked


def test_the_path_for_type_checkers_is_not_importable(python: Path) -> None:
    """At run time the packages come from where the install put them."""
    code = "import importlib.util; print(importlib.util.find_spec('odradek.streams').origin)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=python.parent, check=True)
    assert "odradek-stubs" not in done.stdout
    assert done.stdout.strip().endswith("streams/__init__.py")
