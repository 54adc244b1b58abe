"""Stock, tuned and planned sessions, the last also in the best order: what does a model take to run, and how long?

    python -m benchmarks.planned                 all models, as a table
    python -m benchmarks.planned det unet --json

Growth is the peak of the resident set from the first run on, minus the resident set after loading; the recording run
counts. Each figure comes from a fresh process. `planned` is the first start ever: no earlier process has left anything
in the cache folder. `again` is the third start, with what the other two left; `kept` says whether a plan was followed.
`ordered` is a planned session of a package made with `--order best`; an .ort file has no such package. Latency is the
median of runs of all of them in turn, in one process. Outputs are compared bit by bit. Models whose stock growth is
16 MiB or less are listed, but do not count in the means; whether one takes more than tuned is asked of all.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks import real_models
from onnxmem import zoo
from onnxmem.errors import OnnxmemError
from onnxmem.packing.pack import pack
from onnxmem.units import format_bytes

MODES = ("stock", "tuned", "planned", "again", "ordered")
TIMED = ("stock", "tuned", "planned", "ordered")
PLANNED = ("planned", "again", "ordered")
LITTLE = 3 * 2**20 // 10
FROM = 16 * 2**20
RUNS = 6
SECONDS = 4.0

IMAGE = {"batch": 1, "height": 224, "width": 224}
# The zoo's networks, at sizes people use them at.
ZOO: dict[str, dict[str, int]] = dict.fromkeys(zoo.MODELS, IMAGE) | {
    "lstm": {"batch": 4, "sequence": 256},
    "matmul": {"batch": 256},
    "nas": {"batch": 1, "height": 128, "width": 128},
    "transformer": {"batch": 4, "sequence": 256},
    "unet": {"batch": 1, "height": 512, "width": 512},
    "yolo": {"batch": 1, "height": 416, "width": 416},
}
PIPELINE = ("det", "cls", "rec")


def keys() -> list[str]:
    """Everything there is to compare."""
    return [model.key for model in real_models.real_models()] + [f"zoo:{name}" for name in ZOO]


def locate(key: str, folder: Path) -> Path:
    """The model's file, built first if it is one of the zoo's."""
    if not key.startswith("zoo:"):
        return real_models.fetch(key)
    path = folder / f"{key[4:]}.onnx"
    if not path.exists():
        path.write_bytes(zoo.build(key[4:]).SerializeToString())
    return path


def feeds_for(key: str, session: Any) -> dict[str, Any]:
    """Inputs, the same in every process."""
    if not key.startswith("zoo:"):
        return real_models.feeds(real_models.find(key))
    random, dims = np.random.default_rng(0), ZOO[key[4:]]
    made: dict[str, Any] = {}
    for value in session.get_inputs():
        shape = [dims.get(dim, 1) if isinstance(dim, str) else dim for dim in value.shape]
        whole = "int" in value.type
        made[value.name] = random.integers(0, 100, shape) if whole else random.standard_normal(shape, np.float32)
    return made


def open_session(path: Path, mode: str, **extra: Any) -> Any:
    """A session of that mode, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if mode == "tuned":
        options.enable_mem_pattern = options.enable_mem_reuse = False
    if mode not in PLANNED:
        return ort.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    if mode == "ordered":
        return InferenceSession(path, options, **extra)
    return InferenceSession(str(path), options, ["CPUExecutionProvider"], mode="planned", **extra)


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{field}:"))


