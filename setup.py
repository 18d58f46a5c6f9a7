"""The editable install: the same as setuptools', and visible to type checkers.

The source folders are packages of `odradek` (package-dir in pyproject.toml), so setuptools maps their names with a hook
of the import system, which mypy and pyright do not run. Both look for stub packages (PEP 561) along the search path, so
the install also adds a folder with one, `odradek-stubs`, whose entries are links to the sources. Python cannot import a
name with a hyphen, so at run time the folder has no effect. A wheel needs nothing of this.

The project's addresses in a release's metadata are those of the repository that GitHub Actions builds, so that a fork
names itself. A build elsewhere has none.
"""

import os
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
VIEW = ROOT / "build" / "type-checkers"
PTH = "__editable__.odradek_type_checkers.pth"


def link_sources():
    """Lay the packages out as a wheel does. A new file at the top of odradek/ needs another install, others do not."""
    layout = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    top = VIEW / "odradek-stubs"
    top.mkdir(parents=True, exist_ok=True)
    for link in top.iterdir():
        link.unlink()
    for path in (ROOT / layout["odradek"]).iterdir():
        if path.suffix == ".py" or path.name == "py.typed":
            (top / path.name).symlink_to(path)
    (top / "__init__.pyi").symlink_to(ROOT / layout["odradek"] / "__init__.py")  # without it mypy finds no `odradek`
    for name, folder in layout.items():
        if name != "odradek":
            (top / name.partition(".")[2]).symlink_to(ROOT / folder)
    return VIEW


def project_urls(environment=os.environ):
    """The addresses of the repository that the workflow builds, by label; none outside of a workflow."""
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if not (server and name):
        return {}
    source = f"{server}/{name}"
    files = f"{source}/blob/main"
    return {
        "Source": source,
        "Documentation": f"{files}/docs/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }


class WithStubPackage:
    """setuptools' way of an editable install, and a path to the stub package."""

    def __init__(self, strategy):
        self.strategy = strategy

    def __enter__(self):
        self.strategy.__enter__()
        return self

    def __exit__(self, *error):
        return self.strategy.__exit__(*error)

    def __call__(self, wheel, files, mapping):
        self.strategy(wheel, files, mapping)
        wheel.writestr(PTH, f"{link_sources()}\n")


class EditableWheel(editable_wheel):
    """The command of `pip install --editable`."""

    def _select_strategy(self, *arguments):
        return WithStubPackage(super()._select_strategy(*arguments))


setup(cmdclass={"editable_wheel": EditableWheel}, project_urls=project_urls())
