"""The editable install: the same as setuptools', and visible to type checkers.

The source folders are packages of `odradek` (package-dir in pyproject.toml), so setuptools maps their names with a hook
of the import system, which mypy and pyright do not run. Both look for stub packages (PEP 561) along the search path, so
the install also adds a folder with one, `odradek-stubs`, whose entries are links to the sources. Python cannot import a
name with a hyphen, so at run time the folder has no effect. A wheel needs nothing of this.
"""

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
    for name, folder in layout.items():
        if name != "odradek":
            (top / name.partition(".")[2]).symlink_to(ROOT / folder)
    return VIEW


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


setup(cmdclass={"editable_wheel": EditableWheel})
