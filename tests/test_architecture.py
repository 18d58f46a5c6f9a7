"""The house of DESIGN: who may import whom, what may not stand where, how long a file may grow.

The table is held against the code by reading it, so a test says when either is wrong.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "odradek": "odradek",
    **{name: f"odradek.{name}" for name in ("broker", "protocol", "storage", "streams", "spark_jobs")},
}

# A module may import what stands behind it (prefixes), and modules of its own layer where the layer stands there too.
ALLOWED: dict[str, tuple[str, ...]] = {
    "odradek.protocol": ("odradek.protocol",),
    "odradek.storage": (
        "odradek.storage",
        "odradek.protocol.batch",
        "odradek.protocol.chain",
        "odradek.protocol.errors",
        "odradek.protocol.compression",
        "odradek.protocol.legacy",
        "odradek.protocol.legacy_walks",
        "odradek.protocol.offset_map",
    ),
    "odradek.broker.registry": ("odradek.broker.registry",),
    "odradek.broker.machines": (
        "odradek.broker.machines",
        "odradek.broker.registry.znodes",  # formats, and operations as plain data: what a machine asks to be written
        "odradek.broker.registry.interface",
        "odradek.protocol",
    ),
    "odradek.broker.apis": (
        "odradek.broker.roles",
        "odradek.broker.feature_levels",
        "odradek.broker.transactions",
        "odradek.broker.transaction_verification",
        "odradek.broker.transactional_writes",
        "odradek.broker.append_wait",
        "odradek.broker.background",
        "odradek.broker.conversions",
        "odradek.broker.producer_ids",
        "odradek.broker.topic_configs",
        "odradek.broker.topic_answers",
        "odradek.broker.topic_creation",
        "odradek.broker.config_writer",
        "odradek.broker.client_configs",
        "odradek.broker.log_dirs",
        "odradek.broker.logger_levels",
        "odradek.broker.replica_moves",
        "odradek.broker.replica",
        "odradek.broker.coordinator",
        "odradek.broker.controller",
        "odradek.broker.cluster_view",
        "odradek.broker.config",
        "odradek.broker.config_types",
        "odradek.broker.topic_config",
        "odradek.broker.waiting",
        "odradek.broker.machines",
        "odradek.broker.dispatch",  # for the type of a call only
        "odradek.protocol",
    ),
    "odradek.broker.dispatch": ("odradek.broker.figures", "odradek.protocol"),
    "odradek.broker.figures": (),
    "odradek.broker.waiting": (),
    "odradek.broker.cluster_view": (),
    "odradek.broker.replica": (
        "odradek.broker.figures",
        "odradek.broker.machines",
        "odradek.broker.waiting",
        "odradek.storage",
        "odradek.protocol",
    ),
    "odradek.broker": ("odradek.broker", "odradek.protocol", "odradek.storage"),
    "odradek.streams": ("odradek.streams", "odradek.protocol"),
    "odradek.streams.stores": (
        "odradek.streams.stores",
        "odradek.streams.errors",
        "odradek.streams.records",
        "odradek.streams.serdes",
    ),
    "odradek.streams.group": (
        "odradek.streams.group",
        "odradek.streams.errors",
        "odradek.streams.records",
        "odradek.protocol",
    ),
    "odradek.spark_jobs": ("odradek.spark_jobs",),
    "odradek": ("odradek",),
}
KNOW_ASYNCIO = {"accepting", "dial", "listening", "net"}
PURE = ("time", "random", "asyncio", "threading", "os", "socket", "concurrent", "secrets", "uuid", "logging")
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
DATA_FILES = {"broker/config_table.py", "broker/topic_table.py"}  # tables, one row a property


def sources() -> Iterator[tuple[str, Path]]:
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


SOURCES = dict(sources())


@cache
def tree_of(path: Path) -> ast.Module:
    """What a file says, read once for all tests."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Every module that a file imports, with the line, below `if TYPE_CHECKING` and inside functions too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield node.lineno, name if name in SOURCES else str(node.module)


def layer_of(module: str) -> str:
    return max((layer for layer in ALLOWED if module == layer or module.startswith(layer + ".")), key=len)


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_only_where_the_table_allows(module: str) -> None:
    allowed = ALLOWED[layer_of(module)]
    wrong = [
        f"line {line}: {name}"
        for line, name in imports(SOURCES[module])
        if name.split(".")[0] == "odradek"
        and name != "odradek"
        and not any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)
    ]
    assert not wrong


