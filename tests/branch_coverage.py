"""A pytest plugin that measures which branches of the product the tests take, and a row for each package.

    python -m pytest -p tests.branch_coverage --part 1/2     measures the tests of one part
    python -m tests branches                                 prints what all parts have measured

SlipCover changes the code of a module when it is imported: 15 s of CPU in each process for all modules. A probe that
has fired costs little. `immediate` leaves it where it is; to take probes out, SlipCover searches all functions, again
and again, for longer than the probes would take. coverage.py traces every line on Python 3.11: three times as long.
Child processes are not measured.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

import pytest
import slipcover
from _pytest.assertion.rewrite import AssertionRewritingHook
from slipcover.importer import SlipcoverLoader, SlipcoverMetaPathFinder

from tests.parts import Part

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("broker", "protocol", "storage", "streams", "odradek")
RESULTS: Final = ROOT / "build" / "coverage"
COUNTED: Final = ("covered_lines", "missing_lines", "covered_branches", "missing_branches")


class ProductFinder(SlipcoverMetaPathFinder):
    """Finds the modules to measure.

    The product has a pytest plugin, so pytest would load all of its modules itself, to rewrite assertions, and
    SlipCover leaves such modules alone.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "odradek":
            return None
        for finder in sys.meta_path:
            if not isinstance(finder, SlipcoverMetaPathFinder | AssertionRewritingHook):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None and spec.loader is not None:
                    if spec.origin is not None and self.file_matcher.matches(spec.origin):
                        spec.loader = SlipcoverLoader(self.sci, spec.loader, spec.origin)
                    return spec
        return None


class BranchCoverage:
    """The measurement of one part of the tests."""

    def __init__(self, part: Part) -> None:
        """Begin to measure modules that are imported from now on."""
        self._part = part
        folders = [str(ROOT / name) for name in PACKAGES]
        # One process is enough to add the modules that no test imports.
        self._cover = slipcover.Slipcover(immediate=True, branch=True, source=folders if part.number == 1 else None)
        matcher = slipcover.FileMatcher(sources=folders)
        sys.meta_path.insert(0, ProductFinder(self._cover, matcher))

    def pytest_sessionfinish(self) -> None:
        """Write what this process has measured."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self._part.number}.json").write_text(json.dumps(self._cover.get_coverage()))


def pytest_configure(config: pytest.Config) -> None:
    """Measure this process."""
    config.pluginmanager.register(BranchCoverage(config.option.part or Part(1, 1)), "branch-coverage-of-process")


def main() -> int:
    """Print the table of the parts that have run, and remove their results. Returns the status of the process."""
    found = sorted(RESULTS.glob("*.json"))
    if not found:
        print("no part of the tests has been measured: make branches", file=sys.stderr)
        return 1
    print(table(merged(found)))
    for path in found:
        path.unlink()
    return 0


def merged(results: list[Path]) -> Any:
    """The results of all parts."""
    first, *others = [json.loads(path.read_text()) for path in results]
    for other in others:
        slipcover.merge_coverage(first, other)
    return first


def table(report: Any) -> str:
    """Lines and branches of each package that the tests reach, in percent."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in PACKAGES}
    for name, file in report["files"].items():
        path = (ROOT / name).resolve()
        package = path.relative_to(ROOT).parts[0] if path.is_relative_to(ROOT) else ""
        if package in counts:
            counts[package].update({key: file["summary"][key] for key in COUNTED})
    rows = [f"{'package':<10}{'lines':>8}{'':>9}{'branches':>10}"]
    for package, found in {**counts, "all": sum(counts.values(), Counter())}.items():
        lines, missing, branches, untaken = (found[key] for key in COUNTED)
        rows.append(
            f"{package:<10}{lines + missing:>8,}{_percent(lines, missing):>9}"
            f"{branches + untaken:>10,}{_percent(branches, untaken):>9}"
        )
    return "\n".join(rows)


def _percent(part: int, rest: int) -> str:
    return f"{100 * part / (part + rest):.1f} %" if part + rest else "-"
