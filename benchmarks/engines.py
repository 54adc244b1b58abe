"""What would somebody pick instead? Peaks of the same model in OpenVINO, in MNN, in stock ONNX Runtime and here.

    python -m venv engines; engines/bin/pip install openvino MNN
    python -m benchmarks.engines engines/bin/python [MODEL …]

One thread, float32, one run, each in a fresh process: the peak of resident memory above what importing the engine
takes, and of the whole process. *Planned* is a session of the model that knows nothing of it yet, *tiled* one of a
package made with `pack --tile`. MNN runs a file that its converter has written from the model. What an engine cannot
convert or run has no figures; neither has one whose first output is more than a hundredth off (of its largest value).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.budget import locate, saved_feeds
from benchmarks.planned import FROM, keys
from onnxmem.errors import OnnxmemError
from onnxmem.packing.pack import pack

COLUMNS = ("stock", "planned", "tiled", "openvino", "mnn")
OTHERS = ("openvino", "mnn")
OFF = 0.01


def run(python: str, engine: str, model: Path, feeds: Path, folder: Path) -> dict[str, Any]:
    """What a fresh process of that Python says, with the output."""
    output = folder / "output.npy"
    command = [python, str(Path(__file__).with_name("engine_run.py")), engine, str(model), str(feeds), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1][:200])
    return {**json.loads(done.stdout.splitlines()[-1]), "output": np.load(output)}


def converted(python: str, model: Path, folder: Path) -> Path:
    """The model as MNN reads it."""
    target = folder / "model.mnn"
    tool = Path(python).with_name("mnnconvert")
    command = [str(tool), "-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(target), "--bizCode", "benchmark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0 or not target.exists():
        raise RuntimeError("MNN's converter does not convert it")
    return target


def compare(key: str, python: str, folder: Path) -> dict[str, Any]:
    """All engines on one model."""
    model = locate(key, folder)
    feeds = saved_feeds(key, model, folder)
    row: dict[str, Any] = {"model": key, "failed": {}}
    expected = None
    for column in COLUMNS:
        try:
            if column in OTHERS:
                found = run(
                    python, column, converted(python, model, folder) if column == "mnn" else model, feeds, folder
                )
            else:
                tiled = column == "tiled"
                what = pack(model, folder / "package", tile=True, inputs=feeds, force=True).folder if tiled else model
                found = run(sys.executable, "stock" if column == "stock" else "ours", what, feeds, folder)
            output = found.pop("output")
            expected = output if expected is None else expected
            off = float(np.abs(output.astype(np.float64) - expected).max() / (np.abs(expected).max() or 1))
            if off > OFF:
                raise RuntimeError(f"its output is off by {off:.2g} of the largest value")
        except (OnnxmemError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            row["failed"][column] = str(error)
            continue
        row[column] = {"above_bytes": found["peak_bytes"] - found["imported_bytes"], **found}
    return row


def cell(row: dict[str, Any], column: str) -> str:
    found = row.get(column)
    return f"{found['above_bytes'] / 2**20:.0f} / {found['peak_bytes'] / 2**20:.0f}" if found else "–"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: above the imports / of the whole process, in MiB."""
    lines = ["| model | stock | planned | tiled package | OpenVINO | MNN |", "|---|---|---|---|---|---|"]
    return lines + [f"| {row['model']} | " + " | ".join(cell(row, column) for column in COLUMNS) + " |" for row in rows]


def lower(rows: list[dict[str, Any]], ours: str, other: str, figure: str) -> str:
    """On how many models ours is below the other's."""
    both = [(row[ours][figure], row[other][figure]) for row in rows if ours in row and other in row]
    return f"{sum(mine < theirs for mine, theirs in both)} of {len(both)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", metavar="PYTHON", help="one with openvino and MNN")
    parser.add_argument("keys", nargs="*", metavar="MODEL", help="only these: a real model's key, or zoo:NAME")
    parser.add_argument("--json", action="store_true", help="one document instead of the tables")
    arguments = parser.parse_args()
    rows = []
    for key in arguments.keys or keys():
        with tempfile.TemporaryDirectory() as folder:
            row = compare(key, arguments.python, Path(folder))
        # All that were asked for, or those that take much.
        if arguments.keys or row.get("stock", {"above_bytes": 0})["above_bytes"] > FROM:
            rows.append(row)
            print(table([row])[-1], row["failed"] or "", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"schema": "onnxmem.benchmark.engines/1", "rows": rows}))
        return
    print("\n".join(table(rows)))
    print("\n| lower on | above the imports | the whole process |\n|---|---|---|")
    for ours in ("planned", "tiled"):
        for other in ("stock", *OTHERS):
            print(f"| {ours} than {other} | {lower(rows, ours, other, 'above_bytes')} | "
                  f"{lower(rows, ours, other, 'peak_bytes')} |")  # fmt: skip


if __name__ == "__main__":
    main()
