"""How close is what `onnxmem.predict` says to what a process then takes? And what do other tools say?

    python -m benchmarks.accuracy                        all models, sizes and modes: hours the first time
    python -m benchmarks.accuracy --models det zoo-unet --modes stock planned --threads 1
    python -m benchmarks.accuracy --peers PYTHON         beside them onnx-tool, tigris and onnxsim, installed there

Every cell (a model at a size, in a mode, with so many threads) is measured once, in three fresh processes, of which the
median counts, and kept in the store; predictions are always made anew, and nothing runs for them. An error is
|predicted − measured| / measured. The total is the highest resident set of the process in all its life; growth
is what the runs add to the loaded session, and counts where it is above 8 MiB. The limits are those of the project.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.sized_models import keys, sizes, unseen
from benchmarks.truth import MODES, Cell, Store, Truth, cells
from onnxmem.errors import OnnxmemError
from onnxmem.files import write_bytes
from onnxmem.fitting.search import needed
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration
from onnxmem.prediction.predict import Subject, forecast_mode
from onnxmem.schedule.scheduled import Question
from onnxmem.units import format_bytes

GROWTH_FROM = 8 * 2**20
MEAN_PEAK, MEAN_GROWTH, WORST = 0.03, 0.08, 0.20
FIGURES = ("load_peak", "loaded", "run_growth", "peak")
WORST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell: what was measured, and what was predicted, in bytes."""

    cell: Cell
    truth: Truth
    predicted: dict[str, int | None]
    reason: str = ""
    """Why there is no prediction, or not all of it."""
    seconds: float = 0.0

    def error(self, figure: str) -> float | None:
        """How far off, with its sign; None if it was not predicted or does not count."""
        predicted, measured = self.predicted.get(figure), getattr(self.truth, figure)
        if predicted is None or (figure == "run_growth" and measured <= GROWTH_FROM):
            return None
        return float(predicted / measured - 1)


def predict(path: Path, cell: Cell, environment: Calibration) -> dict[str, int | None]:
    """What `onnxmem.predict` says before anything runs; the one place that knows how it is asked."""
    said = forecast_mode(_read(path, cell.sized.key, cell.sized.size, cell.threads), cell.mode, environment)
    return {name: getattr(said, name) for name in FIGURES} | {"safe": needed(said, 1)}


@lru_cache(maxsize=1)
def _read(path: Path, key: str, size: str, threads: int) -> Subject:
    """What predictions of all modes are made from: nearly all of their time, so it is read once for them."""
    shapes = next(sized.shapes for sized in sizes(key) if sized.size == size)
    return Subject.of(Model.open(path), Question(shapes=shapes), threads)


def compare(store: Store, cell: Cell, repeat: int) -> Row:
    """Measure (or look up) and predict one cell."""
    truth = store.measured(cell, repeat)
    started = time.perf_counter()
    try:
        predicted, reason = predict(store.model(cell.sized.key), cell, store.calibration()), ""
    except OnnxmemError as error:
        predicted, reason = {}, str(error)
    return Row(cell=cell, truth=truth, predicted=predicted, reason=reason, seconds=time.perf_counter() - started)


# What is said about it.

_FIRST = ("model", "size", "mode", "threads")
HEAD = (*_FIRST, "peak", "predicted", "off", "growth", "predicted", "off", "load peak", "off", "loaded", "off")


def line(row: Row) -> str:
    """A row of the table of cells."""
    measured, said = row.truth, row.predicted
    figures = [
        *(_size(measured.peak), _size(said.get("peak")), _off(row.error("peak"))),
        *(_size(measured.run_growth), _size(said.get("run_growth")), _off(row.error("run_growth"))),
        *(_size(measured.load_peak), _off(row.error("load_peak"))),
        *(_size(measured.loaded), _off(row.error("loaded"))),
    ]
    cell = row.cell
    return table_line([cell.sized.key, cell.sized.size, cell.mode, str(cell.threads), *figures])


def table_line(entries: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(entries)} |"


def table_head(entries: Sequence[str], text_columns: int = 1) -> list[str]:
    """Its first two lines: text to the left, figures to the right."""
    return [table_line(entries), table_line("---" if k < text_columns else "---:" for k in range(len(entries)))]


def mean_error(rows: Iterable[Row], figure: str) -> float | None:
    """The mean absolute error of a figure."""
    errors = [abs(error) for row in rows if (error := row.error(figure)) is not None]
    return statistics.fmean(errors) if errors else None


def summary(rows: Sequence[Row]) -> list[str]:
    """Mean errors by mode and over all, then the limits."""
    said = [row for row in rows if row.predicted]
    if not said:
        reason = rows[0].reason if rows else "there are no cells"
        return [f"{len(rows)} cells measured, none predicted: {reason}"]
    lines = table_head(
        ("mode", "cells", "total peak", "run growth", "load peak", "loaded", "worst peak", "worst growth")
    )
    groups = {mode: [row for row in rows if row.cell.mode == mode] for mode in MODES}
    counts = sorted({row.cell.threads for row in rows})
    groups |= {f"threads: {count}": [row for row in rows if row.cell.threads == count] for count in counts}
    for name, group in {**groups, "all": rows}.items():
        if group:
            means = [_mean(mean_error(group, figure)) for figure in ("peak", "run_growth", "load_peak", "loaded")]
            worst = [_mean(worst_error(group, figure)) for figure in ("peak", "run_growth")]
            lines.append(table_line([name, str(len(group)), *means, *worst]))
    return [*lines, "", *limits(rows), "", *_speed(said)]