def settle() -> int:
    """Resident memory after everything that is free has been given back; the peak starts here."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    return status("VmRSS")


def digest(outputs: list[Any]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(output).tobytes() for output in outputs)).hexdigest()


def growth(key: str, path: Path, mode: str) -> dict[str, Any]:
    """One fresh process: load, run, look at the peak."""
    session = open_session(path, mode)
    feeds = feeds_for(key, session)
    # The buffers that hold outputs while they are compared are not part of what is measured: digest after the peak.
    loaded = settle()
    for _ in range(RUNS):
        session.run(None, feeds)
    found: dict[str, Any] = {"growth_bytes": status("VmHWM") - loaded}
    found["sha256"] = [digest(session.run(None, feeds)) for _ in range(2)]
    if mode in PLANNED:
        time.sleep(0.2)
        memory = session.memory
        trace = session.traces()[0] if session.traces() else None
        found |= {
            "arena_bytes": memory.arena_bytes,
            # One that makes too many calls for what they ask for has none.
            "plan_bytes": memory.plan_bytes if trace else 0,
            "bound_bytes": trace.problem().lower_bound if trace else 0,
            "output_bytes": trace.output_bytes if trace else 0,
            "deviated": memory.runs_deviated,
            "replayed": memory.runs_replayed,
            "kept": "yes" if memory.shapes_kept and not memory.runs_recorded else "no",
        }
    return found


def latency(key: str, paths: dict[str, Path]) -> dict[str, Any]:
    """Sessions of all modes in turn, in one process; the ratios of the medians to stock's."""
    sessions = {mode: open_session(path, mode) for mode, path in paths.items()}
    feeds = feeds_for(key, sessions["stock"])
    seconds: dict[str, list[float]] = {mode: [] for mode in sessions}
    for session in sessions.values():
        for _ in range(3):
            session.run(None, feeds)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds["stock"]) < 9:
        for mode, session in sessions.items():
            started = time.perf_counter()
            session.run(None, feeds)
            seconds[mode].append(time.perf_counter() - started)
    medians = {mode: statistics.median(values) for mode, values in seconds.items()}
    ratios = {f"{mode}_latency_ratio": median / medians["stock"] for mode, median in medians.items() if mode != "stock"}
    return {"stock_seconds": medians["stock"], **ratios}


def pipeline(folder: Path) -> dict[str, Any]:
    """Detector, classifier and recognizer in turn in one arena, against the largest of them alone."""
    from onnxmem.session.planned.arena import Arena  # noqa: PLC0415

    arena = Arena()
    sessions = {key: open_session(locate(key, folder), "planned", arena=arena) for key in PIPELINE}
    feeds = {key: feeds_for(key, session) for key, session in sessions.items()}
    loaded = settle()
    for _ in range(RUNS):
        for key, session in sessions.items():
            session.run(None, feeds[key])
    return {"growth_bytes": status("VmHWM") - loaded, "arena_bytes": arena.bytes}


