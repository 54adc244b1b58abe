"""How far off is `estimate --device cuda`? Estimated, then measured, on the GPU at hand.

    python -m benchmarks.cuda_estimate [MODEL …] [--folder FOLDER] [--json FILE]

The models of `benchmarks.cuda` in the modes that are estimated, with ONNX Runtime's own choice of algorithms. Nothing
else may use the GPU meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import onnxmem
from benchmarks import cuda_models
from onnxmem.measurement.protocol import LOAD, STEADY_RUNS
from onnxmem.prediction.on_device import OnDevice

MIB = 2**20
RANGES = {"turns": (4.0, 5.0), "tokens": (0.0, 1.0), "mask": (0.0, 1.0)}


def compare(case: cuda_models.Case, path: Path) -> list[dict[str, Any]]:
    """One row per mode."""
    shapes = case.shapes[0]
    began = time.monotonic()
    estimated = onnxmem.estimate(path, shapes=shapes, device="cuda", time_limit=120).device
    seconds = time.monotonic() - began
    if not isinstance(estimated, OnDevice):
        raise SystemExit(f"{case.name}: {estimated}")
    rows = []
    for forecast in estimated.modes:
        ranges = {name: limits for name, limits in RANGES.items() if name in shapes}
        found = onnxmem.measure(path, mode=forecast.mode, shapes=shapes, ranges=ranges, device="cuda", runs=5)
        after = {phase.name: phase.device for phase in found.phases}
        if not found.device or not isinstance(found.device.peak, int) or not isinstance(after.get(STEADY_RUNS), int):
            raise SystemExit(f"{case.name}: not measured: {found.verdict}")
        rows.append(
            {
                "model": case.name,
                "mode": forecast.mode,
                "seconds": round(seconds, 1),
                "loaded": forecast.loaded,
                "measured_loaded": after[LOAD],
                "steady": forecast.steady,
                "range": (forecast.least, forecast.most),
                "measured_steady": after[STEADY_RUNS],
                "measured_peak": found.device.peak,
                "silent": len(estimated.not_asked),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of benchmarks.cuda's models; all of them by default")
    parser.add_argument("--folder", type=Path, help="where models are kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| model | mode | loaded: estimated, measured | after runs: estimated, measured | off by | peak | seconds |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        for case in cuda_models.CASES:
            if options.models and case.name not in options.models:
                continue
            for row in compare(case, cuda_models.locate(case, options.folder or Path(made))):
                rows.append(row)
                loaded = f"{row['loaded'] / MIB:.0f}, {row['measured_loaded'] / MIB:.0f}"
                steady = f"{row['steady'] / MIB:.0f}, {row['measured_steady'] / MIB:.0f}"
                cells = (
                    row["model"],
                    row["mode"],
                    loaded,
                    steady,
                    f"{off(row):.1%}",
                    f"{row['measured_peak'] / MIB:.0f}",
                )
                print(f"| {' | '.join(cells)} | {row['seconds']} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    for mode in dict.fromkeys(row["mode"] for row in rows):
        each = [abs(off(row)) for row in rows if row["mode"] == mode]
        print(f"{mode}: off by {statistics.mean(each):.1%} in the mean, {max(each):.1%} at most")


def off(row: dict[str, Any]) -> float:
    """Of what the process really has after its runs."""
    return float(row["steady"] / row["measured_steady"] - 1)


if __name__ == "__main__":
    main()