def test_nobody_imports_the_composition_root() -> None:
    users = {module for module, path in SOURCES.items() for _, name in imports(path) if name == "odradek.broker.server"}
    assert users <= {"odradek.cli"}


def test_handlers_do_not_import_each_other_and_know_a_call_only_as_a_type() -> None:
    for module, path in SOURCES.items():
        if module.startswith("odradek.broker.apis."):
            assert not [name for _, name in imports(path) if name.startswith("odradek.broker.apis.")], module
            tree = tree_of(path)
            top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
            assert not [node for node in top if node.module == "odradek.broker.dispatch"], module


def test_machines_know_no_clock_no_chance_no_task_and_no_file() -> None:
    for module, path in SOURCES.items():
        if not module.startswith("odradek.broker.machines"):
            continue
        for line, name in imports(path):
            assert name.split(".")[0] not in PURE, f"{path}:{line}"
        for node in ast.walk(tree_of(path)):
            assert not isinstance(node, (ast.AsyncFunctionDef, ast.Await)), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), f"{path}:{node.lineno}"


def test_only_connections_know_asyncio_in_the_protocol_and_nothing_in_storage_does() -> None:
    users = {module for module, path in SOURCES.items() for _, name in imports(path) if name.split(".")[0] == "asyncio"}
    assert {m.removeprefix("odradek.protocol.") for m in users if m.startswith("odradek.protocol")} == KNOW_ASYNCIO
    assert not {m for m in users if m.startswith("odradek.storage")}


def test_only_what_runs_an_application_knows_its_clients_and_one_module_rocksdb() -> None:
    users: dict[str, set[str]] = {"confluent_kafka": set(), "rocksdict": set()}
    for module, path in SOURCES.items():
        if module.startswith("odradek.streams"):
            for _, name in imports(path):
                users.get(name.split(".")[0], set()).add(module)
    homes = ("odradek.streams.running.", "odradek.streams.examples.", "odradek.streams.reset")
    assert all(module.startswith(homes) for module in users["confluent_kafka"]), users["confluent_kafka"]
    assert users["rocksdict"] == {"odradek.streams.stores.maps"}


def test_spark_jobs_know_spark_and_click_and_one_module_kafkas_classes() -> None:
    known = {*sys.stdlib_module_names, "odradek", "pyspark", "py4j", "click", "matplotlib"}
    for module, path in SOURCES.items():
        if module.startswith("odradek.spark_jobs"):
            for line, name in imports(path):
                assert name.split(".")[0] in known, f"{path}:{line}"
            if module != "odradek.spark_jobs.kafka_admin":
                assert "jvm.org.apache.kafka" not in path.read_text(), path


def test_only_disk_touches_files_in_storage() -> None:
    touching = (
        "odradek.storage.disk",
        "odradek.storage.read_files",  # opens them to read, beside a broker
        "odradek.storage.worker",  # knows pipes and processes
    )
    for module, path in SOURCES.items():
        if module.startswith("odradek.storage") and module not in touching:
            for line, name in imports(path):
                assert name.split(".")[0] not in ("os", "pathlib", "shutil", "fcntl", "mmap", "io"), f"{path}:{line}"
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id != "open", f"{path}:{node.lineno}"


def test_files_and_functions_stay_readable() -> None:
    long = []
    for path in SOURCES.values():
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        if text.count("\n") > LONGEST_FILE and name not in DATA_FILES:
            long.append(name)
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{name}:{node.lineno} {node.name} ({lines} lines)")
    assert not long


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        module for module, path in SOURCES.items() if path.stat().st_size and not ast.get_docstring(tree_of(path))
    ]
    assert not silent


def test_every_package_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {module if path.name == "__init__.py" else module.rpartition(".")[0] for module, path in SOURCES.items()}
    assert packages == set(setuptools["packages"])


@pytest.mark.slow
def test_odradek_is_the_only_name_that_an_install_adds(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("odradek-*.whl")
    names = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True)
    tops = {line.split("/")[0].split()[0] for line in names.stdout.splitlines()[1:]}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"odradek"}
    for wanted in ("odradek/protocol/definitions/00_produce.txt", "odradek/py.typed", "odradek/protocol/messages.pyi"):
        assert wanted in names.stdout
