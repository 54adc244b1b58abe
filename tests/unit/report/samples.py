"""Result documents as verbs write them, small, with any names in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxmem.estimation.planning import Planning
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.strategies import solve

MIB = 2**20
ENVIRONMENT = {
    "system": "linux", "kernel": "6.1", "libc": "glibc 2.36", "python": "3.11.7", "onnxruntime": "1.24.0",
    "cpu": "a processor", "cores": 2, "variables": {},
}  # fmt: skip

HOSTILE = (
    "<script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked = 1'>",
    "</svg></title></style><svg onload=alert(1)>",
    "[click](javascript:alert(1)) | `code` | **bold** ![i](http://127.0.0.1/x.png) @someone",
    "{{ 7 * 7 }} {% raw %} &lt;b&gt; \u202egnp.exe\n# heading\x00",
)


def plan(count: int = 12, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A plan of buffers; the first have these names."""
    generator = np.random.default_rng(7)
    lowers = generator.integers(0, 2 * count, count)
    uppers = lowers + generator.integers(1, count + 2, count)
    ids = [names[k] if k < len(names) else f"tensor_{k}" for k in range(count)]
    sizes = generator.integers(1, 8 * MIB, count)
    buffers = [Buffer(i, int(a), int(b), int(s)) for i, a, b, s in zip(ids, lowers, uppers, sizes, strict=True)]
    return Planning.of(solve(Problem.of(buffers, alignment=64), "greedy_by_size"), name="problem.csv").document()


def estimate(name: str = "model.onnx") -> dict[str, Any]:
    """An estimate of a model of this name, with tensors of the same name."""
    tensor = {"name": name, "dtype": "float32", "shape": [1, "N", None], "bytes": 6 * MIB, "lower": 0, "upper": 3}
    strategy = {"name": "best", "peak_bytes": 8 * MIB, "seconds": 0.0123, "optimal": True, "gap": 0.0}
    naive = {"name": "naive", "peak_bytes": 20 * MIB, "seconds": 0.00004, "optimal": False, "gap": 1.5}
    return {
        "schema": "onnxmem.estimate/1", "model": name, "file_bytes": 5 * MIB, "view": "raw", "nodes": 7, "steps": 7,
        "order": "file", "alignment": 64, "notes": [name], "dims": {"given": {}, "assumed": {name: 1}},
        "inputs": {name: {"dtype": "float32", "shape": [1, 3]}}, "weights_bytes": 4 * MIB,
        "weights": {"duplicate_bytes": 0},
        "activations": {
            "count": 9, "naive_bytes": 20 * MIB, "lower_bound_bytes": 8 * MIB, "strategies": [naive, strategy],
            "placement": [{**tensor, "offset": 0}], "peak": {"step": 2, "node": name, "tensors": [tensor]},
            "unknown": [{"name": name, "reason": name}],
        },
        "formula": {"peak_bytes": "8*N", "holds_for": "any size"}, "formula_note": None,
        "table": [{"dims": {name: 2}, "peak_bytes": 16 * MIB}],
    }  # fmt: skip


def measure(mode: str = "stock", run: int = 40 * MIB, name: str = "model.onnx", kind: str = "ok") -> dict[str, Any]:
    """A measurement that took so much to run."""
    phases = []
    for number, (title, rss) in enumerate((("import", 50 * MIB), ("load", 60 * MIB), ("steady runs", 60 * MIB + run))):
        phases.append({
            "name": title, "completed": True, "rss_bytes": rss, "pss_bytes": rss - 1000, "uss_bytes": rss - 2000,
            "anon_bytes": rss - 20 * MIB, "file_bytes": 20 * MIB, "peak_rss_bytes": rss + 100, "peak_exact": True,
            "seconds": 0.5, "began_seconds": number * 0.5, "unknown": {},
            "made_of": [{"kind": name, "rss_bytes": 5 * MIB},
                                        {"kind": "libraries and other files", "rss_bytes": 15 * MIB}], "spread": {},
        })  # fmt: skip
    return {
        "schema": "onnxmem.measure/1", "model": name, "file_bytes": 5 * MIB, "scenario": {"mode": mode, "runs": 5},
        "inputs": {name: {"dtype": "float32", "shape": [1, 3]}}, "dims": {"given": {}, "assumed": {}},
        "verdict": {"kind": kind, "phase": "load" if kind != "ok" else None, "message": name if kind != "ok" else ""},
        "phases": phases, "load_growth_bytes": 10 * MIB + 100, "run_growth_bytes": run, "latency_seconds": 0.085,
        "latency_spread_seconds": {"min": 0.08, "max": 0.1}, "outputs_sha256": "ab" * 32,
        "runtime": {"nodes": [{"name": name, "op": name, "dynamic_bytes": MIB, "temporary_bytes": None,
                               "in_use_bytes": 2 * MIB, "seconds": 0.001, "unknown": {"temporary_bytes": name}}],
                    "blamed": [name]},
        "repeats": [], "environment": ENVIRONMENT, "unknown": {},
        "timeline": [{"seconds": k / 10, "rss_bytes": (50 + k) * MIB, "file_bytes": 20 * MIB} for k in range(16)],
    }  # fmt: skip


