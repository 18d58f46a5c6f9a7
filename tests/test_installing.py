"""`tests.installing`: uv with the settings of pip, or else pip."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import installing

Installers = list[str]


def test_the_strongest_setting_of_pip_is_passed_on() -> None:
    settings = [
        ":env:.default-timeout='180'",
        ":env:.disable-pip-version-check='1'",
        ":env:.find-links='/a /b'",
        "freeze.user='1'",
        "global.cert='/certificates.pem'",
        "global.timeout='5'",
        "install.find-links='/c'",
    ]
    assert installing.uv_variables(settings) == {
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_FIND_LINKS": "/a,/b",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_pip_lists_its_settings_in_the_form_that_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://index.invalid/simple\nfind-links =\n    /a\n    /b\n")
    environment = {"PIP_CONFIG_FILE": str(file), "PIP_CERT": "/certificates.pem"}
    listed = subprocess.run(
        [*installing.PIP, "config", "list"], env=environment, capture_output=True, text=True, check=True
    )
    assert installing.uv_variables(listed.stdout.splitlines()) == {
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_DEFAULT_INDEX": "https://index.invalid/simple",
        "UV_FIND_LINKS": "/a,/b",
    }


@pytest.mark.parametrize("setting", ["global.no-index='true'", "install.constraint='c.txt'", ":env:.proxy='http://p'"])
def test_uv_is_not_used_where_it_cannot_do_what_a_setting_says(setting: str) -> None:
    assert installing.uv_variables([setting]) is None


@pytest.fixture
def installers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], int], str], Installers]:
    """Replaces the processes that install by functions; the result is who has installed, in this order."""

    def replace(status: Callable[[str], int], settings: str = "") -> Installers:
        installed: Installers = []

        def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
            if "list" in command:
                return subprocess.CompletedProcess(command, 0, settings)
            name = "pip for uv" if installing.UV in command else command[2]
            installed.append(name)
            # Without it, uv would install its last build where only C has changed.
            assert name != "uv" or "--reinstall-package" in command
            return subprocess.CompletedProcess(command, status(name))

        monkeypatch.setattr(subprocess, "run", run)
        return installed

    return replace


def test_pip_installs_where_uv_cannot_be_had_or_fails_or_is_not_to_be_used(
    installers: Callable[..., Installers],
) -> None:
    installed = installers(lambda _: 0)
    assert installing.main(".[dev]") == 0
    assert installed == ["pip for uv", "uv"]

    installed = installers(lambda name: name == "pip for uv")
    assert installing.main(".[dev]") == 0
    assert installed == ["pip for uv", "pip"]

    installed = installers(lambda name: name == "uv")
    assert installing.main(".[dev]") == 0
    assert installed == ["pip for uv", "uv", "pip"]

    installed = installers(lambda _: 0, "global.no-index='true'\n")
    assert installing.main(".[dev]") == 0
    assert installed == ["pip"]

    installers(lambda _: 1)
    assert installing.main(".[dev]") == 1
