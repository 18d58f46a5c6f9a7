"""The files of a release, built once for a whole run: a build takes fifteen seconds of CPU, and tests of several areas
install the wheel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.jvm.cache import obtain
from tests.release import wheel

REPOSITORY: Final = "https://github.example/kafka/odradek"


def shared_release(factory: pytest.TempPathFactory, *, is_worker: bool) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it, as a workflow of REPOSITORY builds them.

    The first process of the run that calls this builds them; the others wait for it. Raises `wheel.ReleaseError`.
    """
    own = factory.getbasetemp()
    # The folder of a worker of pytest-xdist is in that of the run.
    folder = obtain((own.parent if is_worker else own) / "release", "of this run", _build)
    (sdist,) = folder.glob("*.tar.gz")
    (built,) = folder.glob("*.whl")
    return sdist, built


def _build(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        server, _, repository = REPOSITORY.removeprefix("https://").partition("/")
        patch.setenv("GITHUB_SERVER_URL", f"https://{server}")
        patch.setenv("GITHUB_REPOSITORY", repository)
        wheel.build(folder)
