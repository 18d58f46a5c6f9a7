"""Which part of a run has which test files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts, selection


@pytest.mark.parametrize(("count", "expression"), [(1, "not slow"), (2, ""), (3, "slow"), (7, "not slow")])
def test_every_file_is_in_one_part(count: int, expression: str) -> None:
    for path in parts.HERE.rglob("test_*.py"):
        having = [n for n in range(1, count + 1) if parts.includes(parts.Part(n, count), expression, path)]
        assert len(having) == 1


def test_parts_are_of_like_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "HERE", tmp_path)
    monkeypatch.setattr("tests.selection.HERE", tmp_path)
    for name, size in {"a": 50, "b": 30, "c": 25, "d": 10, "e": 5}.items():
        (tmp_path / f"test_{name}.py").write_text("#" * size)
    first = [each.stem[-1] for each in sorted(tmp_path.iterdir()) if parts.includes(parts.Part(1, 2), "", each)]
    assert first == ["a", "d"]


def test_files_that_the_marks_exclude_have_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "HERE", tmp_path)
    monkeypatch.setattr("tests.selection.HERE", tmp_path)
    (tmp_path / "test_slow.py").write_text("pytestmark = pytest.mark.slow\n" + "#" * 1000)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text("#" * 10)
    first, second = tmp_path / "test_a.py", tmp_path / "test_b.py"
    assert parts.includes(parts.Part(1, 2), "not slow", first)
    assert parts.includes(parts.Part(2, 2), "not slow", second)


def test_a_file_whose_time_is_known_weighs_more_than_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "HERE", tmp_path)
    monkeypatch.setattr("tests.selection.HERE", tmp_path)
    monkeypatch.setattr(parts, "CPU_S", {"test_d.py": 1.0})
    for name, size in {"a": 50, "b": 30, "c": 25, "d": 10}.items():
        (tmp_path / f"test_{name}.py").write_text("#" * size)
    first = [each.stem[-1] for each in sorted(tmp_path.iterdir()) if parts.includes(parts.Part(1, 2), "", each)]
    assert first == ["d"]


def test_the_files_whose_time_is_known_have_quick_tests() -> None:
    quick = "not slow and not jvm and not memory"
    assert [name for name in parts.CPU_S if not selection.can_select(quick, parts.HERE / name)] == []


@pytest.mark.parametrize("text", ["", "2", "0/3", "4/3", "1/0", "-1/2", "1/2/3", "a/b"])
def test_what_is_no_part_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no part: 2/3 is the second of three"):
        parts.parse(text)
