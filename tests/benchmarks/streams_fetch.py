"""The other Python libraries for streams, each in a virtual environment of its own under the user's cache folder.

    python -m tests.benchmarks.streams_fetch

Versions are pinned; pip fetches what they need. An environment that is there already is used as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.jvm.cache import FetchError, Say, cache_folder, obtain, run_quietly, say_to_stderr

PINNED: Final = {"quix": "quixstreams==3.28.1", "faust": "faust-streaming==0.15.3"}


def is_fetched(name: str) -> bool:
    """Whether this library is in the cache, perhaps in another version."""
    return (cache_folder() / "streams" / name).is_dir()


def interpreter(name: str, say: Say = say_to_stderr) -> Path:
    """The Python that has this library. Raises FetchError, with a one-line message, where it cannot be fetched."""
    requirement = PINNED[name]

    def fill(folder: Path) -> None:
        say(f"fetching {requirement} from PyPI (once)")
        environment = folder / "environment"
        run_quietly([sys.executable, "-m", "venv", str(environment)], failure="no virtual environment can be made")
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run_quietly([*pip, requirement], failure=f"pip could not fetch {requirement}")

    stamp = f"{requirement} for Python {sys.version_info.major}.{sys.version_info.minor}"
    return obtain(cache_folder() / "streams" / name, stamp, fill) / "environment" / "bin" / "python"


def main() -> int:
    """Fetch them all; the status is 1 where one cannot be fetched."""
    status = 0
    for name in PINNED:
        try:
            print(f"{name}: {interpreter(name)}")
        except FetchError as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
