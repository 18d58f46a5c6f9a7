"""A start that fails releases everything: the same process can start a broker with the same directories."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from odradek.broker.config.types import ConfigError
from tests.broker.wire import Client, batch, running_broker

MESSAGES = {"a port in use": "cannot listen|already in use", "a listener without keys": "keystore"}
NO_KEYS = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}


@pytest.mark.parametrize("fault", ["a port in use", "a listener without keys"])
async def test_the_data_directories_are_as_clean_as_before(tmp_path: Path, fault: str) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    directories = {"log.dirs": ",".join(map(str, folders))}
    marks = [folder / ".kafka_cleanshutdown" for folder in folders]
    async with running_broker(folders[0], directories) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        client.close()
        assert not any(mark.exists() for mark in marks)
    before = [mark.read_bytes() for mark in marks]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        in_use = {"listeners": f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"}
        broken = in_use if fault == "a port in use" else NO_KEYS
        for _ in range(2):
            with pytest.raises((OSError, ConfigError), match=MESSAGES[fault]):
                async with running_broker(folders[0], directories | broken):
                    pass
            assert [mark.read_bytes() for mark in marks] == before
    async with running_broker(folders[0], directories) as broker:
        assert [each.topic for each in broker.replicas] == ["t"]
