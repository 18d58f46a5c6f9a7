"""Temporary files of tests are in memory where there is room, and where TMPDIR has them otherwise."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.temporary_folders import available_memory, use_memory


@pytest.fixture(autouse=True)
def folder_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())


def test_files_are_in_memory_where_there_is_room(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    use_memory(environment, tmp_path, room=1)
    assert environment == {"TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(("folder", "room"), [("", 2**60), ("missing", 1)])
def test_files_are_on_disk_without_room_or_without_such_a_file_system(tmp_path: Path, folder: str, room: int) -> None:
    environment: dict[str, str] = {}
    use_memory(environment, tmp_path / folder, room)
    assert environment == {}


def test_the_environment_decides(tmp_path: Path) -> None:
    environment = {"TMPDIR": "/elsewhere"}
    use_memory(environment, tmp_path, room=1)
    assert environment == {"TMPDIR": "/elsewhere"}


def test_available_memory_is_what_linux_reports(tmp_path: Path) -> None:
    report = tmp_path / "meminfo"
    report.write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:       12 kB\n")
    assert available_memory(report) == 12 * 1024
    assert available_memory(tmp_path / "missing") == 0
