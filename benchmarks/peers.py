"""What do other tools say, beside what ONNX Runtime then takes? They estimate tensors; none knows of a process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sized_models import SizedModel
from benchmarks.truth import Cell, Store, Truth
from onnxmem.files import write_bytes
from onnxmem.units import format_bytes

PEERS = {
    "onnx-tool": "the file's own graph and order; a first fit that never shrinks",
    "tigris": "the file's own graph in a depth-first order; the liveness bound of a tiling compiler",
    "onnxsim": "the graph after its own simplification; a best fit over lifetimes",
}
"""Whose figure is taken, and what it models."""
NOT_MODELLED = (
    "None of them models ONNX Runtime's graph (fusions, blocked layouts), its order, in-place operators, same-size"
    " reuse, the arena's growth, the memory pattern's block, kernels' scratch or packed weights, nor a process."
)
GROWTH_FROM = 8 * 2**20
_SCRIPT = Path(__file__).with_name("peer_estimates.py")
_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one tool said about one model at one size, or why it said nothing."""

    activations: int | None = None
    weights: int = 0
    left_out: int = 0
    """Tensors whose size it does not know: its figure is of the others only."""
    reason: str = ""


def ask(store: Store, python: Path, peer: str, sized: SizedModel) -> Said:
    """Ask a tool, once; its answer is kept in the store."""
    path = store.folder / "peers" / f"{sized.key}@{sized.size}@{peer}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, json.dumps(_run(python, peer, store.model(sized.key), store.feeds(sized))).encode())
    found = json.loads(path.read_text())
    return Said(**{name: found[name] for name in ("activations", "weights", "left_out", "reason") if name in found})


def _run(python: Path, peer: str, model: Path, feeds: Path) -> dict[str, Any]:
    command = [str(python), str(_SCRIPT), peer, str(model), str(feeds)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"reason": f"no answer in {_SECONDS} s"}
    if run.returncode:
        return {"reason": (run.stderr.strip().splitlines() or [f"exit {run.returncode}"])[-1][:200]}
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    if found["activations"] <= 0:
        return {"reason": "it says 0"}
    return found


# A figure of the tool, and what it is held against.
Held = Callable[[Said, Truth], tuple[int, int] | None]


def _own(said: Said, truth: Truth) -> tuple[int, int] | None:
    """The allocator is asked in tuned sessions."""
    return (said.activations or 0, truth.activations) if truth.activations else None


def _growth(said: Said, truth: Truth) -> tuple[int, int] | None:
    return (said.activations or 0, truth.run_growth) if truth.run_growth > GROWTH_FROM else None


def _total(said: Said, truth: Truth) -> tuple[int, int] | None:
    return (said.activations or 0) + said.weights, truth.peak


def _total_and_process(said: Said, truth: Truth) -> tuple[int, int] | None:
    return (said.activations or 0) + said.weights + truth.before_load, truth.peak


COLUMNS: dict[str, Held] = {
    "what the allocator counts": _own,
    "run growth above 8 MiB": _growth,
    "total peak": _total,
    "total, given the process": _total_and_process,
}


def tables(store: Store, python: Path, measured: Sequence[tuple[Cell, Truth]]) -> dict[str, list[str]]:
    """Mean errors of each tool, and what each said about every model, for stock and tuned sessions on one thread."""
    held = [(cell, truth) for cell, truth in measured if cell.mode in ("stock", "tuned") and cell.threads == 1]
    if not held:
        return {}
    answers: dict[tuple[str, str, str], Said] = {}
    for peer in PEERS:
        for cell, _ in held:
            sized = cell.sized
            answers[peer, sized.key, sized.size] = ask(store, python, peer, sized)
        print(f"{peer} was asked", file=sys.stderr, flush=True)
    lines = ["| tool | against | answered | " + " | ".join(COLUMNS) + " | worst growth |", "|---|---|" + "---:|" * 6]
    for peer in PEERS:
        for mode in ("stock", "tuned"):
            pairs = [(answers[peer, c.sized.key, c.sized.size], truth) for c, truth in held if c.mode == mode]
            known = [(said, truth) for said, truth in pairs if said.activations is not None]
            errors = {name: _errors(known, column) for name, column in COLUMNS.items()}
            means = [
                f"{statistics.fmean(e):.0%} / {statistics.median(e):.0%} ({len(e)})" if e else "–"
                for e in errors.values()
            ]
            worst = max(errors["run growth above 8 MiB"], default=None)
            cells = [peer, mode, f"{len(known)} of {len(pairs)}", *means, "–" if worst is None else f"{worst:.0%}"]
            lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {peer}: {about}." for peer, about in PEERS.items()]
    how = "- Mean / median of the absolute errors (over so many models and sizes); weights that a graph makes by nodes"
    how += " (`light_…`) are activations to onnx-tool and tigris, which is what their means are made of."
    given = "- “given the process” adds the measured resident set before loading, which no tool predicts."
    return {
        "Other tools": [*lines, "", how, *notes, given, f"- {NOT_MODELLED}"],
        "Other tools, by model": _by_model(held, answers),
    }


def _errors(pairs: Iterable[tuple[Said, Truth]], column: Held) -> list[float]:
    held = [found for said, truth in pairs if (found := column(said, truth))]
    return [abs(said / measured - 1) for said, measured in held]


def _by_model(held: Sequence[tuple[Cell, Truth]], answers: dict[tuple[str, str, str], Said]) -> list[str]:
    lines = [
        f"| model | size | stock growth | tuned growth | {' | '.join(PEERS)} |",
        "|---|---|" + "---:|" * (2 + len(PEERS)),
    ]
    growths: dict[tuple[str, str], dict[str, int]] = {}
    for cell, truth in held:
        growths.setdefault((cell.sized.key, cell.sized.size), {})[cell.mode] = truth.run_growth
    for (key, size), by_mode in growths.items():
        measured = [format_bytes(by_mode[mode]) if mode in by_mode else "–" for mode in ("stock", "tuned")]
        said = [answers[peer, key, size] for peer in PEERS]
        lines.append(f"| {' | '.join([key, size, *measured, *map(_shown, said)])} |")
    return lines


def _shown(said: Said) -> str:
    """A figure, or why there is none, in a cell of a table."""
    if said.activations is not None:
        return format_bytes(said.activations) + (f" ({said.left_out} tensors left out)" if said.left_out else "")
    plain = said.reason.replace("|", "/").replace("\n", " ")
    return f"none: {plain[:60]}{'…' if len(plain) > 60 else ''}"
