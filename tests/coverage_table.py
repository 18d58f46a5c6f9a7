"""Prints the branch coverage of the last measured run, a row for each package: `python -m tests.coverage_table`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import coverage

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("broker", "protocol", "storage", "streams", "odradek")
COUNTED: Final = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def measured() -> dict[str, Any]:
    """The report of all processes of the run, as coverage.py writes it."""
    combined = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    combined.combine()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        combined.json_report(outfile=str(path))
        report: dict[str, Any] = json.loads(path.read_text())
    return report


def table(report: dict[str, Any]) -> str:
    """Lines and branches of each package that the tests reach, in percent."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in PACKAGES}
    for name, file in report["files"].items():
        path = ROOT / name
        package = path.relative_to(ROOT).parts[0] if path.is_relative_to(ROOT) else ""
        if package in counts:
            counts[package].update({key: file["summary"][key] for key in COUNTED})
    rows = [f"{'package':<10}{'lines':>8}{'':>9}{'branches':>10}"]
    for package, found in {**counts, "all": sum(counts.values(), Counter())}.items():
        lines, covered, branches, taken = (found[key] for key in COUNTED)
        rows.append(
            f"{package:<10}{lines:>8,}{_percent(covered, lines):>9}{branches:>10,}{_percent(taken, branches):>9}"
        )
    return "\n".join(rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    print(table(measured()))
    sys.exit(0)
