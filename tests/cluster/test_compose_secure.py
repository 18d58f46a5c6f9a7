"""The profile `secure` of the compose file against what it starts, on a machine without an engine.

As in `test_compose`, with the scripts of the one-shot services: they run in a shell, with volumes that are folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.cluster.compose_machine import COMPOSE, DOCKERFILE, PROFILES, Machine, image_environment
from tests.compose_check.secure import (
    ADMIN,
    ALICE,
    BROKERS,
    PORTS,
    SERVICES,
    passwords_in,
    require_no_secret,
    require_secure,
)
from tests.compose_check.verdict import CheckError
from tests.jvm.process import BackgroundProcess

pytestmark = pytest.mark.slow
SECURE: dict[str, dict[str, Any]] = {
    name: service for name, service in PROFILES.items() if service["profiles"] == ["secure"]
}
ONE_SHOTS = ["secure-files", "secure-users"]
FILES = "/etc/odradek"
PAIRS = ["broker-0", "broker-1", "broker-2", "health"]
VOLUME = image_environment()["KAFKA_LOG_DIRS"]


class SecureMachine(Machine):
    """This machine in place of the containers of the profile."""

    def mapped(self, service: str, text: str) -> str:
        """Paths in volumes, names of services in certificates and addresses of ZooKeeper, as this machine has them."""
        text = text.replace("secure-zookeeper:2181", f"127.0.0.1:{self.port('secure-zookeeper', 2181)}")
        text = re.sub(r"--broker (secure-\d),", r"--broker \1,127.0.0.1,", text)
        for path in (FILES, VOLUME):
            if path in text:
                text = text.replace(path, str(self.volume(service, path)))
        return text

    def run_once(self, service: str) -> subprocess.CompletedProcess[str]:
        """Runs a one-shot service to its end. Only its volumes exist."""
        described = self.services[service]
        for volume in described["volumes"]:
            self.volume(service, volume.split(":")[1]).mkdir(parents=True, exist_ok=True)
        words = [word.replace("$$", "$") for word in (*described["entrypoint"], *described["command"])]
        words = [self.mapped(service, word) for word in words]
        given = {name: default(str(text)) for name, text in described.get("environment", {}).items()}
        given = {name: self.mapped(service, text) for name, text in given.items()}
        environment = {**os.environ, **given, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def start_secure_broker(self, service: str) -> BackgroundProcess:
        environment = {name: self.mapped(service, text) for name, text in self.broker_environment(service).items()}
        environment["KAFKA_LOG_DIRS"] = str(self.volume(service, VOLUME))
        command = [self.mapped(service, word) for word in self.services[service]["command"]]
        assignments = [f"{name}={value}" for name, value in environment.items()]
        return BackgroundProcess(["env", *assignments, sys.executable, "-m", "odradek", *command])

    def listeners(self, service: str, text: str) -> str:
        return super().listeners(service, text.replace("://localhost:", "://:"))

    def advertised(self, text: str) -> str:
        """The listener of the health check is within the container, and has no published port."""
        (service,) = re.findall(r"INSIDE://([^:]+):", text)
        return super().advertised(text.replace("HEALTH://localhost:", f"HEALTH://{service}:"))

    def _within(self, service: str, text: str) -> str:
        words = {"odradek": str(Path(sys.executable).with_name("odradek"))}
        return super()._within(service, self.mapped(service, words.get(text, text)))


def default(text: str) -> str:
    """${NAME:-default} -> default, as Compose reads it where NAME is not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def secrets_in(folder: Path) -> list[str]:
    """Each password that the profile uses."""
    files = [folder / "zookeeper-jaas.conf", folder / "broker.properties"]
    return passwords_in("".join(each.read_text() for each in files))


def nodes_of(address: str) -> list[str]:
    """The nodes of the cluster, for a client of ZooKeeper that does not log in."""
    client = KazooClient(address, timeout=2.0)
    try:
        client.start(timeout=5)
        found: list[str] = client.get_children("/odradek")
        return found
    finally:
        client.stop()
        client.close()


@pytest.fixture
def machine(tmp_path: Path) -> SecureMachine:
    return SecureMachine(tmp_path, SECURE)


@pytest.fixture
def running(machine: SecureMachine) -> Iterator[dict[str, BackgroundProcess]]:
    """All services that stay, healthy, after those that end."""
    started: dict[str, BackgroundProcess] = {}
    try:
        for name in SECURE:
            if name in ONE_SHOTS:
                done = machine.run_once(name)
                assert done.returncode == 0, done.stderr
                require_no_secret(secrets_in(machine.volume(name, FILES)), {name: done.stdout + done.stderr})
            elif name in BROKERS:
                started[name] = machine.start_secure_broker(name)
            else:
                started[name] = machine.start_zookeeper(name)
                machine.await_healthy(name, started[name])
        for name, process in started.items():
            machine.await_healthy(name, process)
        yield started
    finally:
        for process in reversed(started.values()):
            process.kill()


