"""A pytest plugin that measures which branches of the product the tests take, and prints a row for each package.

    python -m pytest -p tests.branch_coverage …

SlipCover changes the code of a module when it is imported: 15 s of CPU in each process for all modules. A probe that
has fired costs little. `immediate` leaves it where it is; to take probes out, SlipCover searches all functions, again
and again, for longer than the probes would take. coverage.py traces every line on Python 3.11: three times as long.
Child processes are not measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

import pytest
import slipcover
from _pytest.assertion.rewrite import AssertionRewritingHook
from slipcover.importer import SlipcoverLoader, SlipcoverMetaPathFinder

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
    """The measurement of one process. The process that distributes the tests merges those of the others."""

    def __init__(self, *, is_worker: bool) -> None:
        """Begin to measure modules that are imported from now on."""
        self._is_worker = is_worker
        folders = [str(ROOT / name) for name in PACKAGES]
        # One process is enough to add the modules that no test imports.
        self._cover = slipcover.Slipcover(immediate=True, branch=True, source=None if is_worker else folders)
        matcher = slipcover.FileMatcher(sources=folders)
        sys.meta_path.insert(0, ProductFinder(self._cover, matcher))

    def pytest_sessionfinish(self) -> None:
        """Write what this process has measured."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{os.getpid()}.json").write_text(json.dumps(self._cover.get_coverage()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if not self._is_worker:
            terminalreporter.section("branch coverage")
            terminalreporter.write_line(table(merged()))


def pytest_configure(config: pytest.Config) -> None:
    """Measure this process, and remove the results of an earlier run."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        for path in RESULTS.glob("*.json"):
            path.unlink()
    config.pluginmanager.register(BranchCoverage(is_worker=is_worker), "branch-coverage-of-process")


def merged() -> Any:
    """The results of all processes of the run."""
    first, *others = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
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
