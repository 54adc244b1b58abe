"""Does what `fit --verify` recommends hold under the limit, and how much of the budget does it give away?

    python -m benchmarks.fit                      all 20 pairs of a model and a budget: twenty minutes
    python -m benchmarks.fit --only det zoo-unet  those of these models
    python -m benchmarks.fit --out pairs.json     what is there already is not measured again

Each pair: `fit` with `verify`, then the recommended size once more in a fresh process under the same limit, and then
larger ones, until one does not hold. A size holds if the process ends well under the limit and its peak RSS is within
the budget. What is given away is the peak at the largest size that holds, less the peak at the recommended one, as a
part of the budget; beside it stands what the prediction alone would have recommended, and what that takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sized_models import locate
from onnxmem.errors import OnnxmemError
from onnxmem.files import write_text
from onnxmem.fitting.axis import Given
from onnxmem.fitting.fit import fit
from onnxmem.measurement.measure import measure
from onnxmem.units import format_bytes, parse_bytes

MOST_GIVEN_AWAY = 0.10
LOOKED_ABOVE = 3
"""Larger sizes in a row that must fail before a size is the largest: memory does not always grow with it."""
_IMAGE: Mapping[str, Given] = {"height": "64..:32", "width": "height"}
_DET: Mapping[str, Given] = {"DynamicDimension.1": "64..:32", "DynamicDimension.2": "DynamicDimension.1"}

PAIRS: tuple[tuple[str, Mapping[str, Given], str, str], ...] = (
    ("det", _DET, "128MiB", "stock"),
    ("det", _DET, "160MiB", "planned"),
    ("rec", {"DynamicDimension.1": "64..:32"}, "160MiB", "tuned"),
    ("rec", {"DynamicDimension.1": "64..:32"}, "200MiB", "stock"),
    ("cls", {"x_0": "1..", "x_2": 48, "x_3": 192}, "96MiB", "stock"),
    ("cls", {"x_0": "1..", "x_2": 48, "x_3": 192}, "120MiB", "planned"),
    ("magika", {"unk__214": "1.."}, "128MiB", "tuned"),
    ("magika", {"unk__214": "1.."}, "200MiB", "planned"),
    ("nsfw", {"unk__653": "1.."}, "180MiB", "tuned"),
    ("bert_pron", {"unk__583": "1.."}, "100MiB", "stock"),
    ("ddddocr_old", {"image_width": "64..:16"}, "140MiB", "tuned"),
    ("zoo-unet", _IMAGE, "160MiB", "stock"),
    ("zoo-unet", _IMAGE, "256MiB", "planned"),
    ("zoo-unet", {"batch": "1..64"}, "300MiB", "tuned"),
    ("zoo-squeezenet", {"batch": "1..64"}, "160MiB", "stock"),
    ("zoo-squeezenet", _IMAGE, "128MiB", "planned"),
    ("zoo-shufflenet", {"batch": "1.."}, "140MiB", "tuned"),
    ("zoo-nas", {"batch": "1.."}, "120MiB", "planned"),
    ("zoo-yolo", _IMAGE, "200MiB", "tuned"),
    ("zoo-lstm", {"sequence": "32..:32"}, "120MiB", "stock"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One pair."""

    model: str
    dimension: str
    budget: str
    mode: str
    predicted: int | None
    """What the prediction alone would recommend …"""
    predicted_holds: bool | None
    """… and whether that holds; None if it was not run."""
    verified: int | None
    attempts: int
    holds: bool
    """Whether the verified size holds again."""
    peak: int
    largest: int
    largest_peak: int
    limited_by: str
    seconds: float

    @property
    def given_away(self) -> float:
        """Of the budget."""
        return max(0.0, (self.largest_peak - self.peak) / parse_bytes(self.budget))


class Bench:
    """One model under one limit."""

    def __init__(self, path: Path, dims: Mapping[str, Given], budget: str, mode: str) -> None:
        self.path, self.dims, self.budget, self.mode = path, dims, parse_bytes(budget), mode

    def peak(self, names: Sequence[str], size: int) -> int | None:
        """The peak at a size if it holds."""
        fixed = {name: number for name, number in self.dims.items() if isinstance(number, int)}
        dims = {**fixed, **dict.fromkeys(names, size)}
        found = measure(
            self.path, dims=dims, mode=self.mode, threads=1, memory_limit=self.budget, runs=3, nodes=False
        )  # fmt: skip
        peak = found.trial.highest
        return peak if found.verdict.ok and isinstance(peak, int) and peak <= self.budget else None

    def row(self, key: str, budget: str) -> Row:
        """Fit, verify, and look at what is above."""
        started = time.perf_counter()
        fitting = fit(self.path, self.budget, dims=self.dims, modes=[self.mode], threads=1, verify=True)
        seconds = time.perf_counter() - started
        (answer,) = fitting.answers
        (found,) = answer.modes
        assert found.verified is not None
        axis, size = answer.axis, found.verified.size
        tried = {attempt.size: attempt.fits for attempt in found.verified.attempts}
        peak = None if size is None else self.peak(axis.names, size)
        largest, largest_peak, failed = size or 0, peak or 0, 0
        above = axis.start if size is None else size + axis.step
        while failed < LOOKED_ABOVE and (axis.stop is None or above <= axis.stop):
            more = self.peak(axis.names, above)
            failed = failed + 1 if more is None else 0
            if more is not None:
                largest, largest_peak = above, more
            above += axis.step
        return Row(
            model=key,
            dimension=axis.label,
            budget=budget,
            mode=self.mode,
            predicted=found.size,
            predicted_holds=tried.get(found.size) if found.size is not None else None,
            verified=size,
            attempts=len(tried),
            holds=size is None or peak is not None,
            peak=peak or 0,
            largest=largest,
            largest_peak=largest_peak,
            limited_by=found.verified.limited_by,
            seconds=seconds,
        )


HEAD = ("model", "grows", "budget", "mode", "predicted", "holds", "verified", "peak", "largest", "given away", "tries")


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [HEAD, tuple("---" for _ in HEAD)]
    for row in rows:
        first = {True: "yes", False: "no", None: "?"}[row.predicted_holds]
        second = str(row.verified) if row.holds else f"**{row.verified} fails**"
        lines.append(
            (row.model, row.dimension, row.budget, row.mode, str(row.predicted), first, second, format_bytes(row.peak),
             str(row.largest), f"{row.given_away:.1%}", str(row.attempts))
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Run the pairs; each is saved when it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="only pairs of these")
    parser.add_argument("--out", type=Path, default=Path(".cache/fit.json"), help="where results are kept")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [Row(**row) for row in json.loads(given.out.read_text())] if given.out.exists() else []
    for key, dims, budget, mode in PAIRS:
        done = any((row.model, row.budget, row.mode) == (key, budget, mode) for row in rows)
        if done or (given.only and key not in given.only):
            continue
        try:
            rows.append(Bench(locate(key, given.out.parent), dims, budget, mode).row(key, budget))
        except OnnxmemError as error:
            print(f"{key} {budget} {mode}: {error}", file=sys.stderr, flush=True)
            continue
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        write_text(given.out, json.dumps([asdict(row) for row in rows], indent=1))
    print(table(rows))
    failed, worst = sum(not row.holds for row in rows), max((row.given_away for row in rows), default=0.0)
    print(f"\n{len(rows)} pairs: {failed} fail, at most {worst:.1%} of the budget given away")
    sys.exit(1 if failed or worst > MOST_GIVEN_AWAY else 0)


if __name__ == "__main__":
    main()
