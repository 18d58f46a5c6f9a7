"""The files of a release: what `make wheel` builds, what it rejects, and how the other platforms are configured."""

from __future__ import annotations

import re
import shlex
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.release import smoke, wheel
from tests.release.shared import REPOSITORY

PYPROJECT = wheel.pyproject()


def check_addresses(built: Path, source: str) -> None:
    """The metadata has the addresses of the repository that the workflow builds, and the files there exist."""
    with zipfile.ZipFile(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    addresses = dict(re.findall(r"^Project-URL: (\w+), (.*)$", metadata, re.MULTILINE))
    assert addresses["Source"] == source
    assert addresses["Issues"] == f"{source}/issues"
    files = [addresses[label].removeprefix(f"{source}/blob/main/") for label in ("Documentation", "Changelog")]
    assert [file for file in files if not (wheel.ROOT / file).is_file()] == []


@pytest.mark.slow
def test_the_wheel_serves_in_an_empty_environment_without_a_compiler(
    tmp_path: Path, release: tuple[Path, Path]
) -> None:
    sdist, built = release
    wheel.check([sdist, built])
    check_addresses(built, REPOSITORY)
    version = PYPROJECT["project"]["version"]
    assert sdist.name == f"odradek-{version}.tar.gz"
    assert built.name.startswith(f"odradek-{version}-cp3")
    with tarfile.open(sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"broker", "protocol", "CHANGELOG.md", "LICENSE"} <= folders
    assert "tests" not in folders
    lost = tmp_path / built.name.replace("manylinux", "linux")
    with zipfile.ZipFile(built) as whole, zipfile.ZipFile(lost, "w") as incomplete:
        for name in whole.namelist():
            if "_chain." not in name or not wheel.is_library(name):
                incomplete.writestr(name, whole.read(name))
    with pytest.raises(wheel.ReleaseError, match=r"lacks odradek/protocol/_chain: "):
        wheel.require_extensions(lost)
    with pytest.raises(wheel.ReleaseError, match="no manylinux tag"):
        wheel.require_manylinux(Path("odradek-1-cp311-cp311-linux_x86_64.whl"))


def test_a_step_that_fails_ends_with_its_output() -> None:
    with pytest.raises(wheel.ReleaseError, match=r"ended with status 3:\nno space"):
        wheel.run(["sh", "-c", "echo no space >&2; exit 3"])


def test_the_smoke_test_imports_every_extension() -> None:
    names = {each["name"] for each in PYPROJECT["tool"]["setuptools"]["ext-modules"]}
    assert names == set(smoke.EXTENSIONS)


def test_the_release_builds_for_every_supported_python_and_runs_the_smoke_test() -> None:
    settings = PYPROJECT["tool"]["cibuildwheel"]
    oldest = re.fullmatch(r">=3\.(\d+)", PYPROJECT["project"]["requires-python"])
    assert oldest is not None
    assert settings["build"].split()[0] == f"cp3{oldest[1]}-*"
    command = shlex.split(settings["test-command"])
    assert command == ["python", str(wheel.SMOKE).replace(str(wheel.ROOT), "{project}")]


def test_the_variables_of_the_repository_reach_the_container_of_a_build() -> None:
    assert PYPROJECT["tool"]["cibuildwheel"]["linux"]["environment-pass"] == ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY"]


def test_the_changelog_begins_with_this_version() -> None:
    version = PYPROJECT["project"]["version"]
    headings = re.findall(r"^## (.*)$", (wheel.ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", version]


def test_the_release_workflow_runs_the_commands_of_a_contributor() -> None:
    workflow = yaml.safe_load((wheel.ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = set(re.findall(r"^([\w-]+):", (wheel.ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for step in steps if "run" in step]
    assert commands
    assert all(command.split()[0] == "make" and command.split()[1] in targets for command in commands)
    assert any(step.get("uses", "").startswith("pypa/cibuildwheel@") for step in steps)
    assert workflow["permissions"] == {"contents": "read"}
