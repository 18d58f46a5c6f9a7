"""The files of a release, built once: building takes ten seconds of CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release import wheel

REPOSITORY = "https://github.example/kafka/odradek"


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it, as a workflow of this repository builds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_SERVER_URL", "https://github.example")
        patch.setenv("GITHUB_REPOSITORY", "kafka/odradek")
        return wheel.build(tmp_path_factory.mktemp("release"))
