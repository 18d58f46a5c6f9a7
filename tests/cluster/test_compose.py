"""The compose file and the Dockerfile against what they start, on a machine without an engine.

Every service's command, environment and health check runs as in a container, with three things mapped: a service's name
and port to a free port of this machine, a published port to the same, and a volume to a folder. ZooKeeper's service is
the real server of Kafka's jars, with the configuration that the image's entry point would write from the environment.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer

from odradek.broker.runtime.open_files import RECOMMENDED
from odradek.spark_jobs import fetch_connector, pipeline
from odradek.spark_jobs.connector import JARS_VARIABLE
from tests.cluster.compose_machine import (
    BROKERS,
    COMPOSE,
    COMPOSE_TEXT,
    DEADLINE_S,
    DOCKERFILE,
    PROFILES,
    ROOT,
    SERVICES,
    VERSION,
    Machine,
    image_environment,
    image_health_check,
    instruction,
)
from tests.compose_check.verdict import READ_ONLY, VOLUME
from tests.jvm.kafka import free_port
from tests.jvm.process import BackgroundProcess
from tests.jvm.tools import run_tool

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def running(machine: Machine) -> Iterator[dict[str, BackgroundProcess]]:
    """All services, started in the order of their conditions, healthy; ended in the other order."""
    started: dict[str, BackgroundProcess] = {}
    try:
        for name, service in SERVICES.items():
            for other, needs in service.get("depends_on", {}).items():
                assert needs == {"condition": "service_healthy"}
                machine.await_healthy(other, started[other])
            is_broker = name in BROKERS
            started[name] = machine.start_broker(name) if is_broker else machine.start_zookeeper(name)
        for name, process in started.items():
            machine.await_healthy(name, process)
        yield started
    finally:
        for process in reversed(started.values()):
            process.kill()


@pytest.mark.jvm
def test_the_services_are_a_cluster_for_stock_tools_on_the_host(
    machine: Machine, running: dict[str, BackgroundProcess]
) -> None:
    bootstrap = ",".join(machine.address(f"localhost:{port}") for port in (9092, 9093, 9094))
    run_tool(
        VERSION, "kafka-topics", ["--bootstrap-server", bootstrap, "--create", "--topic", "hello", "--partitions", "3"]
    )
    described = run_tool(VERSION, "kafka-topics", ["--bootstrap-server", bootstrap, "--describe", "--topic", "hello"])
    assert described.stdout.count("Isr: ") == 3
    assert "ReplicationFactor: 3" in described.stdout
    assert "min.insync.replicas=2" in described.stdout
    lines = [f"line {number}" for number in range(100)]
    producer = ["--bootstrap-server", bootstrap, "--topic", "hello", "--producer-property", "acks=all"]
    run_tool(VERSION, "kafka-console-producer", producer, stdin="".join(f"{line}\n" for line in lines))
    consumer = ["--bootstrap-server", bootstrap, "--topic", "hello", "--from-beginning", "--max-messages", "100"]
    consumed = run_tool(VERSION, "kafka-console-consumer", [*consumer, "--timeout-ms", "30000"])
    assert sorted(consumed.stdout.splitlines()) == sorted(lines)
    for name in reversed(BROKERS):
        assert running[name].stop() == 0, running[name].stderr.lines()[-30:]


def test_every_service_has_a_health_check_a_volume_and_a_restart_policy() -> None:
    assert len(BROKERS) == 3
    of_image, _ = image_health_check()
    assert set(of_image) == {"interval", "timeout", "retries", "start-period"}
    for name, service in SERVICES.items():
        if name in BROKERS:
            assert "healthcheck" not in service, f"{name}: a broker's health check is that of the image"
        else:
            assert {"test", "interval", "timeout", "retries", "start_period"} <= set(service["healthcheck"]), name
        assert service["restart"] == "unless-stopped", name
        for volume in service["volumes"]:
            assert volume.split(":")[0] in COMPOSE["volumes"], name


def test_one_service_builds_the_image_of_all_brokers_and_none_pulls_it() -> None:
    assert [name for name in BROKERS if "build" in SERVICES[name]] == BROKERS[:1]
    assert {SERVICES[name]["pull_policy"] for name in BROKERS} == {"never"}


def test_no_service_sets_a_limit_that_an_engine_may_reject() -> None:
    """Rootless engines and CI sandboxes reject a container whose limit is above their own."""
    for name, service in COMPOSE["services"].items():
        assert "ulimits" not in service, name
    (override,) = re.findall(r"^# +(services: \{.*\})$", COMPOSE_TEXT, re.MULTILINE)
    limits = yaml.safe_load(override)["services"]
    assert limits == {name: {"ulimits": {"nofile": RECOMMENDED}} for name in BROKERS}


def test_the_image_of_the_pipeline_carries_the_connectors_jars() -> None:
    begin = DOCKERFILE.index("\nFROM build AS pipeline\n")
    stage = DOCKERFILE[begin : DOCKERFILE.index("\nFROM ", begin + 1)]
    (folder,) = re.findall(rf"^RUN \S+/python -m {fetch_connector.__name__} (\S+)", stage, re.MULTILINE)
    assert f"ENV {JARS_VARIABLE}={folder}\n" in stage
    # In /source the folder odradek would be imported in place of the installed package.
    assert stage.index("WORKDIR ") < stage.index(fetch_connector.__name__)


def test_brokers_share_no_id_port_or_volume() -> None:
    for key in ("ports", "volumes"):
        assert len({str(SERVICES[name][key]) for name in BROKERS}) == 3
    assert len({SERVICES[name]["environment"]["KAFKA_BROKER_ID"] for name in BROKERS}) == 3


def test_the_profile_of_the_pipeline_runs_a_valid_command_line() -> None:
    service = PROFILES["pipeline"]
    assert service["profiles"] == ["pipeline"]
    assert set(service["depends_on"]) == set(BROKERS)
    options = pipeline.command.make_context("pipeline", list(service["command"])).params
    hosts = [address.rpartition(":")[0] for address in options["bootstrap"].split(",")]
    assert hosts == BROKERS
    assert Path(options["output"]).parent == Path(service["volumes"][0].split(":")[1])
    stage = f"\nFROM build AS {service['build']['target']}\n"
    assert f'"-m", "{pipeline.__name__}"]' in DOCKERFILE[DOCKERFILE.index(stage) : DOCKERFILE.rindex("\nFROM ")]


# The Dockerfile


def copied() -> list[str]:
    """The paths that the Dockerfile copies from the source tree."""
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    return [path for line in lines for path in line.split()]


def test_every_copied_file_exists_and_is_sent_to_the_engine() -> None:
    wanted, *rules = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert wanted == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    assert set(copied()) == sent
    for path in copied():
        assert (ROOT / path).exists(), path
        assert not any(fnmatch.fnmatch(path, rule) for rule in rules if not rule.startswith("!"))


def test_the_broker_does_not_run_as_root_and_owns_its_volume() -> None:
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    (user,) = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
    (volume,) = re.findall(r"^VOLUME (\S+)$", last_stage, re.MULTILINE)
    assert user not in ("root", "0")
    assert f"--owner={user} --group={user} {volume}\n" in last_stage
    assert image_environment()["KAFKA_LOG_DIRS"] == volume
    assert last_stage.index("install --directory") < last_stage.index(f"USER {user}") < last_stage.index("VOLUME")


def test_every_broker_has_a_read_only_root() -> None:
    assert {SERVICES[name]["read_only"] for name in BROKERS} == {True}
    assert {volume.split(":")[1] for name in BROKERS for volume in SERVICES[name]["volumes"]} == {VOLUME}
    assert image_environment()["KAFKA_LOG_DIRS"] == VOLUME
    assert image_environment()["PYTHONDONTWRITEBYTECODE"] == "1"


def read_only_root(volume: Path) -> list[str]:
    """The words before a command that runs it with a file system on which only `volume` is writable."""
    names = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind / && exec "$@"'
    return ["unshare", "--mount", *names, "sh", "-c", script, str(volume)]


@pytest.mark.slow
def test_a_broker_writes_nothing_outside_its_volume(tmp_path: Path) -> None:
    """With the image's environment, over a crash, a recovery and the processes that do it."""
    volume, outside, port = tmp_path / "volume", tmp_path / "outside", free_port()
    volume.mkdir()
    sealed = read_only_root(volume)
    try:
        probed = subprocess.run([*sealed, "touch", str(outside)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if READ_ONLY not in probed.stderr:
        pytest.skip(f"no mount namespace with a read-only root here: {probed.stderr.strip()}")
    address = f"PLAINTEXT://127.0.0.1:{port}"
    environment = {**image_environment(), "KAFKA_LISTENERS": address, "KAFKA_ADVERTISED_LISTENERS": address}
    environment |= {"KAFKA_LOG_DIRS": str(volume), "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1", "HOME": str(outside)}
    environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] = "1"
    assignments = [f"{name}={value}" for name, value in environment.items() if name != "PATH"]
    command = ["env", "-i", *assignments, sys.executable, "-P", "-m", *instruction("ENTRYPOINT"), *instruction("CMD")]
    for records_before in (0, 100):
        broker = BackgroundProcess([*sealed, *command])
        try:
            broker.stdout.wait_for("ready: ", DEADLINE_S)
            assert write_and_read(f"127.0.0.1:{port}", 100) == records_before + 100
        finally:
            broker.kill()
        assert [line for line in broker.stderr.lines() if READ_ONLY in line] == []
    assert [path.name for path in tmp_path.iterdir()] == [volume.name]


def write_and_read(bootstrap: str, count: int) -> int:
    """Writes records and returns how many the topic then has, as a new group reads them."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce("sealed", value=str(number))
    assert producer.flush(DEADLINE_S) == 0
    group = f"readers-{uuid.uuid4()}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["sealed"])
    read = 0
    try:
        while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
            read += 1
    finally:
        consumer.close()
    error = message.error() if message is not None else None
    assert error is not None, "no end of the partition within the timeout"
    assert error.code() == KafkaError._PARTITION_EOF, error
    return read


@pytest.mark.slow
def test_the_image_is_built_from_the_copied_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for path in copied():
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, source / path, ignore=ignore)
        else:
            shutil.copy(ROOT / path, source / path)
    (install,) = re.findall(r"^RUN (python -m venv .*)$", DOCKERFILE, re.MULTILINE)
    install = install.replace("/opt/odradek", str(target)).replace("python -m venv", f"{sys.executable} -m venv", 1)
    install = install.replace("--no-cache-dir ", "")  # that is for the size of the image
    # No bytecode of dependencies and no optimized C, which take most of the time. pip enables --no-compile by `no`.
    quick = {**os.environ, "PIP_NO_COMPILE": "no", "CFLAGS": "-O0"}
    ended = subprocess.run(
        ["sh", "-ec", install], cwd=source, env=quick, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    environment = {"PATH": f"{target}/bin:{os.environ['PATH']}"}
    printed = subprocess.run(
        ["odradek", "--version"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert printed.stdout.startswith("odradek ")
    check = "import odradek.broker.server, odradek.protocol.messages as m; print(m.ProduceRequest.MAX_VERSION)"
    subprocess.run([f"{target}/bin/python", "-c", check], cwd=tmp_path, timeout=60, check=True)
