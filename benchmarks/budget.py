"""Packages with tiles and budgets: what does a model take to run below the bound of its graph, and how long?

    python -m benchmarks.budget                     all models whose stock growth is above 16 MiB, as a table
    python -m benchmarks.budget det zoo:unet --json
    python -m benchmarks.budget --unseen            those of benchmarks.exported_models instead, once they are exported
    python -m benchmarks.budget --pairs             budgets instead: met under a limit, or refused with the least

`planned` is a planned session of the model, `tiled` one of a package made with `--tile`. Growth is the peak of the
resident set from the first run on, minus the resident set after loading. `all` is the peak above what importing takes,
loading included. Each figure comes from a fresh process. Latency is the median of runs of all of them in turn, in one
process. Outputs are compared bit by bit.

A pair is a model and a budget: one that is met for nothing, one between that and the least that is possible, the least
itself, and one below it, which must be refused. A package made for a budget is run in a process that may take no more
memory for data than it has after loading, and the budget.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import sized_models
from benchmarks.fresh_process import ask
from benchmarks.planned import FROM, RUNS, SECONDS, digest, feeds_for, keys, mean, open_session, settle, status
from benchmarks.planned import locate as known
from onnxmem.errors import BudgetExceeded, OnnxmemError
from onnxmem.packing.pack import pack
from onnxmem.units import format_bytes

MODES = ("stock", "planned", "tiled")
PAIRS = ("det", "ddddocr_det", "nsfw", "basic_pitch", "zoo:vgg16")
# Of what lies between the least that is possible and what is free.
BETWEEN = 0.5
# What a run takes beside its tensors: the interpreter's own objects.
BESIDE = 512 * 2**10


def session_of(mode: str, path: str, **extra: Any) -> Any:
    """A session of that mode, on one thread; a package runs as it is."""
    return open_session(Path(path), {"tiled": "ordered"}.get(mode, mode), **extra)


def growth(mode: str, path: str, feeds: str) -> dict[str, Any]:
    """One fresh process: load, run, look at the peaks."""
    with np.load(feeds) as arrays:
        given = dict(arrays)
    if mode != "stock":
        from onnxmem.session.planned import planner  # noqa: F401, PLC0415  loading would import it, too
    before = settle()
    session = session_of(mode, path)
    top, loaded = status("VmHWM"), settle()
    for _ in range(RUNS):
        session.run(None, given)
    peak = status("VmHWM")
    found: dict[str, Any] = {
        "load_bytes": loaded - before,
        "growth_bytes": peak - loaded,
        "all_bytes": max(top, peak) - before,
        "sha256": [digest(session.run(None, given)) for _ in range(2)],
    }
    if mode != "stock":
        memory = session.memory
        found |= {"plan_bytes": memory.plan_bytes, "deviated": memory.runs_deviated, "replayed": memory.runs_replayed}
    return found


def limited(path: str, feeds: str, budget: str) -> dict[str, Any]:
    """A fresh process that may have no more data than after loading, and the budget."""
    import resource  # noqa: PLC0415

    with np.load(feeds) as arrays:
        given = dict(arrays)
    session = session_of("tiled", path)
    loaded = settle()
    limit, most = status("VmData") + int(budget) + BESIDE, resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    outputs = session.run(None, given)
    for _ in range(RUNS):
        outputs = None
        outputs = session.run(None, given)
    found = {"growth_bytes": status("VmHWM") - loaded}
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return {**found, "sha256": [digest(outputs)]}


def latency(feeds: str, paths: list[str]) -> dict[str, Any]:
    """Sessions of all modes in turn, in one process; the ratios of the medians to stock's."""
    with np.load(feeds) as arrays:
        given = dict(arrays)
    sessions = {mode: session_of(mode, path) for mode, path in zip(MODES, paths, strict=True)}
    seconds: dict[str, list[float]] = {mode: [] for mode in sessions}
    for session in sessions.values():
        for _ in range(3):
            session.run(None, given)
    gc.disable()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds["stock"]) < 9:
        for mode, session in sessions.items():
            started = time.perf_counter()
            session.run(None, given)
            seconds[mode].append(time.perf_counter() - started)
    medians = {mode: statistics.median(values) for mode, values in seconds.items()}
    return {f"{mode}_latency_ratio": medians[mode] / medians["stock"] for mode in MODES[1:]}


def locate(key: str, folder: Path) -> Path:
    """The model's file, built first if it is one of the zoo's."""
    return sized_models.locate(key, folder) if key in sized_models.unseen() else known(key, folder)


def saved_feeds(key: str, path: Path, folder: Path) -> Path:
    """The inputs that everything is measured with."""
    feeds = folder / f"{key.replace(':', '-')}.npz"
    if key in sized_models.unseen():
        arrays = next(sized.feeds(path) for sized in sized_models.sizes(key) if sized.usual)
    else:
        arrays = feeds_for(key, open_session(path, "stock"))
    np.savez(feeds, **arrays)
    return feeds


def compare(key: str, folder: Path, *, timed: bool) -> dict[str, Any] | None:
    """All that is asked about one model; None if it is small."""
    path = locate(key, folder)
    if path.suffix == ".ort":
        return None
    feeds = saved_feeds(key, path, folder)
    stock = ask("budget", "growth", "stock", str(path), str(feeds))
    if stock["growth_bytes"] <= FROM:
        return None
    started = time.perf_counter()
    packed = pack(path, folder / "package", tile=True, inputs=feeds, force=True)
    row: dict[str, Any] = {"model": key, "pack_seconds": time.perf_counter() - started}
    row["tiles"] = sum(len(graph.inputs) > 0 for graph in packed.manifest.tiled)
    row["notes"] = [note for note in packed.manifest.notes if "tile" in note or "left out" in note]
    hashes = set(stock.pop("sha256"))
    row |= {f"stock_{name}": value for name, value in stock.items()}
    for mode, where in (("planned", path), ("tiled", packed.folder)):
        found = ask("budget", "growth", mode, str(where), str(feeds))
        hashes.update(found.pop("sha256"))
        row |= {f"{mode}_{name}": value for name, value in found.items()}
    row["identical"] = len(hashes) == 1
    if timed:
        row |= ask("budget", "latency", str(feeds), str(path), str(path), str(packed.folder))
    return row


