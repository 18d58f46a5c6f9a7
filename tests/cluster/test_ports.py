"""A port that a broker can leave and take again."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from odradek import ports
from odradek.ports import FIRST, free_port


def test_no_outgoing_connection_is_given_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ip_local_port_range"
    settings.write_text("20000\t60999\n")
    monkeypatch.setattr(ports, "_RANGE", settings)
    assert all(FIRST <= free_port() < 20_000 for _ in range(100))


def test_one_in_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports.random, "randint", lambda _first, _last: taken)
        assert free_port() != taken


@pytest.mark.parametrize("content", ["1024 60999", "nothing", ""])
def test_where_nothing_is_below_or_known_there_is_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    settings = tmp_path / "ip_local_port_range"
    settings.write_text(content)
    monkeypatch.setattr(ports, "_RANGE", settings)
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        assert listener.getsockname()[1] >= FIRST
