"""A broker and its supervisors: properties from the environment, systemd, and a parent that ends."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker_process import BrokerProcess
from odradek.service import broker_address, properties_in

UNIT = Path(__file__).resolve().parents[2] / "docs/systemd/odradek.service"
DEADLINE_S = 30
INSTALLED = "/opt/odradek/bin/odradek"
PROPERTIES = "/etc/odradek/server.properties"


# Properties from the environment


def test_variables_set_properties_as_in_kafkas_image() -> None:
    environment = {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_LOG_DIRS": "/data",
        "KAFKA_LISTENER_NAME_IN__SIDE_SASL___JAAS": "x=y",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_": "nothing",
        "PATH": "/bin",
        "kafka_num_partitions": "3",
    }
    assert properties_in(environment) == {
        "broker.id": "1",
        "log.dirs": "/data",
        "listener.name.in_side.sasl-jaas": "x=y",
    }


def test_aliases_come_before_the_values_of_the_image() -> None:
    image = {"KAFKA_LISTENERS": "PLAINTEXT://:9092", "KAFKA_LOG_DIRS": "/var/lib/odradek"}
    alias = {"KAFKA_CFG_LISTENERS": "PLAINTEXT://:19092", "KAFKA_CFG_BROKER_ID": "4", "KAFKA_CFG_": "nothing"}
    expected = {"listeners": "PLAINTEXT://:19092", "broker.id": "4", "log.dirs": "/var/lib/odradek"}
    assert properties_in({**image, **alias}) == expected
    assert broker_address({**image, **alias}) == "localhost:19092"


def test_the_variables_of_kubernetes_set_no_address() -> None:
    assert properties_in({"KAFKA_PORT": "tcp://10.0.0.7:9092", "KAFKA_BROKER_ID": "1"}) == {"broker.id": "1"}
    assert properties_in({"KAFKA_PORT": "9093"}) == {"port": "9093"}


@pytest.mark.parametrize(
    ("listeners", "inter_broker", "address"),
    [
        ("PLAINTEXT://:9092", "", "localhost:9092"),
        ("PLAINTEXT://0.0.0.0:9093", "", "127.0.0.1:9093"),
        ("PLAINTEXT://[::]:9092", "", "[::1]:9092"),
        ("PLAINTEXT://[fe80::1]:9092", "", "[fe80::1]:9092"),
        ("OUTSIDE://broker:9092,INSIDE://:19092", "", "broker:9092"),
        ("OUTSIDE://:9092, INSIDE://:19092", "INSIDE", "localhost:19092"),
        ("OUTSIDE://:9092,INSIDE://:19092", "MISSING", "localhost:9092"),
    ],
)
def test_a_container_finds_its_own_broker(listeners: str, inter_broker: str, address: str) -> None:
    environment = {"KAFKA_LISTENERS": listeners, "KAFKA_INTER_BROKER_LISTENER_NAME": inter_broker}
    assert broker_address(environment) == address


def test_a_container_without_listeners_names_no_broker() -> None:
    assert broker_address({}) is None
    assert broker_address({"KAFKA_LISTENERS": ""}) is None


def ready_line(arguments: list[str], environment: dict[str, str]) -> str:
    """Start a broker, take its ready line, and see it stop with status 0."""
    command = [sys.executable, "-m", "odradek", "broker", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors.decode()
    return line


@pytest.mark.slow
def test_the_environment_overrides_the_file_and_an_override_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlog.dirs={tmp_path}/file\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    environment = {"KAFKA_BROKER_ID": "2", "KAFKA_LOG_DIRS": f"{tmp_path}/environment"}
    line = ready_line([str(file), "--from-environment", f"--override=log.dirs={tmp_path}/override"], environment)
    assert "broker 2 at" in line
    assert line.rstrip().endswith(f"data in {tmp_path}/override")


@pytest.mark.slow
def test_the_environment_is_ignored_unless_requested(tmp_path: Path) -> None:
    line = ready_line(
        ["--override=broker.id=4", "--override=listeners=PLAINTEXT://127.0.0.1:0", f"--override=log.dirs={tmp_path}"],
        {"KAFKA_BROKER_ID": "2"},
    )
    assert "broker 4 at" in line


# systemd


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket in place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(DEADLINE_S)
        yield listener


@pytest.mark.slow
def test_the_unit_starts_a_broker_that_notifies_when_it_serves(
    unit: configparser.ConfigParser, notified: socket.socket, tmp_path: Path
) -> None:
    service = unit["Service"]
    assert service["Type"] == "notify"
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlog.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    command = shlex.split(service["ExecStart"])
    assert command[0] == INSTALLED
    assert PROPERTIES in command
    command = [sys.executable, "-m", "odradek", *(str(file) if part == PROPERTIES else part for part in command[1:])]
    environment = dict(item.split("=", 1) for item in shlex.split(service["Environment"]))
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment, "NOTIFY_SOCKET": str(tmp_path / "notify")},
    ) as process:
        assert notified.recv(100) == b"READY=1"
        assert process.stdout is not None
        port = int(re.search(rb" at 127.0.0.1:(\d+),", process.stdout.readline())[1])  # type: ignore[index]
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
        process.send_signal(signal.SIGTERM)  # KillSignal= is not set: systemd's own choice
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors.decode()


def test_the_unit_restarts_after_a_crash_and_sets_time_and_file_limits(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["LimitNOFILE"]) >= 100_000
    assert service["User"] not in ("root", "")
    assert f"/var/lib/{service['StateDirectory']}" == service["WorkingDirectory"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_lines_for_a_cluster_are_a_cluster_configuration() -> None:
    lines = dict(re.findall(r"^#     ([a-z.]+)=(\S+)$", UNIT.read_text(), re.MULTILINE))
    config = BrokerConfig(lines)
    assert (config.unknown(), config.without_effect()) == ({}, [])
    assert config["zookeeper.connect"].count(":2181") == 3
    assert config.advertised_listeners[0].host == "broker1.example.org"
    assert config["default.replication.factor"] > config["min.insync.replicas"] > 1
    assert "After=zookeeper.service" in UNIT.read_text().splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "odradek.service"
    copy.write_text(UNIT.read_text().replace(INSTALLED, "/bin/true"))  # systemd-analyze requires an executable
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in ended.stderr.splitlines() if copy.name in line]
    assert complaints == []


# A parent that ends


@pytest.mark.slow
def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from odradek.broker_process import BrokerProcess\n"
        "broker = BrokerProcess(pathlib.Path(sys.argv[1])); broker.start()\n"
        "print(broker.pid, broker.port, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            parent.kill()
            parent.wait(DEADLINE_S)
            assert client.recv(1) == b""  # the broker closes its connections as it stops
    broker = BrokerProcess(tmp_path)
    with broker:
        assert broker.pid != pid  # the directory is free again
    assert "stopped" in broker.output