def pairs(key: str, folder: Path) -> list[dict[str, Any]]:
    """Budgets of one model, each met under a limit or refused."""
    path = locate(key, folder)
    feeds = saved_feeds(key, path, folder)
    expected = ask("budget", "growth", "stock", str(path), str(feeds))["sha256"][0]

    def make(budget: int) -> Any:
        return pack(path, folder / "package", budget=budget, inputs=feeds, force=True)

    (free,) = make(2**40).manifest.reduced
    free_needs = free.after_bytes + free.output_bytes
    least = _least(make)
    middle = int(least + BETWEEN * (free_needs - least))
    rows = []
    for what, budget in (("free", free_needs), ("between", middle), ("least", least)):
        packed = make(budget)
        (reduced,) = packed.manifest.reduced
        row = {"model": key, "what": what, "budget_bytes": budget, "planned_bytes": reduced.after_bytes}
        found = ask("budget", "limited", str(packed.folder), str(feeds), str(budget))
        row |= {"growth_bytes": found["growth_bytes"], "identical": found["sha256"] == [expected]}
        row["met"] = reduced.after_bytes + reduced.output_bytes <= budget
        rows.append(row)
    try:
        make(least - 2**10)
        refused = ""
    except BudgetExceeded as error:
        refused = str(error)
    below = {"model": key, "what": "below", "budget_bytes": least - 2**10, "refused": refused, "met": bool(refused)}
    return [*rows, below]


def _least(make: Callable[[int], Any]) -> int:
    """What a refusal says is the least."""
    try:
        make(1)
    except BudgetExceeded as error:
        return int(error.hint.split("--budget ")[1].split("KiB")[0]) * 2**10
    raise AssertionError("a budget of one byte was met")


COLUMNS = ("stock", "planned", "tiled", "tl/stock", "all/stock", "pl time", "tl time")
HEADER = f"{'model':<18}" + "".join(f"{name:>11}" for name in COLUMNS)


def line(row: dict[str, Any]) -> str:
    sizes = "".join(f"{format_bytes(row[f'{mode}_growth_bytes']):>11}" for mode in MODES)
    ratio = row["tiled_growth_bytes"] / row["stock_growth_bytes"]
    whole = row["tiled_all_bytes"] / row["stock_all_bytes"]
    times = "".join(f"{row.get(f'{mode}_latency_ratio', float('nan')):>11.3f}" for mode in MODES[1:])
    same = "same" if row["identical"] else "DIFFERENT"
    return (
        f"{row['model']:<18}{sizes}{ratio:>11.3f}{whole:>11.3f}{times}  {same}{'' if row['tiles'] else '  (not tiled)'}"
    )


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def ratios(what: str, mode: str) -> list[float]:
        return [row[f"{mode}_{what}_bytes"] / row[f"stock_{what}_bytes"] for row in rows]

    times = [row["tiled_latency_ratio"] for row in rows if "tiled_latency_ratio" in row]
    return {
        "models": len(rows),
        "planned_over_stock": mean(ratios("growth", "planned")),
        "tiled_over_stock": mean(ratios("growth", "tiled")),
        "tiled_with_loading_over_stock": mean(ratios("all", "tiled")),
        "median_latency_ratio": statistics.median(times) if times else float("nan"),
        "worst_latency_ratio": max(times, default=float("nan")),
        "all_identical": all(row["identical"] for row in rows),
        "deviated": sum(row["tiled_deviated"] for row in rows),
    }


def work(arguments: list[str]) -> dict[str, Any]:
    """In a child."""
    what, *rest = arguments
    if what == "growth":
        return growth(*rest)
    return limited(*rest) if what == "limited" else latency(rest[0], rest[1:])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="MODEL", help="only these: a real model's key, or zoo:NAME")
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--no-latency", action="store_true", help="memory only")
    parser.add_argument("--pairs", action="store_true", help="models with budgets")
    parser.add_argument("--unseen", action="store_true", help="exported models instead")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(work(arguments.keys)))
        return 0
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        if not arguments.json and not arguments.pairs:
            print(HEADER, flush=True)
        usual = PAIRS if arguments.pairs else sized_models.unseen() if arguments.unseen else keys()
        for key in arguments.keys or usual:
            try:
                if arguments.pairs:
                    rows += pairs(key, folder)
                    shown = [json.dumps(row) for row in rows[-4:]]
                elif (row := compare(key, folder, timed=not arguments.no_latency)) is not None:
                    rows.append(row)
                    shown = [line(row), *(f"    {note}" for note in row["notes"])]
                else:
                    continue
            except (OnnxmemError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{key}: {error}", file=sys.stderr, flush=True)
                continue
            if not arguments.json:
                print("\n".join(shown), flush=True)
    found = {"pairs": len(rows), "met": sum(row["met"] for row in rows)} if arguments.pairs else summary(rows)
    if arguments.json:
        print(json.dumps({"schema": "onnxmem.benchmark.budget/1", "rows": rows, "summary": found}, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:<30}{value:.4f}" if isinstance(value, float) else f"{name:<30}{value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
