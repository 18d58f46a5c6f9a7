"""The command line: its output, on which stream, and the status with which it ends.

A command that ends before a broker starts is run as a real process; for a server that ends in a certain way a function
takes its place.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import odradek
import odradek.broker
from odradek.broker.config.broker_config import BrokerConfig
from odradek.cli import main
from odradek.cluster_process import RegistryProcess
from odradek.log_lines import JsonLines, TextLines
from odradek.ports import free_port
from odradek.protocol.errors import ErrorCode, KafkaError

Run = Callable[..., int]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Run], None]]:
    """Puts a function in the place of `odradek.broker.server.run`, and restores the log afterwards."""

    def stand_in(run: Run) -> None:
        server = types.ModuleType("odradek.broker.server")
        server.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "odradek.broker.server", server)
        monkeypatch.setattr(odradek.broker, "server", server, raising=False)

    logger = logging.getLogger("odradek")
    before = logger.handlers[:], logger.level, logger.propagate
    yield stand_in
    logger.handlers[:], logger.level, logger.propagate = before


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["broker", *arguments])


def odradek_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ready_line(*arguments: str) -> str:
    """The output of a broker when it serves; it is stopped then, with status 0."""
    command = [sys.executable, "-m", "odradek", "broker", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    return line


# Real processes


def test_a_start_imports_no_module_that_it_does_not_need(tmp_path: Path) -> None:
    """Each 100 modules are about 50 ms of every start. Over the limit, import some of them where they are used."""
    properties = ("broker.id=0", "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}")
    command = [sys.executable, "-X", "importtime", "-m", "odradek", "broker"]
    command += [f"--override={each}" for each in properties]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert " ready: " in process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=60)
    imported = [line.rpartition("|")[2].strip() for line in log.splitlines() if line.startswith("import time:")]
    imported = imported[: imported.index("uvloop")]  # the last one before the start; threads import the codecs
    unused = {"argparse", "cryptography", "http", "importlib.metadata", "kazoo", "lz4", "multiprocessing"}
    unused |= {"email.message", "prometheus_client", "zipfile", "zstandard"}
    assert unused & {*imported} == set()
    assert 500 < len(imported) < 625


def test_the_module_is_the_command() -> None:
    assert odradek_process("--version").stdout == f"odradek {odradek.__version__}\n"
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert odradek.__version__ == project["version"], "install the clone again: make check does"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--override", "log.segment.bytes=x"], ["Invalid value x for configuration log.segment.bytes", "[14,...]"]),
        (["--override", "log.segment.bytes"], ["log.segment.bytes", "key=value"]),
        (["--override", "listeners=9092"], ["listeners", "9092", "NAME://host:port"]),
        (["no/such.properties"], ["no/such.properties", "No such file"]),
        (["."], ["Is a directory"]),
    ],
)
def test_an_error_is_one_line_and_status_1(arguments: list[str], printed: list[str]) -> None:
    ended = odradek_process("broker", *arguments)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("odradek: ")
    assert ended.stderr.count("\n") == 1
    assert [words for words in printed if words not in ended.stderr] == []


def test_a_broken_file_is_reported_as_the_command_line_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.cleanup.policy=purge\n")
    ended = odradek_process("broker", str(file))
    assert ended.returncode == 1
    assert "Invalid value purge for configuration log.cleanup.policy" in ended.stderr


QUICKSTART = """
broker.id=0
num.network.threads=3
listeners=PLAINTEXT://127.0.0.1:0
log.dirs={folder}/kafka-logs
num.partitions=1
offsets.topic.replication.factor=1
zookeeper.connect={zookeeper}
zookeeper.connection.timeout.ms=300
group.initial.rebalance.delay.ms=0
"""
"""The effective lines of the server.properties of Kafka 3.9's quickstart, with a shorter timeout."""