def release(name: str = "model.onnx") -> dict[str, Any]:
    """A ladder of two steps."""

    def step(title: str, rss: int, freed: int | None) -> dict[str, Any]:
        return {"name": title, "rss_bytes": rss, "anon_bytes": rss // 2, "file_bytes": rss - rss // 2,
                "virtual_bytes": 4 * rss, "freed_bytes": freed, "unknown": {}}  # fmt: skip

    return {
        "schema": "onnxmem.release/1", "model": name, "scenario": {"mode": "stock"}, "inputs": {}, "dims": {},
        "before": step("before", 60 * MIB, None), "loaded": step("loaded", 80 * MIB, None),
        "full": step("full", 160 * MIB, None),
        "steps": [step(name, 70 * MIB, 90 * MIB), step("exit", 0, 70 * MIB)],
        "brought_bytes": 100 * MIB, "returned_bytes": 90 * MIB, "remaining_bytes": 10 * MIB, "released_fraction": 0.9,
        "explanation": [f"90.0% of the 100.0 MiB that {name} brought came back; 10.0 MiB remain.", name],
        "environment": ENVIRONMENT, "unknown": {},
    }  # fmt: skip


def share(name: str = "model.onnx") -> dict[str, Any]:
    """Two modes with up to two workers."""
    modes: list[dict[str, Any]] = []
    for mode, each in (("stock", 90 * MIB), (name, 40 * MIB)):
        for workers in (1, 2):
            modes.append({
                "mode": mode, "workers": workers, "total_pss_bytes": each * workers, "per_worker_uss_bytes": each // 2,
                "floor_bytes": 30 * MIB * workers, "load_seconds": 0.2, "latency_seconds": 0.01, "failures": [],
            })  # fmt: skip
    return {"schema": "onnxmem.share/1", "model": name, "file_bytes": MIB, "weights_bytes": MIB, "modes": modes,
            "baseline": "stock", "recommendations": [{"mode": name, "text": f"Use {name}.", "trade_off": name,
                                                      "avoid_if": name}],
            "latency": [{"mode": mode, "latency_seconds": 0.01, "of_baseline": 1.0} for mode in ("stock", name)],
            "inputs": {}, "dims": {}, "environment": ENVIRONMENT}  # fmt: skip


def compare(name: str = "model.onnx", same: bool = True) -> dict[str, Any]:
    """Two candidates that ran, and one that did not."""

    def candidate(title: str, total: int) -> dict[str, Any]:
        points = [{"size": str(n), "shape": [1, 3, n, n], "elements": 3 * n * n, "peak_rss_bytes": total + n * n,
                   "latency_seconds": 0.01, "spread": {"peak_rss_bytes": [total, total + 2 * n * n]}}
                  for n in (256, 512)]  # fmt: skip
        return {"name": title, "file_bytes": MIB, "load_seconds": 0.3, "load_growth_bytes": 2 * MIB,
                "total_rss_bytes": total, "inputs": points, "failure": None,
                "breakdown": [{"name": "import", "bytes": 5 * MIB}, {"name": "peak", "bytes": total}]}  # fmt: skip

    return {
        "schema": "onnxmem.compare/1",
        "candidates": [candidate(name, 80 * MIB), candidate("factory:net", 200 * MIB),
                       {"name": "lost", "failure": name, "inputs": []}],
        "parity": {"same": same, "max_abs": 1.5e-5},
        "rows": [{"metric": "total memory", "unit": "bytes", "size": None, "winner": name, "tied": [], "ratio": 2.5,
                  "values": {name: 80 * MIB, "factory:net": 200 * MIB, "lost": None}},
                 {"metric": "latency", "unit": "seconds", "size": "256", "winner": None, "ratio": None,
                  "verdict": "same", "tied": [name, "factory:net"], "values": {name: 0.01, "factory:net": 0.01}}],
        "fits": [{"candidate": name, "form": "constant + linear", "constant_bytes": 80.0 * MIB, "linear_bytes": 0.333,
                  "quadratic_bytes": 0.0, "range": [196608, 786432], "left_out_relative_error": None,
                  "max_relative_error": 0.01, "predictions": [{"size": f"2 × n({name})", "elements": 1572864,
                  "bytes": 81 * MIB, "extrapolated": True}]}],
        "advice": [{"text": f"Take {name}.", "saving_bytes": None},
                   {"text": f"Run {name}: 120.0 MiB less.", "saving_bytes": 120 * MIB}], "environment": ENVIRONMENT,
    }  # fmt: skip


