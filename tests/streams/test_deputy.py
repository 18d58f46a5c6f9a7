"""Calls by another thread: their results, those that do not return, and those that are in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from odradek.streams.running import deputy
from odradek.streams.running.deputy import Deputy, NotReturnedError

FOREVER_S = 600.0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deputy]:
    monkeypatch.setattr(deputy, "_abandoned", [])
    monkeypatch.setattr(deputy, "LONG_CALL_S", 0.01)
    one = Deputy("deputy")
    yield one
    one.close()


def test_a_call_returns_or_raises(made: Deputy) -> None:
    done: list[int] = []
    made.call(FOREVER_S, done.append, 1)
    with pytest.raises(ValueError, match="removed"):
        made.call(FOREVER_S, _refuse)
    made.call(FOREVER_S, done.append, 2)
    assert done == [1, 2]


def _refuse() -> None:
    raise ValueError("removed")


def test_a_call_that_does_not_return_is_abandoned(made: Deputy) -> None:
    go = threading.Event()
    with pytest.raises(NotReturnedError):
        made.call(0.05, go.wait)
    assert deputy._abandoned == [go.wait]
    go.set()


def test_a_call_in_vain_is_not_awaited(made: Deputy) -> None:
    go, answers = threading.Event(), iter([False, False, True])
    with pytest.raises(NotReturnedError):
        made.call(FOREVER_S, go.wait, in_vain=lambda: next(answers))
    assert next(answers, None) is None
    go.set()


def test_a_long_call_is_awaited_while_it_is_not_in_vain(made: Deputy) -> None:
    go, asked = threading.Event(), []

    def in_vain() -> bool:
        asked.append(threading.current_thread())
        if len(asked) == 3:
            go.set()
        return False

    made.call(FOREVER_S, go.wait, in_vain=in_vain)
    assert asked[0] is threading.main_thread()