@pytest.mark.parametrize(
    ("connect", "printed"),
    [
        ("localhost:{port}", ["no ZooKeeper answered at localhost:{port}", "`odradek registry --port {port}`"]),
        pytest.param(
            "localhost:{port}/kafka",
            ["no ZooKeeper answered at localhost:{port}", "odradek registry --port {port}"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "127.0.0.1:{port},localhost:{port}",
            ["no ZooKeeper answered at 127.0.0.1:{port},localhost:{port}"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kafkas_quickstart_file_without_zookeeper_names_two_solutions(
    tmp_path: Path, connect: str, printed: list[str]
) -> None:
    port = str(free_port("127.0.0.1"))
    file = tmp_path / "server.properties"
    file.write_text(QUICKSTART.format(folder=tmp_path, zookeeper=connect.format(port=port)))
    ended = odradek_process("broker", "--log-level=warning", str(file))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("odradek: ")
    assert ended.stderr.count("\n") == 1
    for words in (*printed, "remove zookeeper.connect (--override zookeeper.connect=)"):
        assert words.format(port=port) in ended.stderr


@pytest.mark.slow
def test_data_of_the_missing_zookeepers_cluster_need_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(QUICKSTART.format(folder=tmp_path, zookeeper=f"localhost:{free_port('127.0.0.1')}"))
    data = tmp_path / "kafka-logs"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=kk4wN8L1QmOTZ1LkUhx_bg\n")
    ended = odradek_process("broker", "--log-level=warning", str(file))
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert f"{data} has data of that ZooKeeper's cluster, so choose another log.dirs then" in ended.stderr
    ways_out = ("--override=zookeeper.connect=", f"--override=log.dirs={tmp_path / 'other'}")
    assert " ready: broker 0 at " in ready_line(str(file), *ways_out)


@pytest.mark.slow
def test_a_file_of_kafka_0_8_is_rejected_with_the_replacements_of_its_addresses(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=0\nlog.dirs={tmp_path}/data\nhost.name=127.0.0.1\nport=9093\n")
    ended = odradek_process("broker", str(file))
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "set listeners=PLAINTEXT://127.0.0.1:9093 instead" in ended.stderr
    assert not (tmp_path / "data").exists()
    assert "127.0.0.1:" in ready_line(str(file), "--override=listeners=PLAINTEXT://127.0.0.1:0")


@pytest.mark.slow
def test_the_wait_for_zookeeper_is_announced(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    file = tmp_path / "server.properties"
    file.write_text(QUICKSTART.format(folder=tmp_path, zookeeper=f"localhost:{port}"))
    log, *_, message = odradek_process("broker", str(file)).stderr.splitlines()
    assert f"connecting to ZooKeeper hosts=localhost:{port} timeout_ms=300" in log
    assert message.startswith("odradek: no ZooKeeper answered")


@pytest.mark.parametrize("wrong", ["localhost:port", pytest.param("localhost:2181//kafka", marks=pytest.mark.slow)])
def test_an_invalid_address_of_zookeeper_is_reported_in_one_line(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(QUICKSTART.format(folder=tmp_path, zookeeper=wrong))
    ended = odradek_process("broker", "--log-level=warning", str(file))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("odradek: ")
    assert ended.stderr.count("\n") == 1
    assert "kafka" in ended.stderr or "zookeeper.connect" in ended.stderr


@pytest.mark.slow
def test_each_solution_for_a_missing_zookeeper_starts_a_broker(tmp_path: Path) -> None:
    registry = RegistryProcess(tmp_path, tick_ms=1000)
    registry.start()
    try:
        file = tmp_path / "server.properties"
        file.write_text(QUICKSTART.format(folder=tmp_path, zookeeper=f"localhost:{registry.port}"))
        assert " ready: broker 0 at " in ready_line(str(file), f"--override=log.dirs={tmp_path}/with")
        assert " ready: broker 0 at " in ready_line(str(file), "--override", "zookeeper.connect=")
    finally:
        registry.discard()


def test_neither_help_nor_a_wrong_value_loads_the_event_loop() -> None:
    script = (
        "import sys; sys.argv = ['odradek', 'broker', '--override', 'log.segment.bytes=x']\n"
        "from odradek.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'uvloop' in sys.modules, 'asyncio' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "1 False False\n"


# With a function in place of the server


def test_the_ready_line_goes_to_stdout_and_the_rest_to_stderr(serve: Callable[[Run], None]) -> None:
    def run(config: BrokerConfig, on_ready: Callable[[int, str, int, str], None], metrics: object) -> int:
        on_ready(config.broker_id, "127.0.0.1", 40000, "/data")
        return 0

    serve(run)
    ended = invoke("--override", "broker.id=7", "--override", "num.partition=2", "--override", "num.io.threads=3")
    assert ended.exit_code == 0
    assert ended.stdout == f"odradek {odradek.__version__} ready: broker 7 at 127.0.0.1:40000, data in /data\n"
    warnings = ended.stderr.splitlines()
    assert len(warnings) == 2
    assert "unknown property name=num.partition closest=num.partitions" in warnings[0]
    assert "without effect in this version names=num.io.threads" in warnings[1]


def test_an_ipv6_address_is_in_brackets(serve: Callable[[Run], None]) -> None:
    def run(config: BrokerConfig, on_ready: Callable[[int, str, int, str], None], metrics: object) -> int:
        on_ready(0, "::1", 9092, "/data")
        return 0

    serve(run)
    assert " at [::1]:9092, " in invoke().stdout


def test_the_file_is_read_and_overridden(serve: Callable[[Run], None], tmp_path: Path) -> None:
    seen = []

    def run(config: BrokerConfig, on_ready: object, metrics: object) -> int:
        seen.append((config.broker_id, config["num.partitions"]))
        return 0

    serve(run)
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnum.partitions=2\n")
    assert invoke(str(file), "--override", "num.partitions=3").exit_code == 0
    assert seen == [(1, 3)]


@pytest.mark.parametrize(
    ("notified", "received"), [(None, None), ("127.0.0.1:9404", ("127.0.0.1", 9404)), ("[::1]:1", ("::1", 1))]
)
def test_the_metrics_page_listens_at_its_configured_address(
    serve: Callable[[Run], None], notified: str | None, received: tuple[str, int] | None
) -> None:
    found = []

    def run(config: BrokerConfig, on_ready: object, metrics: object) -> int:
        found.append(metrics)
        return 0

    serve(run)
    assert invoke(*([] if notified is None else ["--metrics", notified])).exit_code == 0
    assert found == [received]


@pytest.mark.parametrize("wrong", ["9404", "host:", ":9404", "host:port"])
def test_the_metrics_page_needs_a_host_and_a_port(wrong: str) -> None:
    result = invoke("--metrics", wrong)
    assert result.exit_code == 2
    assert "is not HOST:PORT, as 127.0.0.1:9404 is" in result.output


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_server_returns_the_exit_status(serve: Callable[[Run], None], status: int) -> None:
    serve(lambda config, on_ready, metrics: status)
    assert invoke().exit_code == status


@pytest.mark.parametrize(
    ("failure", "printed"),
    [
        (OSError(errno.EADDRINUSE, "in use"), ["PLAINTEXT://h:9092", "in use", "--override listeners="]),
        (OSError(errno.EADDRNOTAVAIL, "no"), ["PLAINTEXT://h:9092", "another host"]),
        (PermissionError(errno.EACCES, "Permission denied", "/d/meta"), ["/d/meta", "log.dirs=FOLDER"]),
        (PermissionError(errno.EACCES, "Permission denied"), ["PLAINTEXT://h:9092", "Permission denied"]),
        (OSError(errno.EROFS, "Read-only file system", "/d"), ["/d", "Read-only", "log.dirs=FOLDER"]),
        (OSError(errno.ENOSPC, "No space"), ["/logs", "no space left"]),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/d/x"), ["/d/x", "Not a directory"]),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Failed to acquire lock"), ["acquire lock", "log.dirs=FOLDER"]),
        (KafkaError(ErrorCode.INVALID_CONFIG, "cluster id"), ["cluster id"]),
    ],
)
def test_a_failed_start_reports_the_remedy(
    serve: Callable[[Run], None], failure: Exception, printed: list[str]
) -> None:
    def run(config: BrokerConfig, on_ready: object, metrics: object) -> int:
        raise failure

    serve(run)
    ended = invoke("--override", "listeners=PLAINTEXT://h:9092", "--override", "log.dirs=/logs")
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("odradek: ")
    assert ended.stderr.count("\n") == 1
    assert [words for words in printed if words not in ended.stderr] == []


def test_ctrl_c_before_the_server_handles_it_ends_quietly(serve: Callable[[Run], None]) -> None:
    def run(config: BrokerConfig, on_ready: object, metrics: object) -> int:
        raise KeyboardInterrupt

    serve(run)
    ended = invoke()
    assert (ended.exit_code, ended.output) == (0, "")


def test_the_log_level_and_format_are_options(serve: Callable[[Run], None]) -> None:
    def run(config: BrokerConfig, on_ready: object, metrics: object) -> int:
        logging.getLogger("odradek.broker").info("left out")
        logging.getLogger("odradek.broker").warning("rolled", extra={"topic": "t", "offset": 3})
        return 0

    serve(run)
    ended = invoke("--log-level", "warning", "--log-format", "json")
    entry = json.loads(ended.stderr)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    expected = {"level": "WARNING", "logger": "odradek.broker", "message": "rolled", "topic": "t", "offset": 3}
    assert entry == expected


# Log lines


def record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("odradek.broker", logging.INFO, __file__, 1, message, arguments, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    made.__dict__.update(fields)
    return made


def test_a_text_line_carries_its_fields() -> None:
    line = TextLines().format(record("rolled %s", "t-0", offset=3, path="a b", empty=""))
    assert line == '2023-11-14T22:13:20.250Z INFO odradek.broker: rolled t-0 offset=3 path="a b" empty=""'


@pytest.mark.parametrize("layout", [TextLines(), JsonLines()], ids=["text", "json"])
def test_client_data_cannot_begin_a_new_line(layout: logging.Formatter) -> None:
    forged = "x\n2023-11-14T22:13:20.250Z INFO odradek.broker: forged"
    assert "\n" not in layout.format(record("client %s\r\n", forged, client_id=forged))


@pytest.mark.parametrize("layout", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_traceback_is_kept(layout: logging.Formatter) -> None:
    try:
        raise ValueError("deep")
    except ValueError:
        entry = record("failed")
        entry.exc_info = sys.exc_info()
    assert "ValueError: deep" in layout.format(entry)