def trace(name: str = "model.onnx") -> dict[str, Any]:
    """A trace of a few buffers."""
    return {"schema": "onnxmem.trace/1", "model": name, "inputs": {name: [1, 3]}, "buffers": 5, "steps": 9,
            "outputs": 1, "output_bytes": MIB, "total_bytes": 9 * MIB, "lower_bound_bytes": 4 * MIB}  # fmt: skip


def package(name: str = "model.onnx") -> dict[str, Any]:
    """A package with one plan."""
    return {"schema": "onnxmem.package/1", "mode": "prepacked", "model": "model.onnx", "onnxruntime": "1.24.0",
            "cpu": {"machine": "x86_64"}, "files": [{"name": name, "bytes": MIB}], "folder": name, "bytes": 3 * MIB,
            "weights": {"raw_bytes": 2 * MIB, "packed_bytes": MIB, "inline_bytes": 0}, "notes": [name], "order": None,
            "verified": {"reference": name, "inputs": {name: {"shape": [1, 3]}}}, "source": {"path": name, "files": []},
            "plans": [{"inputs": {name: [1, 3]}, "peak_bytes": 2 * MIB, "lower_bound_bytes": MIB}],
            "reduced": [{"inputs": {name: [1, 3]}, "before_bytes": 40 * MIB, "after_bytes": 10 * MIB,
                         "output_bytes": MIB, "parts": [
                             {"part": name, "gave_bytes": 10 * MIB, "nodes": 0, "extra_work": 0.0},
                             {"part": "stripes: 8 of 12 nodes, 4 of 3 nodes", "gave_bytes": 20 * MIB, "nodes": 93,
                              "extra_work": 0.02}]}]}  # fmt: skip


def tiling() -> dict[str, Any]:
    """What tiles would give."""
    part = {"kind": "stripes", "pieces": 8, "nodes": 12, "first": "conv_in", "last": "conv_out", "extra_work": 0.02,
            "before_bytes": 40 * MIB, "after_bytes": 10 * MIB}  # fmt: skip
    return {"before_bytes": 40 * MIB, "after_bytes": 10 * MIB, "ratio": 0.25, "nodes_before": 56, "nodes": 149,
            "extra_work": 0.02, "parts": [part]}  # fmt: skip


def convert(name: str = "model.onnx") -> dict[str, Any]:
    """A conversion into one file."""
    return {"schema": "onnxmem.convert/1", "model": name, "to": "ort", "files": [{"path": name, "bytes": MIB}]}


def track(name: str = "model.onnx", kept: bool = False) -> dict[str, Any]:
    """A session that was released in this process."""
    full, left, system = measure()["phases"][2], measure()["phases"][0], {"anon_bytes": 900 * MIB}
    return {"schema": "onnxmem.track/1", "session": {"model": name, "providers": []}, "file_bytes": MIB,
            "before_load": left, "released": {"before": full, "after": left, "held_by": [name] if kept else []},
            "system_before": system, "system_after": system, "freed_bytes": 50 * MIB, "brought_bytes": 50 * MIB,
            "returned_fraction": 1.0, "verdict": f"Released {name}.", "environment": ENVIRONMENT}  # fmt: skip


def demonstrate(name: str = "model.onnx") -> dict[str, Any]:
    """A model that was released in two ways."""
    system = {"anon_bytes": 900 * MIB}
    isolation = {"child": measure()["phases"][2], "returned_fraction": 0.999, "system_full": system,
                 "system_after": system}  # fmt: skip
    return {"schema": "onnxmem.demonstrate/1", "model": name, "ladder": release(name), "isolation": isolation,
            "verdict": f"In one process all of {name} came back."}  # fmt: skip