def worst_error(rows: Iterable[Row], figure: str) -> float | None:
    """The largest absolute error of a figure."""
    return max((abs(error) for row in rows if (error := row.error(figure)) is not None), default=None)


def limits(rows: Sequence[Row]) -> list[str]:
    """Whether what was promised holds; a cell without a prediction holds nothing."""
    missing = [row for row in rows if row.predicted.get("peak") is None or row.predicted.get("run_growth") is None]
    worst = max((worst_error(rows, figure) or 0.0 for figure in ("peak", "run_growth")), default=None)
    lines = [
        _limit("mean error of the total peak", mean_error(rows, "peak"), MEAN_PEAK),
        _limit("mean error of run growth above 8 MiB", mean_error(rows, "run_growth"), MEAN_GROWTH),
        _limit("largest error of either", worst, WORST),
    ]
    off = sum(any(abs(row.error(figure) or 0) > WORST for figure in ("peak", "run_growth")) for row in rows)
    lines.append(f"- off by more than {WORST:.0%}: {off} of {len(rows)} cells; without a prediction: {len(missing)}")
    safe = sum(row.truth.peak <= (row.predicted.get("safe") or 0) for row in rows)
    lines.append(f"- within what `fit` would call safe: {safe} of {len(rows)} cells")
    return lines


def worst_cells(rows: Sequence[Row]) -> list[str]:
    """Those that are furthest off, in the figure that the limits are about."""

    def off(row: Row) -> float:
        return max(abs(row.error("peak") or 0) / MEAN_PEAK, abs(row.error("run_growth") or 0) / MEAN_GROWTH)

    found = sorted((row for row in rows if row.predicted), key=off, reverse=True)[:WORST_SHOWN]
    return [*table_head(HEAD, 3), *map(line, found)] if found else []


def _limit(what: str, value: float | None, limit: float) -> str:
    verdict = "not known" if value is None else "met" if value <= limit else "NOT met"
    return f"- {what}: {_mean(value)}, limit {limit:.0%}: {verdict}"


def _speed(rows: Sequence[Row]) -> list[str]:
    totals: dict[tuple[str, str, int], float] = {}
    for row in rows:
        key = (row.cell.sized.key, row.cell.sized.size, row.cell.threads)
        totals[key] = totals.get(key, 0.0) + row.seconds
    seconds = sorted(totals.values())
    return [
        f"Predicting all modes of a model at a size took {statistics.median(seconds):.2f} s (median), at most"
        f" {seconds[-1]:.2f} s ({max(totals, key=lambda key: totals[key])[0]})."
    ]


def _size(value: int | None) -> str:
    return "–" if value is None else format_bytes(value)


def _off(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"


def _mean(error: float | None) -> str:
    return "–" if error is None else f"{error:.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, predict, and compare; 1 if a limit is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", default=keys(), help="only these (zoo-NAME for the zoo)"
    )
    parser.add_argument(
        "--unseen",
        action="store_const",
        const=unseen(),
        dest="models",
        help="only models that no prediction was made with (see benchmarks.exported_models)",
    )
    parser.add_argument("--modes", nargs="+", metavar="MODE", choices=MODES, default=MODES, help="only these")
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", default=[1, 2], help="default: 1 2")
    parser.add_argument("--store", type=Path, default=Path(".cache/accuracy"), help="where measurements are kept")
    parser.add_argument("--repeat", type=int, metavar="K", default=3, help="processes for each cell (default: 3)")
    parser.add_argument("--measured", action="store_true", help="measure nothing: only cells that are in the store")
    parser.add_argument(
        "--peers", type=Path, metavar="PYTHON", help="ask onnx-tool, tigris and onnxsim, installed there"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="TABLE.md", help="write the tables as Markdown, too")
    asked = parser.parse_args(arguments)
    store = Store(asked.store)
    if asked.output:
        write_bytes(asked.output, b"")  # better to know now than after hours
    wanted = list(cells(asked.models, asked.modes, asked.threads))
    store.write_index(wanted)
    repeat = 1 if asked.measured else asked.repeat
    rows = _rows(store, [cell for cell in wanted if not asked.measured or store.has(cell)], repeat)
    parts: dict[str, list[str]] = {"Summary": summary(rows), "Furthest off": worst_cells(rows)}
    if asked.peers:
        parts |= peers.tables(store, asked.peers, [(row.cell, row.truth) for row in rows])
    parts["Every cell"] = [*table_head(HEAD, 3), *map(line, rows)]
    text = "\n".join(f"## {title}\n\n{chr(10).join(lines)}\n" for title, lines in parts.items() if lines)
    print(text)
    if asked.output:
        write_bytes(asked.output, text.encode())
    return 1 if any("NOT met" in entry for entry in parts["Summary"]) else 0


def _rows(store: Store, wanted: Sequence[Cell], repeat: int) -> list[Row]:
    rows = []
    for number, cell in enumerate(wanted, 1):
        try:
            row = compare(store, cell, repeat)
        except OnnxmemError as error:
            said: Any = error
        else:
            rows.append(row)
            said = row.reason or f"peak {_size(row.truth.peak)} {_off(row.error('peak'))}"
        print(f"[{number}/{len(wanted)}] {cell.name}: {said}", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
