"""How much of measured peaks does `onnxmem explain` leave unexplained?

    python -m benchmarks.explain                              all measurements in the store of benchmarks.accuracy
    python -m benchmarks.explain saved/*.json --worst 20      those that `onnxmem measure -o` wrote

Nothing is measured. The limit is the project's: at most 5 % of each peak may be unknown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.accuracy import table_head, table_line
from benchmarks.sized_models import locate
from onnxmem.errors import OnnxmemError
from onnxmem.explaining.explain import explain_measurement, read_measurement
from onnxmem.explaining.explanation import Explanation
from onnxmem.explaining.findings import QUICK
from onnxmem.measurement.measurement import Measurement
from onnxmem.units import format_bytes

LIMIT = 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement, explained."""

    name: str
    explanation: Explanation
    seconds: float

    @property
    def unknown(self) -> float:
        """What part of the peak is not explained."""
        return self.explanation.unknown / self.explanation.peak


def summary(rows: Sequence[Row]) -> list[str]:
    """By mode: how much is unknown on average and at most; then the limit."""
    lines = table_head(("mode", "measurements", "unknown, mean", "unknown, largest", "findings, mean"))
    for mode in sorted({row.explanation.mode for row in rows}):
        group = [row for row in rows if row.explanation.mode == mode]
        unknown = [row.unknown for row in group]
        found = statistics.fmean(len(row.explanation.findings) for row in group)
        figures = (f"{statistics.fmean(unknown):.2%}", f"{max(unknown):.2%}", f"{found:.1f}")
        lines.append(table_line([mode, str(len(group)), *figures]))
    over = sum(row.unknown > LIMIT for row in rows)
    coarse = sum(bool(row.explanation.notes) for row in rows)
    seconds = sorted(row.seconds for row in rows)
    verdict = "met" if not over else "NOT met"
    return [
        *lines,
        "",
        f"- unknown above {LIMIT:.0%}: {over} of {len(rows)}, limit 0: {verdict}",
        f"- explained without their model, and so more coarsely: {coarse}",
        f"- an explanation took {statistics.median(seconds):.2f} s (median), at most {seconds[-1]:.2f} s",
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """Each measurement, the least explained first, with what was found about it."""
    lines = table_head(("measurement", "peak", "unknown", "", "first finding"))
    for row in sorted(rows, key=lambda row: -row.unknown):
        one, found = row.explanation, row.explanation.findings
        first = f"{found[0].what}, {format_bytes(found[0].saving)}" if found else "–"
        lines.append(
            table_line([row.name, format_bytes(one.peak), format_bytes(one.unknown), f"{row.unknown:.1%}", first])
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Explain them all; 1 if the limit is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULT.json", help="saved measurements")
    parser.add_argument("--store", type=Path, default=Path(".cache/accuracy"), help="where measurements are kept")
    parser.add_argument("--worst", type=int, metavar="N", help="list only so many, those with most unknown")
    asked = parser.parse_args(arguments)
    paths = asked.results or sorted((asked.store / "cells").glob("*.json"))
    rows = [row for number, path in enumerate(paths, 1) if (row := _explained(path, f"[{number}/{len(paths)}]"))]
    if not rows:
        print("there are no measurements that went well: make some with python -m benchmarks.accuracy", file=sys.stderr)
        return 2
    lines = ["## Summary", "", *summary(rows), "", "## Each", "", *table(rows)]
    print("\n".join(lines if asked.worst is None else lines[: len(lines) - len(rows) + asked.worst]))
    return 1 if any("NOT met" in line for line in lines) else 0


def _explained(path: Path, number: str) -> Row | None:
    started = time.perf_counter()
    try:
        explanation = explain_measurement(_with_its_model(read_measurement(path), path), QUICK)
    except OnnxmemError as error:
        print(f"{number} {path.stem}: {error}", file=sys.stderr, flush=True)
        return None
    row = Row(name=path.stem, explanation=explanation, seconds=time.perf_counter() - started)
    print(f"{number} {path.stem}: {row.unknown:.1%} unknown", file=sys.stderr, flush=True)
    return row


def _with_its_model(measurement: Measurement, path: Path) -> Measurement:
    """The same with the model where it is now: those that come with an installed package move with it."""
    scenario = measurement.scenario
    if "@" not in path.stem or Path(scenario.model).exists():
        return measurement
    found = locate(path.stem.partition("@")[0], path.parents[1] / "models")
    return replace(measurement, scenario=replace(scenario, model=found))


if __name__ == "__main__":
    sys.exit(main())
