"""`tests.first_import`: one process alone, then all others together."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.first_import import after_the_first


@contextmanager
def shared(folder: Path) -> Iterator[None]:
    """The lock of those that are not the first. Raises BlockingIOError where these wait."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


def test_the_others_wait_for_the_first(tmp_path: Path) -> None:
    with after_the_first(tmp_path) as is_first:
        assert is_first
        with pytest.raises(BlockingIOError), shared(tmp_path):
            pass
    with shared(tmp_path):
        pass


def test_the_others_are_there_together(tmp_path: Path) -> None:
    with shared(tmp_path), after_the_first(tmp_path) as second, after_the_first(tmp_path) as third:
        assert (second, third) == (False, False)


def test_a_first_that_fails_lets_the_others_go_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), after_the_first(tmp_path):
        raise KeyboardInterrupt
    with shared(tmp_path):
        pass
