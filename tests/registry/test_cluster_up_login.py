"""`odradek cluster up` with zookeeper.set.acl: its registry serves the brokers of the cluster and no stranger."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from odradek.ready_process import OWN_COMMAND
from odradek.registry_login import FILE_NAME
from odradek.registry_service import users_in

READY_S = 60.0


@pytest.mark.slow
def test_the_registry_of_cluster_up_refuses_strangers(tmp_path: Path) -> None:
    options = ["--brokers=2", "--port=0", f"--data={tmp_path}", "--property=zookeeper.set.acl=true"]
    with subprocess.Popen(
        [*OWN_COMMAND, "cluster", "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            deadline = time.monotonic() + READY_S
            while not any(" ready: cluster" in line for line in lines):
                assert time.monotonic() < deadline
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            connect = lines[0].rstrip().rpartition(" ")[2]
            ((user, password),) = users_in(tmp_path / FILE_NAME).items()
            assert password not in "".join(lines)
            sasl = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
            assert _brokers(connect, sasl_options=sasl) == {"1", "2"}
            with pytest.raises(KazooException):
                _brokers(connect)
        finally:
            process.terminate()
            process.wait(READY_S)


def _brokers(connect: str, **options: object) -> set[str]:
    client = KazooClient(connect, connection_retry={"max_tries": 1}, **options)
    try:
        client.start(timeout=20)
        return set(client.get_children("/brokers/ids"))
    finally:
        client.stop()
        client.close()
