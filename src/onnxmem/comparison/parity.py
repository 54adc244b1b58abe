"""Do they give the same answers? Nothing wins before this is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxmem.documents import Record
from onnxmem.measurement.feeds import Array

TOLERANCE = 1e-4
_COSINE = 0.999
Outputs = Sequence[tuple[str, Array | None]]
"""Names and arrays; None for what is no plain array and cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class Difference(Record):
    """How far one output of one candidate at one size is from the reference."""

    candidate: str
    size: str
    output: str
    same: bool
    equal: bool = False
    """Bit for bit, and of the same type."""
    max_abs: float | None = None
    max_rel: float | None = None
    """The largest difference over the reference's largest value: element by element, values near 0 would decide."""
    cosine: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.candidate} at {self.size}, output '{self.output}': {self.reason}"
        figures = f"differs by {self.max_abs:.3g} (relative {self.max_rel:.3g}, cosine {self.cosine:.6f})"
        return f"{self.candidate} at {self.size}: output '{self.output}' {figures}"


@dataclass(frozen=True)
class Parity(Record):
    """The verdict on all candidates that ran."""

    reference: str | None
    tolerance: float
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether all of them agree."""
        return all(each.same for each in self.differences)

    @property
    def mismatches(self) -> tuple[Difference, ...]:
        """Where they do not; the worst of each candidate first."""
        return tuple(each for each in self.differences if not each.same)

    @property
    def equal(self) -> bool:
        """Whether there was something to compare, and all of it is the same bit for bit."""
        return bool(self.differences) and all(each.equal for each in self.differences)

    def agrees(self, candidate: str) -> bool:
        """Whether this candidate gives the reference's answers; the reference does."""
        return candidate == self.reference or not any(each.candidate == candidate for each in self.mismatches)

    @property
    def max_abs(self) -> float | None:
        """The largest difference of any number."""
        return max((each.max_abs for each in self.differences if each.max_abs is not None), default=None)

    def derived(self) -> Mapping[str, Any]:
        """Whether all agree, whether to the last bit, and the largest differences."""
        relative = [each.max_rel for each in self.differences if each.max_rel is not None]
        return {"same": self.same, "equal": self.equal, "max_abs": self.max_abs, "max_rel": max(relative, default=None)}


def read_outputs(saved: Sequence[Sequence[str | None]]) -> list[tuple[str, Array | None]]:
    """What a worker wrote down."""
    return [(str(name), None if path is None else np.load(Path(path), allow_pickle=False)) for name, path in saved]


def judge_parity(outputs: Mapping[str, Mapping[str, Outputs]], tolerance: float) -> Parity:
    """Compare each candidate's outputs, by size, with those of the first: candidate → size → outputs."""
    names = list(outputs)
    if not names:
        return Parity(None, tolerance, ())
    reference = max(names, key=lambda name: len(outputs[name]))  # the first of those that ran at most sizes
    found: list[Difference] = []
    for name in names:
        for size in outputs[name] if name != reference else ():
            if size in outputs[reference]:
                found += compare_outputs(name, size, outputs[reference][size], outputs[name][size], tolerance)
    return Parity(reference, tolerance, tuple(found))


def compare_outputs(candidate: str, size: str, wanted: Outputs, got: Outputs, tolerance: float) -> list[Difference]:
    """Output by output: by name if both have the same names, else in their order."""
    if len(wanted) != len(got):
        why = f"it has {len(got)} outputs, and the reference has {len(wanted)}"
        return [Difference(candidate=candidate, size=size, output="", same=False, reason=why)]
    by_name = dict(got)
    pairs = list(zip(wanted, got, strict=True))
    if len(by_name) == len(got) and set(by_name) == {name for name, _ in wanted}:
        pairs = [((name, value), (name, by_name[name])) for name, value in wanted]
    return [difference(candidate, size, name, left, right, tolerance) for (name, left), (_, right) in pairs]


def difference(
    candidate: str, size: str, output: str, wanted: Array | None, got: Array | None, tolerance: float
) -> Difference:
    """One output against another."""

    def judged(same: bool, reason: str = "", **figures: Any) -> Difference:
        bare = Difference(candidate=candidate, size=size, output=output, same=same, reason=reason, **figures)
        return replace(bare, equal=same and _equal_bits(wanted, got))

    if wanted is None or got is None:
        return judged(True, "no plain array, not compared")
    if wanted.shape != got.shape:
        return judged(False, f"its shape is {list(got.shape)}, the reference's {list(wanted.shape)}")
    if wanted.dtype.kind not in "fiub" or got.dtype.kind not in "fiub":
        same = bool(np.array_equal(wanted, got))
        return judged(same, "" if same else "the values differ")
    left, right = wanted.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    odd = ~np.isfinite(left) | ~np.isfinite(right)
    if odd.any():
        # NaN is the same answer as NaN and infinity as infinity, but nothing else is.
        if not np.array_equal(left[odd], right[odd], equal_nan=True):
            return judged(False, "NaN or infinity in one of them alone")
        left, right = left[~odd], right[~odd]
    largest = float(np.abs(left).max(initial=0.0))
    absolute = float(np.abs(left - right).max(initial=0.0))
    cosine = _cosine(left, right)
    same = absolute <= tolerance * max(1.0, largest) and (absolute <= tolerance * largest or cosine >= _COSINE)
    relative = absolute / largest if largest else absolute
    return judged(same, max_abs=absolute, max_rel=relative, cosine=cosine)


def _equal_bits(wanted: Array | None, got: Array | None) -> bool:
    """Numbers that are equal need not be: 0 and −0 are."""
    if wanted is None or got is None or wanted.dtype != got.dtype:
        return False
    return wanted.tobytes() == got.tobytes()


def _cosine(left: Array, right: Array) -> float:
    lengths = float(np.linalg.norm(left)) * float(np.linalg.norm(right))
    if lengths == 0:
        return 1.0 if np.array_equal(left, right) else 0.0
    return min(1.0, float(left @ right) / lengths)
