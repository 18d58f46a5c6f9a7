"""Files that use the same oracle are one group, so that one worker starts it once; every other file is a group."""

from __future__ import annotations

import pytest

from tests.scheduling import HERE, LONGEST, arrange

pytest_plugins = ["pytester"]


@pytest.fixture
def groups(pytester: pytest.Pytester) -> dict[str, set[str]]:
    """The groups of some files by their names."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")  # unset, it is a warning
    pytester.makeconftest(
        """
        import pytest
        @pytest.fixture(scope="session")
        def kafka(): return "shared"
        @pytest.fixture(scope="session")
        def java(): return "shared"
        @pytest.fixture
        def broker(kafka): return kafka
        """
    )
    files = {
        "test_direct": "def test_one(kafka): pass\ndef test_two(): pass",
        "test_indirect": "def test_one(broker): pass",
        "test_both": "def test_one(kafka): pass\ndef test_two(java): pass",
        "test_neither": "def test_one(): pass",
        "test_parametrized": ("import pytest\n@pytest.mark.parametrize('kafka', ['3.9.2'])\ndef test_one(kafka): pass"),
        "test_own": "import pytest\n@pytest.fixture\ndef kafka(): return 1\ndef test_one(kafka): pass",
        "test_marked": (
            "import pytest\npytestmark = pytest.mark.xdist_group('Apache Kafka')\n"
            "def test_one(request): request.getfixturevalue('kafka')"
        ),
    }
    pytester.makepyfile(**files)
    items, _ = pytester.inline_genitems()
    arrange(items, pytester.path)
    found: dict[str, set[str]] = {}
    for item in items:
        names = {mark.args[0] for mark in item.iter_markers("xdist_group")}
        found.setdefault(item.path.stem, set()).update(names)
    return found


def test_files_with_the_same_oracle_are_one_group(groups: dict[str, set[str]]) -> None:
    assert groups["test_direct"] == groups["test_indirect"] == groups["test_marked"] == {"Apache Kafka"}
    assert groups["test_both"] == {"Kafka Streams"}, "the more expensive of the two"


def test_every_other_file_is_a_group(groups: dict[str, set[str]]) -> None:
    assert groups["test_neither"] == {"test_neither.py"}
    assert groups["test_parametrized"] == {"test_parametrized.py"}, "a value of that name is no fixture"
    assert groups["test_own"] == {"test_own.py"}, "its Kafka is its own"


def test_the_longest_files_exist() -> None:
    assert [name for name in LONGEST if not (HERE / name).exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)
