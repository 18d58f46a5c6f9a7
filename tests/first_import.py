"""The first worker of a run imports the tests alone, and leaves the others what it compiles.

On a clean clone nothing is compiled: neither the tests, whose assertions pytest rewrites, nor the product, nor the
packages that both import (they are installed without). Workers that start together would each compile all of it, which
takes twice as long as the rest of the collection.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent


@contextmanager
def after_the_first(folder: Path = HERE) -> Iterator[bool]:
    """A context for what processes do with a folder: one alone, for which the value is True, then all others together.

    A process that ends or fails lets the others go on.
    """
    held = os.open(folder, os.O_RDONLY)
    try:
        is_first = _lock_alone(held)
        if not is_first:
            fcntl.flock(held, fcntl.LOCK_SH)
        yield is_first
    finally:
        os.close(held)


def _lock_alone(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
