"""`python -m tests.installing '.[dev]'`: installs this project, editable, with extras, into the running environment.

It does what `python -m pip install --editable '.[dev]'` does, with a quarter of the CPU and of the time: uv, which pip
installs first, downloads and builds side by side. uv reads none of pip's settings, so they are passed on; where pip has
one that cannot be, or uv fails, pip installs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

PROJECT: Final = "odradek"
UV: Final = "uv>=0.9,<1"
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")
VARIABLES: Final = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""The settings of pip that uv has, too, and its variables for them."""
WITHOUT_EFFECT: Final = frozenset(
    {
        "cache-dir",
        "config-file",
        "disable-pip-version-check",
        "no-color",
        "no-compile",
        "no-input",
        "progress-bar",
        "quiet",
    }
    | {"require-virtualenv", "retries", "root-user-action", "verbose"}
)
"""Those that change neither what is installed nor where it comes from."""
OTHER: Final = "another command's"
SECTIONS: Final = (OTHER, "global", "install", ":env:")
"""Of pip's settings, the strongest last."""
STORED: Final = "[bdist_wheel]\ncompression = stored\n"
"""PySpark has no wheel, and to compress 450 MB of jars again takes half of the time in which one is made."""


def main(requirement: str) -> int:
    """Install, and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="odradek-install-") as name:
        configuration = Path(name) / "wheels.cfg"
        configuration.write_text(STORED)
        return _install(requirement, {**os.environ, "DIST_EXTRA_CONFIG": str(configuration)})


def uv_variables(settings: Iterable[str]) -> dict[str, str] | None:
    """The environment in which uv does what pip's settings state, lines of `pip config list`; None if uv cannot."""
    found: dict[str, str] = {}
    for section, name, value in sorted(map(_parse, settings), key=lambda setting: SECTIONS.index(setting[0])):
        if section == OTHER or name in WITHOUT_EFFECT:
            continue
        if name not in VARIABLES:
            return None
        found[VARIABLES[name]] = ",".join(value.split())
    return found


def _parse(setting: str) -> tuple[str, str, str]:
    """The section, the name and the value of a line such as `global.timeout='60'`."""
    key, _, quoted = setting.partition("=")
    section, _, name = key.rpartition(".")
    return section if section in SECTIONS else OTHER, name, str(ast.literal_eval(quoted))


def _install(requirement: str, environment: Mapping[str, str]) -> int:
    wanted = ["install", "--quiet", "--editable", requirement]
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True)
    variables = uv_variables(listed.stdout.splitlines()) if listed.returncode == 0 else None
    if variables is not None and subprocess.run([*PIP, "install", "--quiet", UV]).returncode == 0:
        # uv keeps a build until pyproject.toml or setup.py changes, but C may have changed.
        anew = ["--reinstall-package", PROJECT]
        with_uv = [sys.executable, "-m", "uv", "pip", *wanted, *anew, "--python", sys.executable]
        if subprocess.run(with_uv, env={**environment, **variables}).returncode == 0:
            return 0
    print("installing with pip, which takes longer than with uv", file=sys.stderr)
    return subprocess.run([*PIP, *wanted, "--no-compile"], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
