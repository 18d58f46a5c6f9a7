"""docker-compose.yml on a real engine: `make compose-check` and `python -m tests compose-check`.

    python -m tests compose-check             everything, a few minutes once the images are built
    python -m tests compose-check --no-pipeline
    python -m tests compose-check --only-secure

Without an engine it prints why, and ends with status 0. It builds the images, starts ZooKeeper and three brokers,
drives them with the console tools of this machine, kills a leader and cuts another off its network under a load with
acks=all, stops everything and starts it over the same volumes, and runs the profile `pipeline` on a network that
reaches the brokers and nothing else. Then it starts the profile `secure`, in which alice, the administrator and clients
without a valid login connect from the host. It prints each result. The first check that fails ends it with status 1;
the containers, networks and volumes are removed in any case. It needs the ports 9092 to 9094 and 9192 to 9194 of this
machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import cluster_status
from odradek.admin import client as admin_client
from odradek.spark_jobs.pipeline import made_up_lines
from odradek.wire import parse_address
from tests.compose_check import secure, verdict
from tests.compose_check.engine import (
    BUILD_TIMEOUT_S,
    PROJECT,
    Compose,
    EngineError,
    inspect,
    reason_for_no_engine,
    run,
)
from tests.compose_check.verdict import CheckError, require
from tests.jvm.cache import FetchError
from tests.jvm.process import ToolError
from tests.jvm.tools import run_tool
from tests.support.checker import Log
from tests.support.eventually import eventually
from tests.support.workload import PRODUCERS, Workload

BROKERS: Final = {1: "broker-1", 2: "broker-2", 3: "broker-3"}
PORTS: Final = (9092, 9093, 9094)
BOOTSTRAP: Final = ",".join(f"localhost:{port}" for port in PORTS)
TOOLS: Final = "3.9.2"
LINES: Final = 1_000
TOPIC, PARTITIONS = "compose-check", 3
TIMEOUT_S: Final = 120.0
FAULT_S: Final = 10.0
"""How long the load continues without the broker, from the moment when all partitions are written again."""
PIPELINE_TIMEOUT_S: Final = 900.0
PIPELINE_LINES: Final = 1_000
PIPELINE_TOP: Final = 6
QUESTION_S: Final = 2.0


class Campaign:
    """The steps in their order, over one project; `folder` is for files of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = time.monotonic()
        self.compose: Compose = Compose()
        self._logs: Sequence[Log] = ()

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self._begun:6.1f} s] {line}", flush=True)

    # ---- the steps

    def up(self) -> None:
        """Build and start; one build, the health check of the image, one warning of a low limit, read-only roots."""
        verdict.require_one_build(self.compose.config(), list(BROKERS.values()))
        begun = time.monotonic()
        self.compose.run("up", "--build", "--detach", "--wait", timeout_s=BUILD_TIMEOUT_S)
        self.say(f"up: built by one service for all brokers, started, healthy after {time.monotonic() - begun:.1f} s")
        containers = {name: self.compose.container(name) for name in BROKERS.values()}
        image = inspect("odradek")
        verdict.require_image_health(image, containers)
        self.say("up: every broker runs this one image, and is healthy by the image's own check")
        for name in BROKERS.values():
            limit = int(self.compose.run("exec", "--no-TTY", name, "sh", "-c", "ulimit -Hn"))
            verdict.require_limit_warning(name, limit, self.compose.logs(name))
            self.say(f"{name}: the engine grants {limit} open files")
            verdict.require_read_only(name, containers[name], self.compose.logs(name))
        self.say("up: every broker has a read-only root, and writes to its volume only")
        self._await_in_sync()

    def console_tools(self) -> None:
        """Topics, producer and consumer of Kafka, on the host, by the published ports."""
        at = ["--bootstrap-server", BOOTSTRAP]
        run_tool(TOOLS, "kafka-topics", [*at, "--create", "--topic", "console", "--partitions", "3"])
        described = run_tool(TOOLS, "kafka-topics", [*at, "--describe", "--topic", "console"]).stdout
        require("ReplicationFactor: 3" in described, f"kafka-topics --describe printed {described}")
        text = "".join(f"line {number}\n" for number in range(LINES))
        acks = ["--producer-property", "acks=all"]
        run_tool(TOOLS, "kafka-console-producer", [*at, "--topic", "console", *acks], stdin=text)
        self._read_console_lines()

    def faults(self) -> None:
        """A leader is killed, another is cut off its network, under a load with acks=all; then every record is
        checked.
        """
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(BROKERS))])[TOPIC].result(TIMEOUT_S)
        self._await_in_sync()
        producers = {name: PRODUCERS[name] for name in ("once", "again")}
        with Workload(BOOTSTRAP, TOPIC, PARTITIONS, producers) as workload:
            workload.await_progress()
            self._kill(0, workload)
            self._cut(1, workload)
            workload.progress_for(FAULT_S)
            final = workload.finish()
            count = verdict.require_nothing_lost(workload.history, final)
            self._logs = final
            self.say(f"load: {count} records acknowledged, all are there, none is read that was not sent")
            others = dict(workload.errors)
            self.say(f"load: errors that clients received: {others}")

    def down_and_up(self, override: Path) -> None:
        """The volumes outlive the containers; from here on the brokers are also in the network of `override`."""
        self.compose.run("down", timeout_s=TIMEOUT_S)
        self.say("down: containers and networks are gone, volumes stay")
        self.compose = Compose(override)
        self.compose.run("up", "--detach", "--wait", timeout_s=TIMEOUT_S)
        self._await_in_sync()
        count = verdict.require_same_logs(self._logs, read_all(TOPIC, PARTITIONS))
        self.say(f"up again: the same {count} records at the same offsets")
        self._read_console_lines()

    def pipeline(self, report: Path) -> None:
        """The profile, on a network without a way out."""
        self.compose.run("--profile", "pipeline", "build", "pipeline", timeout_s=BUILD_TIMEOUT_S)
        self.say("the image of the pipeline is built")
        begun = time.monotonic()
        network = inspect(f"{PROJECT}_sealed")
        require(network["Internal"] is True, "the network of the pipeline has a way out")
        self.compose.run("run", "--rm", "--no-deps", "--no-TTY", "pipeline", timeout_s=PIPELINE_TIMEOUT_S)
        words = report / "words"
        text = (words / "report.txt").read_text()
        verdict.require_word_counts(text, made_up_lines(PIPELINE_LINES), PIPELINE_TOP)
        parquet = list((words / "windows").rglob("*.parquet"))
        picture = (words / "report.png").read_bytes()
        require(bool(parquet) and picture.startswith(b"\x89PNG"), "the pipeline wrote no Parquet files or no picture")
        took = time.monotonic() - begun
        self.say(f"pipeline: without a network, {len(parquet)} Parquet files, a picture, exact counts in {took:.0f} s")

    def secure(self) -> None:
        """The profile: logins and ACLs, no password in a log or a process title, and all that again after `down`."""
        self.compose.run("--profile", "*", "down", "--volumes")
        begun = time.monotonic()
        self.compose.run("up", "--build", "--detach", "--wait", *secure.BROKERS, timeout_s=BUILD_TIMEOUT_S)
        self.say(f"secure: healthy by checks over TLS after {time.monotonic() - begun:.1f} s")
        ca = self._folder / "ca.pem"
        ca.write_text(self._in_secure_broker("cat /etc/odradek/ca.pem"))
        count = secure.require_secure(secure.BOOTSTRAP, ca)
        self.say(f"secure: alice wrote and read {count} records; wrong passwords and clients without TLS are refused")
        self._require_secure_without_secrets()
        self.compose.run("--profile", "secure", "down", timeout_s=TIMEOUT_S)
        self.compose.run("up", "--detach", "--wait", *secure.BROKERS, timeout_s=TIMEOUT_S)
        again = secure.write(secure.login(secure.BOOTSTRAP, ca, *secure.ALICE), 1)
        require(again == [None], f"after down and up, alice's record has the results {again}")
        self._require_secure_without_secrets()
        self.say("secure: down and up keep users, ACLs and the authority; no log or process title has a password")

    # ---- faults

    def _kill(self, partition: int, workload: Workload) -> None:
        leader = self._leader(partition)
        container = self.compose.container(BROKERS[leader])["Id"]
        run(["docker", "kill", container])
        self.say(f"killed {BROKERS[leader]}, the leader of partition {partition}")
        self._await_other_leader(partition, leader, workload)
        run(["docker", "start", container])
        self._await_return(leader)

    def _cut(self, partition: int, workload: Workload) -> None:
        leader = self._leader(partition)
        name = BROKERS[leader]
        container, network = self.compose.container(name)["Id"], f"{PROJECT}_default"
        run(["docker", "network", "disconnect", network, container])
        self.say(f"cut {name}, the leader of partition {partition}, off its network")
        self._await_other_leader(partition, leader, workload)
        run(["docker", "network", "connect", "--alias", name, network, container])
        self._await_return(leader)

    def _await_other_leader(self, partition: int, before: int, workload: Workload) -> None:
        begun = time.monotonic()
        self._await(lambda: self._leader(partition) not in (before, -1), "another leader")
        workload.await_progress()
        self.say(f"partition {partition} has another leader; all are written after {time.monotonic() - begun:.1f} s")
        workload.progress_for(FAULT_S)

    def _await_return(self, broker: int) -> None:
        begun = time.monotonic()
        self._await_in_sync()
        self.say(f"{BROKERS[broker]} is in sync again after {time.monotonic() - begun:.1f} s")

    # ---- the profile `secure`

    def _in_secure_broker(self, script: str) -> str:
        return self.compose.run("exec", "--no-TTY", secure.BROKERS[0], "sh", "-c", script)

    def _require_secure_without_secrets(self) -> None:
        files = self._in_secure_broker("cat /etc/odradek/broker.properties /etc/odradek/zookeeper-jaas.conf")
        texts = {f"log of {name}": "\n".join(self.compose.logs(name)) for name in secure.SERVICES}
        for name in (*secure.BROKERS, "secure-zookeeper"):
            titles = self.compose.run("exec", "--no-TTY", name, "sh", "-c", "cat /proc/[0-9]*/cmdline")
            texts[f"process titles of {name}"] = titles
        secure.require_no_secret(secure.passwords_in(files), texts)

    # ---- the cluster, from the host

    def _read_console_lines(self) -> None:
        asked = ["--bootstrap-server", BOOTSTRAP, "--topic", "console", "--from-beginning"]
        limits = ["--max-messages", str(LINES), "--timeout-ms", "60000"]
        read = run_tool(TOOLS, "kafka-console-consumer", [*asked, *limits]).stdout.splitlines()
        expected = sorted(f"line {number}" for number in range(LINES))
        require(sorted(read) == expected, f"the console consumer read {len(read)} lines of {LINES}, or others")
        self.say(f"console tools on the host: {len(read)} lines written and read")

    def _leader(self, partition: int) -> int:
        """The leader, by the first broker that answers; -1 where none does, or there is none."""
        try:
            status = gathered(BOOTSTRAP)
        except OSError:
            return -1
        found = (p.leader for p in status.partitions if (p.topic, p.partition) == (TOPIC, partition))
        return next(found, -1)

    def _await_in_sync(self) -> None:
        self._await(is_in_sync, "brokers in sync")

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        try:
            eventually(holds, describe=what, timeout_s=TIMEOUT_S)
        except AssertionError as late:
            raise CheckError(str(late)) from late


