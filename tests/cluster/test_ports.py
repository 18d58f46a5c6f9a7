"""A port that a broker can release and bind again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import ports
from odradek.ports import BLOCK, FIRST, free_port

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins a block of its own, and returns its blocks."""
    taken: dict[int, ports._Blocks] = {}
    monkeypatch.setattr(ports, "_by_process", taken)
    yield
    for blocks in taken.values():
        for claim in blocks._held:
            os.close(claim)


def test_no_outgoing_connection_gets_a_reserved_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ip_local_port_range"
    settings.write_text("20000\t60999\n")
    monkeypatch.setattr(ports, "_RANGE", settings)
    assert all(FIRST <= free_port() < 20_000 for _ in range(100))


def test_a_port_in_use_is_skipped() -> None:
    before = free_port()
    with socket.create_server(("127.0.0.1", before + 1)):
        assert free_port() == before + 2


def test_no_port_is_given_to_two_processes() -> None:
    """A broker that is down listens nowhere, but its port stays reserved."""
    ours = {free_port() for _ in range(3 * BLOCK)}
    assert len(ours) == 3 * BLOCK
    program = (
        "import random; random.seed(1)\n"
        "from odradek.ports import free_port\n"
        "print(*(free_port() for _ in range(300)), flush=True); input()"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    notified: list[int] = []
    for each in others:  # all of them live until both have printed
        assert each.stdout is not None
        notified += map(int, each.stdout.readline().split())
    for each in others:
        each.communicate("\n", timeout=60)
    assert len(notified) == 600
    assert len({*notified, *ours}) == len(notified) + len(ours)


@pytest.mark.parametrize("content", ["1024 60999", "nothing", ""])
def test_a_port_is_found_without_known_or_lower_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    settings = tmp_path / "ip_local_port_range"
    settings.write_text(content)
    monkeypatch.setattr(ports, "_RANGE", settings)
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        assert listener.getsockname()[1] >= FIRST
