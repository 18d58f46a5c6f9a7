"""A user's folder whose modules have the names of Odradek's modules and of those that it imports, and fail when
imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

MODULES = ("click", "json", "logging", "socket", "threading", "kazoo", "uvloop", "lz4", "pickle", "pandas")
PACKAGES = ("odradek", "broker", "protocol", "storage", "streams", "spark_jobs")
DEADLINE_S = 120


def crowded_folder(folder: Path) -> Path:
    """Makes the folder."""
    folder.mkdir()
    fails = "raise ImportError(f'{__file__} was imported')\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(fails)
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(fails)
        (folder / name / "__main__.py").write_text(fails)
    return folder


def plain_environment(**more: str) -> dict[str, str]:
    """The environment without the variables that choose modules."""
    chosen = ("PYTHONPATH", "PYTHONSAFEPATH")
    return {**{name: value for name, value in os.environ.items() if name not in chosen}, **more}


def run(script: str, folder: Path, environment: Mapping[str, str] | None = None, timeout_s: float = DEADLINE_S) -> str:
    """The output of a script that runs in `folder` without importing modules from there itself."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=folder,
        env=plain_environment(**(environment or {})),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
