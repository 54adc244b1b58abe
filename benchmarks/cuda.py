"""What does a model take on a GPU, stock, tuned and planned, and how long?

    python -m benchmarks.cuda                       all models, as a table
    python -m benchmarks.cuda "YOLO 8×640²" --json FILE
    python -m benchmarks.cuda --modes stock,planned

Each figure comes from a fresh process: what is in use on the device (all of it, as the driver says) after loading and
after RUNS runs, minus what was before; nothing else may use the GPU meanwhile. About 80 MiB of the growth are cuBLAS's
and cuDNN's own. Latency is the median of 200 runs in turns of 20, each in its process: planned / stock, and what that
quotient is between two stock sessions; outputs are compared bit by bit, with cudnn_conv_algo_search=HEURISTIC.
Without a GPU it says so; --rehearse runs all of it on the CPU, where no memory is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks import cuda_models
from benchmarks.cuda_worker import MODES, Gpu

RUNS, TURN, TURNS = 12, 20, 10
AGAIN = "stock again"
MIB = 2**20


class Child:
    """A worker, spoken to in lines."""

    def __init__(self, path: Path, case: str, mode: str) -> None:
        command = [sys.executable, "-m", "benchmarks.cuda_worker", str(path), case, mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command; what it answers."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measured(path: Path, case: cuda_models.Case, mode: str, runs: int) -> tuple[Child, Any]:
    """A worker that has loaded the model and run it, and what that took."""
    child = Child(path, case.name, mode)
    answer = child.ask("load")
    answer |= child.ask(f"run {runs}")
    answer |= child.ask("memory")
    return child, answer


def compare(case: cuda_models.Case, folder: Path, modes: list[str], runs: int, turns: int) -> dict[str, Any]:
    """One model in these modes."""
    path = cuda_models.locate(case, folder)
    found: dict[str, Any] = {"model": case.name, "table": case.table}
    children: dict[str, Child] = {}
    for mode in modes:
        # Of shapes that are always new, enough to see what comes of it.
        child, found[mode] = measured(path, case, mode, runs if len(case.shapes) == 1 else 3 * runs)
        if mode in ("stock", "planned"):
            children[mode] = child
        else:
            child.end()
    children[AGAIN], found[AGAIN] = measured(path, case, "stock", runs)
    taken: dict[str, list[float]] = {mode: [] for mode in children}
    equal = len({found[mode]["sha"] for mode in modes}) == 1
    for _ in range(turns):
        answers = {mode: child.ask(f"run {TURN}") for mode, child in children.items()}
        for mode, answer in answers.items():
            taken[mode] += answer["ms"]
        equal = equal and len({answer["sha"] for answer in answers.values()}) == 1
    found["equal"] = equal
    for mode, child in children.items():
        found[mode]["median_ms"] = statistics.median(taken[mode]) if taken[mode] else None
        found[mode]["later"] = child.ask("memory")  # of both, while both are there: the other has changed nothing
    for child in children.values():
        child.end()
    return found


def row(found: dict[str, Any], modes: list[str]) -> str:
    """A line of the table."""
    planned = found["planned"]

    def mib(mode: str) -> str:
        # What loading takes counts where the modes differ in it.
        return f"{found[mode]['loaded'] / MIB:.0f} + {found[mode]['growth'] / MIB:.0f}"

    def plan(name: str) -> str:
        return f"{planned[name] / MIB:.0f}" if planned.get(name) else "–"

    def latency(mode: str) -> str:
        stock = found["stock"]["median_ms"]
        return f"{found[mode]['median_ms'] / stock:.3f}" if stock else "–"

    figures = plan("arena_bytes"), plan("bound_bytes"), latency("planned"), latency(AGAIN)
    cells = [found["model"], *(mib(mode) for mode in modes), *figures]
    return f"| {' | '.join(cells)} | {'yes' if found['equal'] else 'NO'} |"


def in_plan(found: dict[str, Any]) -> bool:
    """Whether there is an arena to speak of."""
    return bool(found["planned"].get("arena_bytes"))


def summary(rows: list[dict[str, Any]]) -> str:
    """The geometric mean of planned against the others, and what is not as it should be."""
    lines = []
    arenas = [found["planned"]["growth"] - found["planned"]["arena_bytes"] for found in rows if in_plan(found)]
    handles = min(arenas, default=0)
    lines.append(f"growth that is nobody's arena (cuBLAS, cuDNN): {handles / MIB:.0f} MiB")
    for mode in [mode for mode in MODES[:-1] if all(mode in found for found in rows)]:
        for of, which in (("the table's", [found for found in rows if found["table"]]), ("all", rows)):
            pairs = [[found[each]["growth"] - handles for each in ("planned", mode)] for found in which]
            ratios = [planned / other for planned, other in pairs if min(planned, other) > 0]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                lines.append(
                    f"planned / {mode}, growth above that, of {of} {len(ratios)}: {mean:.3f}, at most {max(ratios):.3f}"
                )
    for found in rows:
        planned = found["planned"]
        if planned["reason"]:
            lines.append(f"{found['model']} is not planned: {planned['reason']}")
        if "later" in planned and planned["later"]["growth"] > planned["growth"] + 4 * MIB:
            lines.append(f"{found['model']} grew by {(planned['later']['growth'] - planned['growth']) / MIB:.0f} MiB")
        lines.append(f"{found['model']}: " + ", ".join(f"{k} {v}" for k, v in planned["later"].items() if "runs_" in k))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; by default all")
    parser.add_argument("--modes", default=",".join(MODES), help="stock and planned among them")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    parser.add_argument("--runs", type=int, default=RUNS, help="before memory is looked at")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of {TURN} runs, to compare latency")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, if there is no GPU")
    parser.add_argument("--folder", type=Path, help="where models are made, and found again")
    options = parser.parse_args()
    if "CUDAExecutionProvider" not in ort.get_available_providers() and not options.rehearse:
        sys.exit("this ONNX Runtime has no CUDA provider: nothing to measure (pip install onnxruntime-gpu)")
    modes = [mode for mode in MODES if mode in options.modes.split(",")]
    if "stock" not in modes or "planned" not in modes:
        parser.error("stock and planned are what is compared")
    cases = [case for case in cuda_models.CASES if not options.names or case.name in options.names]
    rows = []
    print(f"{Gpu().name or 'no GPU'}, ONNX Runtime {ort.__version__}; MiB after loading + growth while running\n")
    print(f"| model | {' | '.join(modes)} | arena | bound | latency | {AGAIN} | equal |")
    print(f"|---|{'---:|' * (len(modes) + 4)}---|")
    with tempfile.TemporaryDirectory() as made:
        for case in cases:
            try:
                rows.append(compare(case, options.folder or Path(made), modes, options.runs, options.turns))
            except RuntimeError as error:
                print(f"| {case.name} | {error} |", flush=True)
                continue
            print(row(rows[-1], modes), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    main()
