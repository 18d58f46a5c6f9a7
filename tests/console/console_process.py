"""`odradek console` as a process."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.ready_process import OWN_COMMAND

_READY = re.compile(r"ready: (http://\S+) ")


@contextmanager
def running_console(folder: Path, bootstrap: str, *options: str) -> Iterator[tuple[str, int]]:
    """The address of a console, and its process id; it ends with the block."""
    log = folder / "console.log"
    command = [*OWN_COMMAND, "console", "--bootstrap-server", bootstrap, "--port", "0", "--interval", "0.5", *options]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready = _READY.search(process.stdout.readline())
        assert ready is not None, log.read_text()
        yield ready[1], process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
