"""Runner of the examples: options, topics, generated input, and a clean shutdown.

An example passes its topology and a few settings to `run`. Your own application needs none of this: it creates a
KafkaStreams and calls its `run` (docs/streams.md).
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.streams.errors import StreamsError
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.topology import Topology

TIMEOUT_S: Final = 30.0
ANSWER_S: Final = 10.0
"""How long to wait for the first response of a broker."""


class Written(NamedTuple):
    """One record of an example's input, as bytes."""

    topic: str
    key: bytes | None
    value: bytes | None


def parser(module_doc: str | None, application_id: str, *, rate: float | None = None) -> argparse.ArgumentParser:
    """The options that all examples have; the help shows the module's own text, with a session.

    `rate` is the default number of generated records a second; None: the example generates none.
    """
    command = re.search(r"python -m \S+", module_doc or "")
    options = argparse.ArgumentParser(
        prog=command[0] if command is not None else None,
        description=module_doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument(
        "--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT", help="default: %(default)s"
    )
    options.add_argument("--application-id", default=application_id, metavar="NAME", help=f"default: {application_id}")
    options.add_argument("--partitions", type=int, default=2, metavar="N", help="of topics that are made: %(default)s")
    options.add_argument("--seconds", type=float, metavar="N", help="how long to run; without it until ctrl-C")
    options.add_argument(
        "--state-dir", metavar="FOLDER", help="where state is kept; default: below the temporary folder"
    )
    options.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the application, as num.stream.threads=2",
    )
    options.add_argument("--log", action="store_true", help="show what the runtime writes on its log")
    if rate is not None:
        options.add_argument(
            "--rate", type=float, default=rate, metavar="N", help="records a second to make up: %(default)g; 0: none"
        )
    return options


def configuration(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The application's properties: those of the example, overridden by those of the command line."""
    config: dict[str, Any] = {
        "application.id": arguments.application_id,
        "bootstrap.servers": arguments.bootstrap_servers,
        "commit.interval.ms": 1000,
        # The group removes a killed instance after six seconds rather than 45, and its partitions go to another one.
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        **(defaults or {}),
    }
    if arguments.state_dir is not None:
        config["state.dir"] = arguments.state_dir
    for text in arguments.property:
        name, equals, value = text.partition("=")
        if not equals:
            raise SystemExit(f"--property {text}: must be NAME=VALUE")
        config[name] = value
    return config


def make_topics(
    bootstrap: str, partitions: int, topics: Iterable[str], config: Mapping[str, str] | None = None
) -> None:
    """Create topics, unless they exist. Raises SystemExit where no broker answers or one rejects the request."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        admin.list_topics(timeout=ANSWER_S)
    except KafkaException:
        raise SystemExit(
            f"no broker answers at {bootstrap} (--bootstrap-servers); `odradek broker` starts one"
        ) from None
    wanted = [NewTopic(name, partitions, -1, config=dict(config or {})) for name in topics]
    for name, future in admin.create_topics(wanted, request_timeout=TIMEOUT_S).items():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SystemExit(f"topic {name} could not be created at {bootstrap}: {error.str()}") from None


class Feeding:
    """Writes generated input, so many records a second, in a separate thread."""

    def __init__(self, bootstrap: str, records: Iterator[Written], rate: float) -> None:
        # Keys have to be in the partitions that Java and the runtime choose; librdkafka's own choice is another.
        settings = {"partitioner": "murmur2_random", "linger.ms": 5, "enable.idempotence": True}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._records = records
        self._pause_s = 1 / rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="input", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        for record in self._records:
            self._producer.produce(record.topic, record.value, record.key)
            self._producer.poll(0)
            if self._ended.wait(self._pause_s):
                return

    def close(self) -> None:
        """Stop writing, and wait until all records are acknowledged."""
        self._ended.set()
        self._thread.join()
        self._producer.flush(TIMEOUT_S)


def run(
    topology: Topology,
    config: Mapping[str, Any],
    arguments: argparse.Namespace,
    *,
    made_up: Iterator[Written] | None = None,
    while_running: Callable[[KafkaStreams], None] | None = None,
) -> int:
    """Run until ctrl-C, the end of the time or a failure. Returns the exit status.

    `made_up` is written meanwhile, at the rate of the command line. `while_running` is called once the client is
    running.
    """
    if arguments.log:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")

    def changed(state: State, before: State) -> None:
        print(f"{config['application.id']}: {state.name}", flush=True)

    streams = KafkaStreams(topology, config, state_listener=changed)
    with contextlib.ExitStack() as opened:

        def started() -> None:
            if made_up is not None and arguments.rate > 0:
                opened.callback(Feeding(config["bootstrap.servers"], made_up, arguments.rate).close)
            if while_running is not None:
                while_running(streams)

        try:
            return streams.run(arguments.seconds, on_start=started, close_timeout_s=TIMEOUT_S)
        except StreamsError as error:
            print(f"failed: {error}", flush=True)
            return 1
