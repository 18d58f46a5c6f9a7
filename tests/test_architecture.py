"""The rules of the architecture: allowed imports, forbidden calls, the size of files and functions.

The table is compared with the code by reading it, so a test fails when either is wrong.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "odradek": "odradek",
    **{name: f"odradek.{name}" for name in ("broker", "protocol", "storage", "streams", "spark_jobs")},
}

# A package may import itself, its own state package, and the packages here (prefixes). The order is that of the layers.
BROKER = "odradek.broker"
WITH_STORAGE = ("replication", "controller", "transaction", "metrics.exposition", "composition", "server")
SUBSYSTEMS: dict[str, tuple[str, ...]] = {
    "runtime": (),
    "metrics": ("runtime",),
    "metadata": ("registry", "runtime"),
    "config": ("metadata", "registry", "runtime", "security.state"),
    "security": ("config", "metadata", "metrics", "registry", "runtime"),
    "network": ("config", "metadata", "metrics", "registry", "runtime", "security"),
    "quota": ("config", "network.dispatcher", "registry.interface", "runtime"),
    "replication": ("config", "metadata", "metrics", "network", "quota", "registry", "runtime"),
    "controller": ("config", "metadata", "network", "registry", "runtime"),
    "coordinator": ("controller", "group.state", "metadata", "replication", "runtime", "transaction.state"),
    "group": ("coordinator", "metadata", "network", "replication", "runtime"),
    "transaction": ("coordinator", "group.state", "metadata", "network", "replication", "runtime"),
    "apis": (
        "config",
        "controller",
        "group",
        "metadata",
        "network.dispatcher",
        "quota",
        "replication",
        "runtime",
        "security",
        "transaction",
    ),
    "metrics.exposition": ("controller", "group", "metrics", "quota", "replication"),
    "composition": ("",),
    "server": ("",),
}
STATE = "state"
"""The name of every package of pure state machines, each inside its subsystem."""
STATE_IMPORTS = ("odradek.protocol", "odradek.broker.registry.znodes", "odradek.broker.registry.interface")
OTHERS: dict[str, tuple[str, ...]] = {
    "odradek.protocol": ("odradek.protocol",),
    "odradek.storage": (
        "odradek.storage",
        "odradek.protocol.batch",
        "odradek.protocol.chain",
        "odradek.protocol.checksum",
        "odradek.protocol.errors",
        "odradek.protocol.compression",
        "odradek.protocol.legacy",
        "odradek.protocol.legacy_walks",
        "odradek.protocol.log_append",
        "odradek.protocol.offset_map",
        "odradek.protocol.output_bounds",
        "odradek.protocol.own_batch",
        "odradek.protocol.plain_batch",
        "odradek.protocol.topic_partition",
    ),
    "odradek.broker.registry": (
        "odradek.broker.registry",
        "odradek.protocol.java_hash",
        "odradek.protocol.topic_partition",
    ),
    "odradek.streams": ("odradek.streams", "odradek.protocol"),
    "odradek.streams.stores": (
        "odradek.streams.stores",
        "odradek.streams.errors",
        "odradek.streams.functions",
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


def _allowed() -> dict[str, tuple[str, ...]]:
    table = dict(OTHERS)
    for package, others in SUBSYSTEMS.items():
        prefixes = tuple(f"{BROKER}.{other}".rstrip(".") for other in (package, *others))
        below = ("odradek.protocol", "odradek.storage") if package in WITH_STORAGE else ("odradek.protocol",)
        table[f"{BROKER}.{package}"] = (*prefixes, *below)
    return table


ALLOWED = _allowed()
KNOW_ASYNCIO = {"accepting", "dial", "listening", "net", "read_turn"}
PURE = ("time", "random", "asyncio", "threading", "os", "socket", "concurrent", "secrets", "uuid", "logging")
LONGEST_FUNCTION = 60
"""Lines of a function, its docstring included."""
MOST_METHODS = 30
MOST_PARAMETERS = 9
"""Of a constructor."""
TOO_LARGE: dict[str, tuple[int, int]] = {}
"""Classes that have to be split yet: their methods and constructor parameters, which may only become fewer."""


def sources() -> Iterator[tuple[str, Path]]:
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


SOURCES = dict(sources())


@cache
def tree_of(path: Path) -> ast.Module:
    """The contents of a file, read once for all tests."""
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """The nodes of that tree, in the order of `ast.walk`, which takes longer than a rule that looks at each of them."""
    return tuple(ast.walk(tree_of(path)))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Every module that a file imports, with the line, below `if TYPE_CHECKING` and inside functions too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield node.lineno, name if name in SOURCES else str(node.module)


def is_state(module: str) -> bool:
    """Whether a module of the broker is in a package of pure state machines."""
    return module.startswith(f"{BROKER}.") and STATE in module.split(".")[3:-1]


def layer_of(module: str) -> str:
    return max((layer for layer in ALLOWED if module == layer or module.startswith(layer + ".")), key=len)


def test_imports_go_only_where_the_table_allows() -> None:
    states = tuple(name for name in SOURCES if is_state(name))
    wrong = [
        f"{module}, line {line}: {name}"
        for module, path in SOURCES.items()
        for line, name in imports(path)
        if name.split(".")[0] == "odradek"
        and name != "odradek"
        and not may_import((*states, *STATE_IMPORTS) if module in states else ALLOWED[layer_of(module)], name)
    ]
    assert not wrong


def may_import(allowed: Sequence[str], name: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)


def import_table() -> str:
    """The table as ARCHITECTURE.md shows it."""
    rows: dict[str, tuple[str, ...]] = {"odradek": ("broker", "protocol", "storage", "streams")}
    for package, others in SUBSYSTEMS.items():
        below = ("protocol", "storage") if package in WITH_STORAGE else ("protocol",)
        rows[f"broker.{package}"] = ("all of broker", *below) if others == ("",) else (*others, *below)
    rows["broker.*.state"] = ("other state packages", "protocol", "registry.znodes", "registry.interface")
    rows["protocol"] = rows["spark_jobs"] = ("nothing of ours",)
    rows["broker.registry"] = tuple(name.removeprefix("odradek.") for name in OTHERS["odradek.broker.registry"][1:])
    rows["storage"] = tuple(name.removeprefix("odradek.") for name in OTHERS["odradek.storage"][1:])
    rows["streams"] = ("protocol",)
    lines = []
    for package, others in rows.items():
        wrapped = textwrap.wrap(", ".join(others), 90)
        lines += [f"    {package:<26}-> {wrapped[0]}", *(f"{'':33}{more}" for more in wrapped[1:])]
    return "\n".join(lines) + "\n"


def test_the_map_shows_the_table_of_imports() -> None:
    assert import_table() in (ROOT / "ARCHITECTURE.md").read_text(), f"ARCHITECTURE.md should have\n{import_table()}"


def test_the_subsystems_of_the_broker_form_layers() -> None:
    packages = list(SUBSYSTEMS)
    for number, package in enumerate(packages):
        above = {each for each in packages[number:] if each != package}
        assert not above.intersection(SUBSYSTEMS[package]), package


def test_no_module_imports_the_composition_root() -> None:
    users = {module for module, path in SOURCES.items() for _, name in imports(path) if name == "odradek.broker.server"}
    assert users <= {"odradek.broker_cli"}


def test_handlers_do_not_import_each_other_and_use_a_call_only_as_a_type() -> None:
    for module, path in SOURCES.items():
        if module.startswith("odradek.broker.apis."):
            assert not [name for _, name in imports(path) if name.startswith("odradek.broker.apis.")], module
            tree = tree_of(path)
            top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
            assert not [node for node in top if node.module == "odradek.broker.network.dispatcher"], module


def test_machines_use_no_clock_no_randomness_no_task_and_no_file() -> None:
    for module, path in SOURCES.items():
        if not is_state(module):
            continue
        for line, name in imports(path):
            assert name.split(".")[0] not in PURE, f"{path}:{line}"
        for node in nodes_of(path):
            assert not isinstance(node, (ast.AsyncFunctionDef, ast.Await)), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), f"{path}:{node.lineno}"


def test_only_connections_use_asyncio_in_the_protocol_and_storage_does_not() -> None:
    users = {module for module, path in SOURCES.items() for _, name in imports(path) if name.split(".")[0] == "asyncio"}
    assert {m.removeprefix("odradek.protocol.") for m in users if m.startswith("odradek.protocol")} == KNOW_ASYNCIO
    assert not {m for m in users if m.startswith("odradek.storage")}


def test_only_runtime_modules_import_the_clients_and_two_modules_rocksdb() -> None:
    users: dict[str, set[str]] = {"confluent_kafka": set(), "rocksdict": set()}
    for module, path in SOURCES.items():
        if module.startswith("odradek.streams"):
            for _, name in imports(path):
                users.get(name.split(".")[0], set()).add(module)
    homes = (
        "odradek.streams.running.",
        "odradek.streams.clients.",
        "odradek.streams.examples.",
        "odradek.streams.provisioning.topic_admin",
        "odradek.streams.reset",
        "odradek.streams.connectors.group_consumer",
        "odradek.streams.connectors.sink_clients",
        "odradek.streams.connectors.source_clients",
        "odradek.streams.serdes.schema_registry",
    )
    assert all(module.startswith(homes) for module in users["confluent_kafka"]), users["confluent_kafka"]
    assert users["rocksdict"] == {"odradek.streams.stores.rocks_map", "odradek.streams.stores.rocksdb_memory"}


def test_only_the_pages_of_the_console_import_its_web_packages() -> None:
    """Its data serves the terminal, too, and no other command needs the extra."""
    web = {"starlette", "uvicorn", "jinja2", "js_lib_htmx"}
    for module, path in SOURCES.items():
        if not module.startswith("odradek.console.web"):
            for line, name in imports(path):
                assert name.split(".")[0] not in web, f"{path}:{line}"


def test_spark_jobs_import_spark_and_click_and_one_module_kafkas_classes() -> None:
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
        "odradek.storage.descriptors",  # holds some in reserve
        "odradek.storage.read_files",  # opens them to read, beside a broker
        "odradek.storage.worker",  # uses pipes and processes
    )
    for module, path in SOURCES.items():
        if module.startswith("odradek.storage") and module not in touching:
            for line, name in imports(path):
                assert name.split(".")[0] not in ("os", "pathlib", "shutil", "fcntl", "mmap", "io"), f"{path}:{line}"
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id != "open", f"{path}:{node.lineno}"


def test_functions_fit_a_screen() -> None:
    long = []
    for path in SOURCES.values():
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({lines} lines)")
    assert not long


def test_classes_have_one_responsibility() -> None:
    """A class of many methods or constructor parameters is split, and its row below is removed with it."""
    large = {}
    for module, path in SOURCES.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                methods = {
                    each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                init = methods.get("__init__")
                taken = len(init.args.args) + len(init.args.kwonlyargs) - 1 if init is not None else 0
                if len(methods) > MOST_METHODS or taken > MOST_PARAMETERS:
                    large[f"{module.removeprefix('odradek.')}.{node.name}"] = (len(methods), taken)
    grown = {name: size for name, size in large.items() if size > TOO_LARGE.get(name, (0, 0))}
    assert not grown
    assert large.keys() == TOO_LARGE.keys(), "remove the rows of classes that have been split"


SHARED_CLASS_NAMES = {
    "Heartbeat": "a handler has the name of its API; for a member of a group, Kafka has this name",
    "LeaderAndIsr": "a handler has the name of its API; for the state of a partition, Kafka has this name",
    "Position": "where a Spark job begins or ends, and Kafka's position of a query; neither imports the other",
    "Rate": "the rate of a quota, and the one that users give to a sensor; Kafka has one class for both",
    "Record": "Kafka has a record of a log and a record of a stream, and users import the latter by this name",
    "Source": "where a property of a broker comes from, and what users implement to read another system",
}
"""Public class names that two modules have, with the reason."""


def test_every_public_class_has_a_name_of_its_own() -> None:
    """A name that two modules give to different things makes a reader open both, and so does one thing twice."""
    modules: dict[str, list[str]] = {}
    for module, path in SOURCES.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(module)
    shared = {name: users for name, users in modules.items() if len(users) > 1}
    assert {name: users for name, users in shared.items() if name not in SHARED_CLASS_NAMES} == {}
    assert shared.keys() == SHARED_CLASS_NAMES.keys(), "remove the names that only one module still has"


TESTS = sorted((ROOT / "tests").rglob("*.py"))
PACED = ("support", "benchmarks", "simulation", "soak/stalls_seam")
"""Folders of tests/ that may sleep: polls, lengths of faults and a slow disk; the pace of a load; virtual time; samples
of a stall.
"""


def test_no_test_module_imports_another() -> None:
    """What two of them share is in a module beside them whose name does not begin with `test_`, or in tests/support."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in TESTS if path.name[:5] == "test_"}
    names_of_files = {path.stem for path in TESTS if path.name[:5] == "test_"}
    wrong = []
    for path in TESTS:
        if names_of_files.isdisjoint(re.findall(r"\btest_\w+", path.read_text())):
            continue  # most files name none of them, and need not be parsed
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                names = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in names & modules]
    assert not wrong


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    """`asyncio.sleep(0)` gives the loop a turn and is no pause."""
    wrong = []
    for path in TESTS:
        if any(path.is_relative_to(ROOT / "tests" / folder) for folder in PACED) or "sleep" not in path.read_text():
            continue
        for node in nodes_of(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr == "sleep" and ast.unparse(node.args[0]) != "0":
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_every_module_has_a_docstring() -> None:
    silent = [
        module for module, path in SOURCES.items() if path.stat().st_size and not ast.get_docstring(tree_of(path))
    ]
    assert not silent


def test_every_package_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {module if path.name == "__init__.py" else module.rpartition(".")[0] for module, path in SOURCES.items()}
    assert packages == set(setuptools["packages"])


@pytest.mark.slow
def test_odradek_is_the_only_name_that_an_install_adds(release: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(release[1]) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"odradek"}
    for wanted in ("odradek/protocol/definitions/00_produce.txt", "odradek/py.typed", "odradek/protocol/messages.pyi"):
        assert wanted in names
