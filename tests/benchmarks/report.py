"""The report: medians, ratios round by round, goals; as a table, as JSON and as a picture.

A ratio compares two runs of the same round, which ran in the same state of the machine; shown are its median and, in
brackets, the least and the largest. GB and MB are powers of ten, MiB is the perf tools' 1024 x 1024 bytes.
"""

from __future__ import annotations

import json
import platform
import statistics
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.cases import Case
from tests.benchmarks.rounds import Failure, Sample

LEAST_THROUGHPUT_RATIO = 1.0
LARGEST_FLOOR_RATIO = 1.4
LARGEST_START_S = 0.3
LARGEST_RESIDENT_MB = 80.0

MARKS = {True: "pass", False: "MISS", None: "-"}


class Ratio(NamedTuple):
    """A ratio over the rounds."""

    median: float
    least: float
    largest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.least:.2f}-{self.largest:.2f}]"


class Goal(NamedTuple):
    """A goal of Odradek; `met` is None where the rival was not measured."""

    case: str
    text: str
    reached: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements. `start_s` are seconds to the first response, for each contestant."""

    cases: Sequence[Case]
    samples: Sequence[Sample]
    failures: Sequence[Failure]
    start_s: Mapping[str, float]

    def of(self, case: str, contestant: str) -> list[Sample]:
        return [sample for sample in self.samples if (sample.case, sample.contestant) == (case, contestant)]

    def median(self, case: str, contestant: str, field: str) -> float | None:
        """The median of a field of Sample over the rounds; None where nothing was measured."""
        values = [value for sample in self.of(case, contestant) if (value := getattr(sample, field)) is not None]
        return statistics.median(values) if values else None

    def ratio(self, case: str, rival: str, field: str) -> Ratio | None:
        """Odradek's value of a field over the rival's, round by round; None where no round has both."""
        theirs = {sample.round: getattr(sample, field) for sample in self.of(case, rival)}
        ratios = [
            getattr(ours, field) / theirs[ours.round]
            for ours in self.of(case, "odradek")
            if theirs.get(ours.round)  # a quick run may take no tick of CPU at all
        ]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def goals(results: Results) -> list[Goal]:
    """Odradek's goals, and whether it met them. None if Odradek was not measured."""
    if "odradek" not in results.start_s:
        return []
    reached: list[Goal] = []
    for case in results.cases:
        throughput = results.ratio(case.name, "kafka", "mib_per_s")
        reached.append(ratio_goal(case.name, "throughput to Kafka's", throughput, least=LEAST_THROUGHPUT_RATIO))
        cpu = results.ratio(case.name, "kafka", "cpu_s_per_gb")
        reached.append(ratio_goal(case.name, "CPU to Kafka's", cpu, largest=case.cpu_goal))
        if case.measures_floor:
            floor = results.ratio(case.name, "floor", "cpu_s_per_gb")
            reached.append(ratio_goal(case.name, "CPU to the floor's", floor, largest=LARGEST_FLOOR_RATIO))
    start_s = results.start_s["odradek"]
    reached.append(Goal("start", f"ready in {LARGEST_START_S} s", f"{start_s:.2f} s", start_s <= LARGEST_START_S))
    resident = [sample.resident_mb for sample in results.samples if sample.contestant == "odradek"]
    if resident:
        most = max(resident)
        text = f"resident at most {LARGEST_RESIDENT_MB:.0f} MB"
        reached.append(Goal("memory", text, f"{most:.0f} MB", most <= LARGEST_RESIDENT_MB))
    return reached


def ratio_goal(
    case: str, what: str, ratio: Ratio | None, *, least: float | None = None, largest: float | None = None
) -> Goal:
    """A goal whose median ratio is to be at least, or at most, this value."""
    limit = f">= {least:.2f}" if least is not None else f"<= {largest:.2f}"
    if ratio is None:
        return Goal(case, f"{what} {limit}", "not measured", None)
    met = (least is None or ratio.median >= least) and (largest is None or ratio.median <= largest)
    return Goal(case, f"{what} {limit}", str(ratio), met)


def table(results: Results) -> str:
    """The report for the terminal."""
    lines = [
        "",
        f"{'case':<16}{'server':<9}{'MiB/s':>8}{'rec/s':>11}{'mean ms':>9}{'p50 ms':>8}{'p99 ms':>8}"
        f"{'CPU s/GB':>10}{'RSS MB':>8}{'peak MB':>9}",
    ]
    columns = (
        *(("mib_per_s", 8, 1), ("records_per_s", 11, 0), ("average_ms", 9, 2), ("p50_ms", 8, 0), ("p99_ms", 8, 0)),
        *(("cpu_s_per_gb", 10, 2), ("resident_mb", 8, 0), ("peak_mb", 9, 0)),
    )
    for case in results.cases:
        lines.append(f"{case.name}: {case.title}")
        for name in results.start_s:
            if results.of(case.name, name):
                cells = (
                    _cell(results.median(case.name, name, field), width, digits) for field, width, digits in columns
                )
                lines.append(f"{'':<16}{name:<9}{''.join(cells)}")
    lines += ["", "start to first answer (median): "]
    lines[-1] += ", ".join(f"{name} {seconds:.2f} s" for name, seconds in results.start_s.items())
    reached = goals(results)
    if reached:
        lines += ["", f"{'goal of':<16}{'what':<30}{'reached':<22}"]
        lines += [f"{goal.case:<16}{goal.text:<30}{goal.reached:<22}{MARKS[goal.met]}" for goal in reached]
    for failure in results.failures:
        lines += ["", f"FAILED {failure.case}, round {failure.round}, {failure.contestant}: {failure.reason}"]
    return "\n".join(lines)


def _cell(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width},.{digits}f}"


def write_json(results: Results, path: Path, **others: Mapping[str, object]) -> None:
    """Write all samples, the goals and the machine; `others` are the results of clusters and the like."""
    content = {
        "machine": {"system": platform.platform(), "processor": _processor(), "python": interpreter()},
        "cases": [asdict(case) for case in results.cases],
        "start_s": dict(results.start_s),
        "samples": [asdict(sample) for sample in results.samples],
        "failures": [asdict(failure) for failure in results.failures],
        "goals": [goal._asdict() for goal in goals(results)],
        **others,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def interpreter() -> str:
    """The interpreter that runs Odradek, for the reader of the results."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return name
    return f"{name}, built without --enable-optimizations: 10 to 14 percent slower"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} x {models[0]}" if models else platform.machine()


def draw(results: Results, path: Path) -> None:
    """Draw throughput and CPU for a GB of every case, Kafka being 1, as a PNG. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, 2, figsize=(13, 1.5 + 0.6 * len(results.cases)), sharey=True, layout="constrained"
    )
    panels = (
        ("mib_per_s", "throughput, Kafka = 1 (more is better)"),
        ("cpu_s_per_gb", "broker CPU, Kafka = 1 (less is better)"),
    )
    contestants = list(results.start_s)
    height = 0.8 / len(contestants)
    for axis, (field, title) in zip(axes, panels, strict=True):
        for place, name in enumerate(contestants):
            bars = [
                (row + place * height, value / kafka)
                for row, case in enumerate(results.cases)
                if (value := results.median(case.name, name, field)) is not None
                and (kafka := results.median(case.name, "kafka", field))
            ]
            axis.barh([at for at, _ in bars], [share for _, share in bars], height, label=name)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(title)
    axes[0].set_yticks(
        [row + 0.4 - height / 2 for row in range(len(results.cases))], [case.title for case in results.cases]
    )
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(contestants))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
