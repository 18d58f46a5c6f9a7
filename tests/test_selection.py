"""Which files a run with `-m` imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selection import can_select, certain_marks, check, possible_marks

QUICK = "not slow and not jvm and not memory"
LONG = "(slow or jvm) and not memory"
HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of that of the tests."""
    monkeypatch.setattr("tests.selection.HERE", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "quick", "long"),
    [
        ("def test_one(): ...", True, False),
        ("pytestmark = pytest.mark.slow\n", False, True),
        ("pytestmark = [\n    pytest.mark.usefixtures('spark'),\n    pytest.mark.jvm,\n]\n", False, True),
        ("pytestmark = pytest.mark.usefixtures('x')\n@pytest.mark.slow\ndef test_one(): ...", True, True),
        ("pytestmark = pytest.mark.memory\n", False, False),
        ("pytestmark = pytest.mark.memory\n@pytest.mark.slow\ndef test_one(): ...", False, False),
    ],
)
def test_a_file_is_imported_for_tests_that_it_may_have(folder: Path, text: str, quick: bool, long: bool) -> None:
    file = folder / "test_file.py"
    file.write_text(text)
    assert (can_select(QUICK, file), can_select(LONG, file)) == (quick, long)
    assert can_select("", file)
    assert can_select("slow or kerberos", file)  # a mark that the text cannot show


def test_a_conftest_may_add_marks_to_the_files_below_it(folder: Path) -> None:
    below = folder / "below" / "deeper"
    below.mkdir(parents=True)
    for name in ("test_before.py", "test_after.py"):
        (below / name).write_text("def test_one(): ...")
    assert not can_select(LONG, below / "test_before.py")
    (folder / "below" / "conftest.py").write_text("item.add_marker(pytest.mark.jvm)")
    assert can_select(LONG, below / "test_after.py")


def test_a_mark_that_the_text_does_not_show_is_an_error(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, file = request.node, folder / "test_file.py"
    monkeypatch.setattr(item, "path", file)
    file.write_text("def test_one(): ...")
    check([item])
    item.add_marker(pytest.mark.memory)
    with pytest.raises(pytest.UsageError, match=r"\['memory'\], which .*test_file.py does not show"):
        check([item])


def test_a_mark_of_the_file_that_a_test_lacks_is_an_error(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "test_file.py"
    monkeypatch.setattr(request.node, "path", file)
    file.write_text("pytestmark = pytest.mark.memory\n")
    assert certain_marks(file) == possible_marks(file) == {"memory"}
    with pytest.raises(pytest.UsageError, match="has the marks"):
        check([request.node])
