"""A PostgreSQL server of Debian in a folder of the test, on a socket in that folder, as a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_INSTALLED: Final = Path("/usr/lib/postgresql")
_USER: Final = "postgres"
"""The user of Debian's package; the server refuses to run as root."""
_TIMEOUT_S: Final = 60.0
_SETTINGS: Final = "-c listen_addresses='' -c fsync=off -c max_connections=20 -c shared_buffers=16MB"


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl of the newest version; None where Debian's package postgresql is missing."""
    found = [each for each in _INSTALLED.glob("*/bin") if (each / "initdb").exists()]
    return max(found, key=lambda each: int(each.parent.name), default=None)


def missing() -> str:
    """Why no server can be started; empty where one can."""
    if binaries() is None:
        return f"no initdb below {_INSTALLED}: apt-get install postgresql"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(_USER)
        except KeyError:
            return f"the tests run as root, and there is no user {_USER}, as whom the server could run"
    return ""


@contextmanager
def running() -> Iterator[str]:
    """A new server with an empty database. Gives a connection string."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))  # the path of a socket has at most 107 bytes
    own: dict[str, str] = {}
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
        own["user"] = _USER
    found = binaries()
    assert found is not None
    data, log = folder / "data", folder / "log"

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [found / program, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
            **own,  # type: ignore[call-overload]
        )
        assert done.returncode == 0, f"{program}: {done.stderr!r} {log.read_text() if log.exists() else ''}"

    try:
        run("initdb", f"--pgdata={data}", f"--username={_USER}", "--auth=trust", "--no-sync", "--encoding=UTF8")
        run("pg_ctl", f"--pgdata={data}", f"--log={log}", "-w", "-o", f"{_SETTINGS} -k {folder}", "start")
        try:
            yield f"host={folder} user={_USER} dbname={_USER} connect_timeout=10"
        finally:
            run("pg_ctl", f"--pgdata={data}", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
