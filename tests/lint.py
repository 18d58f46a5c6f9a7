"""Lint, format, vocabulary and types: `python -m tests.lint`.

The folders of the source tree are packages of `odradek` only once they are installed (pyproject's package-dir), so
the type checker gets a view of links that looks like the installed package; it then needs no build and can use its
cache. It checks the tests too, without the rules that pyproject.toml relaxes for them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VIEW = ROOT / "build" / "types"


def make_view() -> Path:
    """Links that lay the packages out as an install does; returns the folder that holds `odradek` and `tests`."""
    layout = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    top = VIEW / "odradek"
    top.mkdir(parents=True, exist_ok=True)
    wanted = {path.name: path for path in (ROOT / layout["odradek"]).iterdir() if path.name != "__pycache__"}
    wanted |= {name.partition(".")[2]: ROOT / folder for name, folder in layout.items() if name != "odradek"}
    for link in top.iterdir():
        link.unlink()
    for name, target in wanted.items():
        (top / name).symlink_to(target)
    tests = VIEW / "tests"
    tests.unlink(missing_ok=True)
    tests.symlink_to(ROOT / "tests")
    return VIEW


def main() -> int:
    """Run each check; the status is 1 when one of them fails."""
    view = make_view()
    tool = [sys.executable, "-m"]
    types = [*tool, "mypy", "--config-file", str(ROOT / "pyproject.toml"), "-p", "odradek", "-p", "tests"]
    checks = (
        ("lint", [*tool, "ruff", "check", "--quiet"], ROOT),
        ("format", [*tool, "ruff", "format", "--check", "--quiet"], ROOT),
        ("vocabulary", [*tool, "tests.vocabulary"], ROOT),
        ("types", types, view),
    )
    failed = []
    running = [
        (name, subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for name, command, folder in checks
    ]
    for name, process in running:
        print(f"{name}: ", end="", flush=True)
        output, _ = process.communicate()
        print("ok" if process.returncode == 0 else f"failed\n{output}")
        if process.returncode:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
