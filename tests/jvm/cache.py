"""The user's cache folder: where fetched jars and a fetched Java live, shared by every checkout on the machine.

The place follows the XDG base directory specification: `$XDG_CACHE_HOME/odradek`, or `~/.cache/odradek`. A fetch fills
a folder beside the final place and then renames it, so a folder that exists is complete, however an earlier fetch
ended. A lock file keeps two fetchers from doing the same work twice; it is the kernel's lock and dies with its holder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Say = Callable[[str], None]


class FetchError(Exception):
    """A file that the JVM tests need cannot be fetched; the message is one line and names the remedy."""


def say_to_stderr(line: str) -> None:
    """The default progress reporter."""
    print(line, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Odradek's folder in the user's cache, created if absent. Raises FetchError if that is impossible."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # By the specification a relative path is to be ignored.
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    folder = base / "odradek"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot create {folder}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    return folder


def obtain(target: Path, stamp: str, fill: Callable[[Path], None]) -> Path:
    """Returns `target`, a folder that `fill` has completed.

    `stamp` identifies the content (pinned versions); a folder with another stamp is filled anew. `fill` gets an empty
    folder and raises FetchError when it cannot complete it; then the folder is removed.
    """
    if holds(target, stamp):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if holds(target, stamp):  # another process filled it while this one waited for the lock
            return target
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            fill(scratch)
            _stamp_file(scratch).write_text(stamp)
            if target.exists():
                shutil.rmtree(target)
            scratch.chmod(0o755)  # mkdtemp denies access to others; a cache need not
            scratch.rename(target)
        finally:
            with suppress(FileNotFoundError):
                shutil.rmtree(scratch)
    return target


def run_quietly(command: list[str], *, failure: str, environment: dict[str, str] | None = None) -> None:
    """Runs a fetching command. Raises FetchError with `failure` and the command's own last error line."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise FetchError(f"{failure}: {_complaint(done.stdout + done.stderr)}")


def holds(folder: Path, stamp: str) -> bool:
    """Whether `folder` is complete, with the content of this stamp."""
    try:
        return _stamp_file(folder).read_text() == stamp
    except OSError:
        return False


def _stamp_file(folder: Path) -> Path:
    return folder / ".pinned"


def _complaint(output: str) -> str:
    """The first line that names an error, or the last line with text."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and not line.isupper()]
    return (errors[:1] or lines[-1:] or ["no output"])[0]