def fit(name: str = "model.onnx") -> dict[str, Any]:
    """Two modes, of which one was measured."""
    points = [
        {"size": size, "bytes": (80 + 6 * size) * MIB, "needed_bytes": (84 + 6 * size) * MIB} for size in (1, 8, 12)
    ]
    less = [
        {"size": size, "bytes": (80 + 3 * size) * MIB, "needed_bytes": (84 + 3 * size) * MIB} for size in (1, 8, 12)
    ]
    attempts = [{"size": 12, "fits": True, "peak_bytes": 118 * MIB, "verdict": "ok"},
                {"size": 14, "fits": False, "peak_bytes": None, "verdict": f"out of memory: {name}"}]  # fmt: skip
    same = {"open_end": False, "gaps": [], "workers": 2}
    answer = {
        "axis": {"names": [name], "start": 1, "stop": 64, "step": 1}, "recommended": "planned", "impossible": [13],
        "modes": [{"mode": "stock", "size": 8, "holds": 8, "bytes": 128 * MIB, "points": points, **same},
                  {"mode": "planned", "size": 12, "holds": 12, "bytes": 116 * MIB, "points": less, **same, "gaps": [7],
                   "verified": {"size": 12, "limited_by": "RLIMIT_DATA", "attempts": attempts}}],
        "changes": [{"mode": "stock", "size": 8, "text": "nothing"}, {"mode": "planned", "size": 12, "text": name}],
        "gains": {"stock": 0.0, "planned": 0.5},
    }  # fmt: skip
    return {"schema": "onnxmem.fit/1", "model": name, "budget_bytes": 140 * MIB, "workers": 1, "threads": 2,
            "margins": {"loading": 0.13, "stock": 0.1, "runs": 0.05}, "fixed": {"height": 64},
            "assumed": {"width": 224}, "answers": [answer], "fits": True,
            "unknown_tensors": [name], "environment": ENVIRONMENT}  # fmt: skip


def check(name: str = "model.onnx", over: int = 20 * MIB) -> dict[str, Any]:
    """Two checks: one that fits, and one that takes so much more than its budget."""

    def row(taken: int, mode: str) -> dict[str, Any]:
        figures = {
            "peak_bytes": taken,
            "load_peak_bytes": 60 * MIB,
            "loaded_bytes": 50 * MIB,
            "steady_bytes": None,
            "run_growth_bytes": 40 * MIB,
            "latency_seconds": 0.01,
            "unknown": {"steady_bytes": name},
        }
        exceeded = taken > 100 * MIB
        return {
            "case": {
                "scenario": {"model": name, "shapes": {name: [1, 3]}},
                "figure": "peak",
                "by": "measurement",
                "name": name,
            },
            "key": {"model": name, "mode": mode, "shapes": {name: [1, 3]}},
            "figures": figures,
            "model": name,
            "mode": mode,
            "label": "peak RSS",
            "bytes": taken,
            "budget_bytes": 100 * MIB,
            "fits": not exceeded,
            "excess_bytes": taken - 100 * MIB,
            "growth_bytes": taken - 90 * MIB,
            "verdict": "exceeded" if exceeded else "ok",
            "sentence": f"{name} takes {taken} bytes.",
            "baseline": {
                "bytes": 90 * MIB,
                "allowed_bytes": 95 * MIB,
                "origin": name,
                "date": "2026-11-01T00:00:00",
                "since": [name],
            },
            "parts": {"arena": taken - 30 * MIB, name: 30 * MIB} if exceeded else {},
            "notes": [name],
            "hint": name,
            "remedies": [{"mode": name, "bytes": 50 * MIB, "fits": True}] if exceeded else [],
        }

    rows = [row(80 * MIB, "stock"), row(100 * MIB + over, name)]
    return {"schema": "onnxmem.check/1", "checks": rows, "commit": name, "environment": ENVIRONMENT}


def history(name: str = "model.onnx") -> dict[str, Any]:
    """Two results of one series, of which the second is larger."""
    points = []
    for day, (size, change) in enumerate(((80 * MIB, None), (100 * MIB, 20 * MIB)), start=1):
        figures = {"run_growth_bytes": 40 * MIB, "latency_seconds": 0.01}
        entry = {"date": f"2026-11-0{day}T10:11:12+00:00", "commit": name, "figures": figures, "onnxruntime": name}
        points.append({"entry": entry, "bytes": size, "change_bytes": change, "grew": day == 2, "since": [name]})
    key = {"model": name, "mode": name, "shapes": {name: [1, 3]}, "threads": 2, "settings": {name: 1}}
    return {
        "schema": "onnxmem.history/1",
        "file": name,
        "figure": {"name": "peak", "label": "peak RSS"},
        "tolerance": {"fraction": 0.05, "bytes": 0},
        "series": [{"key": key, "points": points}],
    }


def all_of_them(name: str = "model.onnx") -> list[dict[str, Any]]:
    """One of each schema."""
    first = [estimate(name), plan(names=(name,)), trace(name), measure(name=name)]
    return [*first, release(name), share(name), compare(name), package(name), convert(name),
            track(name), demonstrate(name), check(name), history(name), fit(name)]  # fmt: skip