@pytest.mark.jvm
def test_alice_writes_and_reads_and_strangers_do_not(
    machine: SecureMachine, running: dict[str, BackgroundProcess]
) -> None:
    files = machine.volume("secure-files", FILES)
    bootstrap = ",".join(machine.address(f"localhost:{port}") for port in PORTS)
    assert require_secure(bootstrap, files / "ca.pem") >= 300
    with pytest.raises((KazooException, KazooTimeoutError)):
        nodes_of(f"127.0.0.1:{machine.port('secure-zookeeper', 2181)}")
    logs = {name: "\n".join(each.stderr.lines() + each.stdout.lines()) for name, each in running.items()}
    titles = {f"title of {name}": Path(f"/proc/{each.pid}/cmdline").read_text() for name, each in running.items()}
    require_no_secret(secrets_in(files), {**logs, **titles})


def test_files_of_the_profile_are_their_owners_and_stay(machine: SecureMachine) -> None:
    """A second `up` renews the certificates and changes neither authority nor passwords."""
    assert machine.run_once("secure-files").returncode == 0
    files, authority = machine.volume("secure-files", FILES), machine.volume("secure-files", VOLUME)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    assert {path.stat().st_mode & 0o077 for path in files.iterdir()} == {0}
    assert "ca.key" in {path.name for path in authority.iterdir()}
    assert "ca.key" not in before
    assert machine.run_once("secure-files").returncode == 0
    after = {path.name: path.read_bytes() for path in files.iterdir()}
    assert {name for name in before if after[name] != before[name]} == {f"{each}.pem" for each in PAIRS}
    assert after.keys() == before.keys()


def test_only_one_service_has_the_key_of_the_authority() -> None:
    mounts = {name: [volume.split(":") for volume in service["volumes"]] for name, service in SECURE.items()}
    assert [name for name in mounts if any(each[0] == "secure-authority" for each in mounts[name])] == ["secure-files"]
    writable = [name for name in mounts if ["secure-files", FILES] in mounts[name]]
    assert writable == ["secure-files"]


def test_the_profile_shares_nothing_with_the_plain_cluster() -> None:
    """Both can run at the same time."""
    plain = {name: service for name, service in COMPOSE["services"].items() if name not in SECURE}
    for key in ("ports", "volumes"):
        taken = {each.split(":")[0] for service in plain.values() for each in service.get(key, [])}
        assert taken.isdisjoint(each.split(":")[0] for service in SECURE.values() for each in service.get(key, []))
    for name, service in SECURE.items():
        assert set(service.get("depends_on", {})) <= set(SECURE), name
        for volume in service["volumes"]:
            assert volume.split(":")[0] in COMPOSE["volumes"], name


def test_every_service_that_stays_is_checked_and_every_root_is_read_only() -> None:
    for name, service in SECURE.items():
        assert (service.get("restart") == "unless-stopped") == ("healthcheck" in service) == (name not in ONE_SHOTS)
        assert service.get("read_only") is (None if name == "secure-zookeeper" else True)
    assert f"--group=odradek {FILES} " in DOCKERFILE, "an engine gives a new volume the owner of the image's folder"


def test_every_password_on_a_page_is_a_default_of_a_variable() -> None:
    """No other text of the profile has a password of a user."""
    service = SECURE["secure-users"]["environment"]
    assert service["ODRADEK_ADMIN_PASSWORD"] == f"${{ODRADEK_ADMIN_PASSWORD:-{ADMIN[1]}}}"
    assert service["ODRADEK_ALICE_PASSWORD"] == f"${{ODRADEK_ALICE_PASSWORD:-{ALICE[1]}}}"
    others = {name: str({**each, "environment": ""}) for name, each in SECURE.items()}
    require_no_secret([ADMIN[1], ALICE[1]], others)


def test_the_check_on_an_engine_has_the_services_and_ports_of_the_profile() -> None:
    assert list(SECURE) == list(SERVICES)
    assert [SECURE[name]["ports"] for name in BROKERS] == [[f"{port}:9092"] for port in PORTS]


def test_a_password_in_a_log_fails_without_being_repeated() -> None:
    require_no_secret(["a-secret"], {"log of secure-1": "ready"})
    with pytest.raises(CheckError, match=r"^log of secure-1 contains a password$"):
        require_no_secret(["a-secret"], {"log of secure-1": "login a-secret"})
