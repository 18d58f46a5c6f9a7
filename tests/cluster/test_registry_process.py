"""`odradek registry`: a stand-in for ZooKeeper that keeps its tree, and its clients' sessions, over a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from odradek.cluster_process import BrokerError, RegistryProcess

pytestmark = pytest.mark.slow
DEADLINE_S = 30


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryProcess]:
    process = RegistryProcess(tmp_path, tick_ms=1000)
    process.start()
    yield process
    process.discard()


@pytest.fixture
def client(registry: RegistryProcess) -> Iterator[KazooClient]:
    connected = KazooClient(f"{registry.host}:{registry.port}", timeout=15)
    connected.start(DEADLINE_S)
    yield connected
    connected.stop()
    connected.close()


def test_nodes_and_sessions_survive_a_kill(registry: RegistryProcess, client: KazooClient) -> None:
    client.create("/kept", b"value")
    client.create("/own", b"", ephemeral=True)
    session, _ = client.client_id
    registry.kill()
    registry.start()
    value, _ = client.retry(client.get, "/kept")
    assert value == b"value"
    assert client.client_id[0] == session
    assert client.exists("/own").owner_session_id == session


def test_a_closed_session_deletes_its_ephemeral_nodes(registry: RegistryProcess, client: KazooClient) -> None:
    other = KazooClient(f"{registry.host}:{registry.port}", timeout=15)
    other.start(DEADLINE_S)
    other.create("/gone", b"", ephemeral=True)
    other.stop()
    assert client.exists("/gone") is None


def test_it_stops_with_status_0_and_frees_its_folder(registry: RegistryProcess) -> None:
    registry.restart()
    registry.stop()


def test_a_folder_has_one_owner(registry: RegistryProcess, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"runs in .* already; choose another folder with --data"):
        RegistryProcess(tmp_path, tick_ms=1000).start()
    assert registry.running


def test_a_port_in_use_is_reported(registry: RegistryProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek", "registry", f"--data={tmp_path / 'other'}", f"--port={registry.port}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert f"127.0.0.1:{registry.port} is in use" in ended.stderr