def gathered(bootstrap: str) -> cluster_status.ClusterStatus:
    """The cluster, by the first broker that answers. Raises OSError."""
    with admin_client.AdminClient(
        [parse_address(each) for each in bootstrap.split(",")], timeout_s=QUESTION_S
    ) as client:
        return cluster_status.gather(client)


def is_in_sync() -> bool:
    """Whether every broker returns the same cluster, and in it all brokers and every replica in sync.

    A broker that comes back returns the cluster as it was until the controller has sent it the new state.
    """
    try:
        views = [gathered(f"localhost:{port}") for port in PORTS]
    except OSError:
        return False
    notified = [[(p.topic, p.partition, p.leader, p.leader_epoch, p.isr) for p in each.partitions] for each in views]
    if any(each != notified[0] for each in notified) or any(len(each.brokers) < len(BROKERS) for each in views):
        return False
    return not any(p.remark for p in views[0].partitions) and not any(b.error for b in views[0].brokers)


def read_all(topic: str, partitions: int) -> Sequence[Log]:
    """All records of a topic, by a reader without a group."""
    with Workload(BOOTSTRAP, topic, partitions, {}) as reader:
        return reader.finish()


def sealed(folder: Path, report: Path) -> Path:
    """The file that puts brokers and pipeline into a network without a way out, and the report into `report`."""
    services: dict[str, object] = {name: {"networks": ["default", "sealed"]} for name in BROKERS.values()}
    services["pipeline"] = {"networks": ["sealed"], "volumes": [f"{report}:/report"]}
    path = folder / "sealed.json"
    path.write_text(json.dumps({"services": services, "networks": {"sealed": {"internal": True}}}))
    return path