def child(*arguments: str, cache: Path | None = None) -> dict[str, Any]:
    """What a fresh process says. With a cache folder, it finds there what others left, and leaves its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "ONNXMEM_KEEP_PLANS": "1"} if cache else None
    command = [sys.executable, "-m", "benchmarks.planned", "--child", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit {run.returncode}: {run.stderr.strip()[-300:]}")
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


def packed(key: str, path: Path, folder: Path) -> Path | None:
    """A package in the best order for the inputs that are measured; an .ort file has none."""
    if path.suffix == ".ort":
        return None
    feeds = folder / "feeds.npz"
    np.savez(feeds, **feeds_for(key, open_session(path, "stock")))
    return pack(path, folder / "package", order="best", inputs=feeds, force=True).folder


def compare(key: str, folder: Path, *, ordered: bool, timed: bool) -> dict[str, Any]:
    """All that is asked about one model."""
    path = locate(key, folder)
    package = packed(key, path, folder) if ordered else None
    row: dict[str, Any] = {"model": key}
    hashes = set()
    cache = folder / f"cache-{key.replace(':', '-')}"
    for mode in MODES if package else MODES[:-1]:
        of_a_cache = cache if mode in ("planned", "again") else None
        if mode == "again":
            child(key, str(path), mode, cache=cache)
        found = child(key, str(package if mode == "ordered" else path), mode, cache=of_a_cache)
        hashes.update(found.pop("sha256"))
        row |= {f"{mode}_{name}": value for name, value in found.items()}
    row["identical"] = len(hashes) == 1
    row["counts"] = row["stock_growth_bytes"] > FROM
    if timed:
        row |= child(key, str(path), "latency", *([str(package)] if package else []))
    return row


HEADER = (
    f"{'model':<20}{'stock':>11}{'tuned':>11}{'planned':>11}{'again':>11}{'ordered':>11}"
    f"{'pl/stock':>9}{'ag/stock':>9}{'or/stock':>9}{'pl-tuned':>11}{'ag-tuned':>11}{'kept':>5}"
    f"{'pl time':>9}{'or time':>9}{'pl arena':>11}{'>bound':>8}{'or arena':>11}{'>bound':>8}{'outputs':>11}{'dev.':>5}"
)


def line(row: dict[str, Any]) -> str:
    growths = {mode: row.get(f"{mode}_growth_bytes", math.nan) for mode in MODES}
    sizes = "".join(f"{'-' if math.isnan(size) else format_bytes(size):>11}" for size in growths.values())
    ratios = "".join(f"{growths[mode] / max(growths['stock'], 1):>9.2f}" for mode in PLANNED)
    more = "".join(f"{over_tuned(row, mode) / 2**20:>+7.1f} MiB" for mode in ("planned", "again"))
    times = "".join(f"{row.get(f'{mode}_latency_ratio', math.nan):>9.3f}" for mode in ("planned", "ordered"))
    arenas = "".join(
        f"{format_bytes(row.get(f'{mode}_plan_bytes', 0)):>11}{above(row, mode):>8.2%}"
        for mode in ("planned", "ordered")
    )
    return (
        f"{row['model']:<20}{sizes}{ratios}{more}{row['again_kept']:>5}{times}{arenas}"
        f"{format_bytes(row['planned_output_bytes']):>11}"
        f"{sum(row.get(f'{mode}_deviated', 0) for mode in PLANNED):>5}"
        f"  {'same' if row['identical'] else 'DIFFERENT'}{'' if row['counts'] else '  (small)'}"
    )


def over_tuned(row: dict[str, Any], mode: str) -> float:
    """How much more than tuned it grows."""
    return float(row[f"{mode}_growth_bytes"] - row["tuned_growth_bytes"])


def above(row: dict[str, Any], mode: str) -> float:
    """How far the plan is above the least that any plan of the trace takes, as a fraction."""
    bound = row.get(f"{mode}_bound_bytes", 0)
    return float(row[f"{mode}_plan_bytes"] / bound - 1) if bound else 0.0


def mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    large = [row for row in rows if row["counts"]]

    def ratios(over: str, under: str) -> list[float]:
        names = f"{over}_growth_bytes", f"{under}_growth_bytes"
        return [row[names[0]] / row[names[1]] for row in large if names[0] in row]

    times = {mode: [r[f"{mode}_latency_ratio"] for r in rows if f"{mode}_latency_ratio" in r] for mode in TIMED[2:]}
    return {
        "models": len(large),
        "planned_over_stock": mean(ratios("planned", "stock")),
        "again_over_stock": mean(ratios("again", "stock")),
        "planned_over_tuned": mean(ratios("planned", "tuned")),
        "again_over_tuned": mean(ratios("again", "tuned")),
        **{
            f"{mode}_above_tuned_and_0.3_MiB": [row["model"] for row in rows if over_tuned(row, mode) > LITTLE]
            for mode in ("planned", "again")
        },
        "ordered_over_stock": mean(ratios("ordered", "stock")),
        "ordered_over_tuned": mean(ratios("ordered", "tuned")),
        "ordered_over_planned": mean(ratios("ordered", "planned")),
        "worst_over_tuned": max(ratios("planned", "tuned"), default=math.nan),
        "worst_ordered_over_tuned": max(ratios("ordered", "tuned"), default=math.nan),
        "worst_above_bound": max((above(row, mode) for row in rows for mode in PLANNED), default=0),
        **{f"median_{mode}_latency_ratio": statistics.median(t) if t else math.nan for mode, t in times.items()},
        "all_identical": all(row["identical"] for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planned", description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="MODEL", help="only these: a real model's key, or zoo:NAME")
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--no-latency", action="store_true", help="memory only")
    parser.add_argument("--no-packages", action="store_true", help="leave out the packages in the best order")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        if arguments.child:
            key, path, what, *package = arguments.keys
            if what == "pipeline":
                print(json.dumps(pipeline(folder)))
            elif what == "latency":
                paths = map(Path, [path, path, path, *package])
                print(json.dumps(latency(key, dict(zip(TIMED, paths, strict=False)))))
            else:
                print(json.dumps(growth(key, Path(path), what)))
            return 0
        rows = []
        if not arguments.json:
            print(HEADER)
        for key in arguments.keys or keys():
            try:
                rows.append(compare(key, folder, ordered=not arguments.no_packages, timed=not arguments.no_latency))
            except (OnnxmemError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{key}: {error}", file=sys.stderr, flush=True)
                continue
            if not arguments.json:
                print(line(rows[-1]), flush=True)
        document: dict[str, Any] = {"schema": "onnxmem.benchmark.planned/1", "rows": rows, "summary": summary(rows)}
        if not arguments.keys:
            document["pipeline"] = child("det", "-", "pipeline")
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        for name, value in {**document["summary"], **document.get("pipeline", {})}.items():
            said = " ".join(value) or "none" if isinstance(value, list) else value
            print(f"{name:<33}{value:.4f}" if isinstance(value, float) else f"{name:<33}{said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
