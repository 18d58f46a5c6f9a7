"""Files that share an oracle are one scope, so that one worker runs it once."""

from __future__ import annotations

import ast

from tests.scheduling import HERE, LONGEST, scope_of

ORACLES = {"java": "Kafka Streams", "kafka": "Apache Kafka", "zookeeper": "ZooKeeper", "spark": "Spark"}
"""Fixtures of a session that start a JVM."""


def functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_with_the_same_oracle_are_one_scope() -> None:
    """A file with two oracles stays with the one that comes first in the table."""
    seen = set()
    for path in HERE.rglob("test_*.py"):
        found = functions(path.read_text())
        own = {each.name for each in found}
        for each in found:
            asked = {argument.arg for argument in each.args.args} & ORACLES.keys() - own
            if asked and (each.name.startswith("test_") or any("fixture" in ast.dump(d) for d in each.decorator_list)):
                scope = scope_of(path.relative_to(HERE.parent).as_posix())
                assert scope in ORACLES.values(), f"{path}: {each.name} asks for {asked}"
                seen.add(scope)
    assert seen >= {"Kafka Streams", "Apache Kafka", "ZooKeeper"}


def test_a_scope_is_an_oracle_or_a_file() -> None:
    assert scope_of("tests/spark_jobs/test_any.py") == scope_of("tests/spark_jobs/test_other.py") == "Spark"
    assert scope_of("tests/streams/test_joins_tables.py") == scope_of("tests/streams/test_stateless.py")
    assert scope_of("tests/cluster/test_faults.py") == "tests/cluster/test_faults.py"


def test_the_longest_files_exist() -> None:
    assert [name for name in LONGEST if not (HERE / name).exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)