def taken_ports() -> list[int]:
    """The published ports that are already in use."""
    taken = []
    for port in (*PORTS, *secure.PORTS):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    return taken


def check(*, pipeline: bool, only_secure: bool = False) -> None:
    """All steps, or those of the profile `secure`.

    Raises CheckError, EngineError, ToolError, FetchError, TimeoutError or AssertionError.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-compose-check-", ignore_cleanup_errors=True) as scratch:
        folder, report = Path(scratch), Path(scratch) / "report"
        report.mkdir()
        campaign = Campaign(folder)
        campaign.compose.run("--profile", "*", "down", "--volumes", "--remove-orphans")
        if taken := taken_ports():
            raise CheckError(f"something listens at the ports {taken}, which docker-compose.yml publishes: stop it")
        try:
            if not only_secure:
                campaign.up()
                campaign.console_tools()
                campaign.faults()
                campaign.down_and_up(sealed(folder, report))
            if pipeline and not only_secure:
                campaign.pipeline(report)
            campaign.secure()
            campaign.say("everything matches docker-compose.yml")
        finally:
            campaign.compose.run("--profile", "*", "down", "--volumes", "--remove-orphans")


def main(arguments: Sequence[str]) -> int:
    """Runs the check, or prints why it cannot; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests compose-check", description=__doc__.partition("\n")[0])
    parser.add_argument("--no-pipeline", action="store_true", help="leave out the profile, whose image is large")
    parser.add_argument("--only-secure", action="store_true", help="the profile `secure`, and nothing else")
    options = parser.parse_args(arguments)
    if reason := reason_for_no_engine():
        print(f"compose-check skipped: {reason}")
        return 0
    try:
        check(pipeline=not options.no_pipeline, only_secure=options.only_secure)
    except (CheckError, EngineError, ToolError, FetchError, TimeoutError, AssertionError) as error:
        print(f"compose-check failed: {error}", file=sys.stderr)
        return 1
    return 0
