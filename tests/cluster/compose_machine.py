"""The compose file and the Dockerfile as data, and this machine in place of their containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.jvm.kafka import free_port
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, java_command
from tests.support.eventually import eventually

DEADLINE_S = 60
ROOT = Path(__file__).resolve().parents[2]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(COMPOSE_TEXT)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROFILES: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if "profiles" in service
}
SERVICES: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if name not in PROFILES
}
BROKERS = [name for name, service in SERVICES.items() if service["image"] == "odradek"]
VERSION = "3.9.2"
# Settings of the ZooKeeper image that the compose file does not override.
ZOOKEEPER_DEFAULTS = {
    "ZOO_TICK_TIME": "2000",
    "ZOO_INIT_LIMIT": "5",
    "ZOO_SYNC_LIMIT": "2",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "0",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "3",
    "ZOO_MAX_CLIENT_CNXNS": "60",
    "ZOO_STANDALONE_ENABLED": "true",
    "ZOO_ADMINSERVER_ENABLED": "true",
}


class Machine:
    """This machine in place of the containers of some services: the address of each of their ports and folders."""

    def __init__(self, folder: Path, services: dict[str, dict[str, Any]] = SERVICES) -> None:
        self._folder = folder
        self.services = services
        self._ports: dict[tuple[str, int], int] = {}
        self._published: dict[int, int] = {}
        for name, service in self.services.items():
            for published in service.get("ports", []):
                outside, inside = map(int, published.split(":"))
                self._published[outside] = self.port(name, inside)

    def port(self, service: str, port: int) -> int:
        return self._ports.setdefault((service, port), free_port())

    def published(self, port: int) -> int:
        """The local address of a published port of the compose file; any other port is a KeyError."""
        return self._published[port]

    def volume(self, service: str, path: str) -> Path:
        """The folder in place of a path that is a volume of the service; any other is an error."""
        mounted = {path: name for name, path, *_ in (v.split(":") for v in self.services[service].get("volumes", []))}
        assert path in mounted, f"{service} would write to {path} in the container, which is no volume"
        return self._folder / "volumes" / mounted[path]

    def address(self, text: str) -> str:
        """host:port, as the network of the containers or the host has it -> as this machine has it."""
        host, _, port = text.rpartition(":")
        local = self.published(int(port)) if host == "localhost" else self.port(host, int(port))
        return f"127.0.0.1:{local}"

    def listeners(self, service: str, text: str) -> str:
        """`listeners`: those of the container."""
        return re.sub(r"://:(\d+)", lambda found: f"://127.0.0.1:{self.port(service, int(found[1]))}", text)

    def advertised(self, text: str) -> str:
        return re.sub(r"://([^,]+)", lambda found: f"://{self.address(found[1])}", text)

    def mapped(self, service: str, text: str) -> str:
        """Paths of the service's container, as this machine has them; a service with such paths overrides this."""
        return text

    def _within(self, service: str, text: str) -> str:
        """localhost:19092, or localhost/19092, of the container."""
        pattern = r"\blocalhost([:/])(\d+)"
        return re.sub(pattern, lambda found: f"127.0.0.1{found[1]}{self.port(service, int(found[2]))}", text)

    def is_healthy(self, service: str) -> bool:
        """Run the health check as the engine would, within the container: the service's, or that of the image."""
        if "healthcheck" in self.services[service]:
            kind, *command = self.services[service]["healthcheck"]["test"]
            assert kind == "CMD"
            here = [self._within(service, word) for word in command]
            allowed = self.services[service]["healthcheck"]["timeout"]
            environment = dict(os.environ)
        else:
            options, command = image_health_check()
            assert command[0] == "odradek"
            here = [sys.executable, "-m", *command]
            allowed = options["timeout"]
            environment = {**os.environ, **self.broker_environment(service)}
        allowed_s = float(allowed.removesuffix("s"))
        try:
            ended = subprocess.run(here, env=environment, capture_output=True, timeout=allowed_s, check=False)
            return ended.returncode == 0
        except subprocess.TimeoutExpired:
            return False  # as for the engine

    def await_healthy(self, service: str, process: BackgroundProcess) -> None:
        def log() -> str:
            return f"{service} is healthy; its log:\n" + "\n".join(process.stderr.lines()[-30:])

        def is_healthy() -> bool:
            healthy = self.is_healthy(service)
            assert healthy or process.running, log()
            return healthy

        eventually(is_healthy, describe=log)

    def start_zookeeper(self, service: str) -> BackgroundProcess:
        environment = {**ZOOKEEPER_DEFAULTS, **{k: str(v) for k, v in self.services[service]["environment"].items()}}
        data, log = self.volume(service, "/data"), self.volume(service, "/datalog")
        data.mkdir(parents=True, exist_ok=True)
        known = {
            "tickTime": environment.pop("ZOO_TICK_TIME"),
            "initLimit": environment.pop("ZOO_INIT_LIMIT"),
            "syncLimit": environment.pop("ZOO_SYNC_LIMIT"),
            "autopurge.snapRetainCount": environment.pop("ZOO_AUTOPURGE_SNAPRETAINCOUNT"),
            "autopurge.purgeInterval": environment.pop("ZOO_AUTOPURGE_PURGEINTERVAL"),
            "maxClientCnxns": environment.pop("ZOO_MAX_CLIENT_CNXNS"),
            "standaloneEnabled": environment.pop("ZOO_STANDALONE_ENABLED"),
            "admin.enableServer": environment.pop("ZOO_ADMINSERVER_ENABLED"),
            "4lw.commands.whitelist": environment.pop("ZOO_4LW_COMMANDS_WHITELIST", "srvr"),
        }
        options = (*QUICK_START, *QUIET, *self.mapped(service, environment.pop("SERVER_JVMFLAGS", "")).split())
        assert environment == {}, "variables that ZooKeeper's image does not have"
        own = {"dataDir": data, "dataLogDir": log, "clientPort": self.port(service, 2181)}
        config = self._folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in {**known, **own}.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return BackgroundProcess(java_command(VERSION, main, [str(config)], options))

    def broker_environment(self, service: str) -> dict[str, str]:
        """The environment of the image and the service, with the addresses and folders of this machine."""
        environment = {**image_environment(), **{k: str(v) for k, v in self.services[service]["environment"].items()}}
        hosts, slash, chroot = environment["KAFKA_ZOOKEEPER_CONNECT"].partition("/")
        environment["KAFKA_ZOOKEEPER_CONNECT"] = self.address(hosts) + slash + chroot
        environment["KAFKA_LISTENERS"] = self.listeners(service, environment["KAFKA_LISTENERS"])
        environment["KAFKA_ADVERTISED_LISTENERS"] = self.advertised(environment["KAFKA_ADVERTISED_LISTENERS"])
        environment["KAFKA_LOG_DIRS"] = str(self.volume(service, environment["KAFKA_LOG_DIRS"]))
        environment.pop("PATH")
        return environment

    def start_broker(self, service: str) -> BackgroundProcess:
        environment = self.broker_environment(service)
        command = [*instruction("ENTRYPOINT"), *instruction("CMD")]
        assert command[0] == "odradek"
        assignments = [f"{name}={value}" for name, value in environment.items()]
        return BackgroundProcess(["env", *assignments, sys.executable, "-m", *command])


def instruction(name: str) -> list[str]:
    """The words of the Dockerfile's last ENTRYPOINT or CMD."""
    words: list[str] = json.loads(re.findall(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return words


def image_environment() -> dict[str, str]:
    """The variables of the Dockerfile's ENV."""
    text = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)[-1]
    return dict(item.split("=", 1) for item in shlex.split(text.replace("\\\n", " ")))


def image_health_check() -> tuple[dict[str, str], list[str]]:
    """Options and words of the Dockerfile's HEALTHCHECK, which belongs to the last stage: that of the brokers."""
    ((options, words),) = re.findall(r"^HEALTHCHECK (.*) CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert DOCKERFILE.rindex("\nHEALTHCHECK ") > DOCKERFILE.rindex("\nFROM ")
    command: list[str] = json.loads(words)
    return dict(option.removeprefix("--").split("=", 1) for option in options.split()), command
