"""What fits into a budget, as a result that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from onnxmem.documents import Record, stored
from onnxmem.fitting.axis import Axis
from onnxmem.result import Result
from onnxmem.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Point(Record):
    """What all workers together are predicted to take at one size."""

    size: int
    bytes: int
    needed: int = stored("needed_bytes")
    """The same with what predictions may be off: a budget that will do."""
    exact: bool = True
    """Whether it was followed call by call; not if it lies between two sizes that were, since the time was over, or if
    sizes of tensors depend on what is fed."""


@dataclass(frozen=True, kw_only=True)
class Attempt(Record):
    """One size, run under the limit."""

    size: int
    fits: bool
    peak: int | None = stored("peak_bytes")
    """What was resident at most: of one worker its RSS, of several the sum of their PSS. None if it did not end."""
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Verified(Record):
    """What measuring under the limit has shown."""

    size: int | None
    """The largest that held; None if none did."""
    limited_by: str
    """What kept the process below the budget."""
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True)
class ModeFit(Record):
    """One mode: how large it may be."""

    mode: str
    size: int | None
    """The largest size that fits with the margin; None if the smallest does not, or there is no budget."""
    open_end: bool
    """Whether the search ended before the budget did."""
    gaps: tuple[int, ...]
    """Smaller sizes, of those that were looked at, that do not fit: arenas grow in powers of two."""
    workers: int | None
    """How many workers fit at the smallest size; None without a budget."""
    points: tuple[Point, ...]
    """The curve: what was looked at, small to large."""
    verified: Verified | None = None

    @property
    def holds(self) -> int | None:
        """The largest size: as measured, or if it was not, as predicted."""
        return self.verified.size if self.verified else self.size

    @property
    def smallest(self) -> Point:
        """The first size of the range."""
        return self.points[0]

    @property
    def at_size(self) -> Point | None:
        """What it is predicted to take at the largest size that holds."""
        return next((point for point in self.points if point.size == self.holds), None)

    def derived(self) -> Mapping[str, Any]:
        """The largest size, and what it takes."""
        at = self.at_size
        return {"holds": self.holds, "bytes": at.bytes if at else None}


@dataclass(frozen=True, kw_only=True)
class Change(Record):
    """What to change so that more fits."""

    mode: str
    size: int
    text: str


@dataclass(frozen=True, kw_only=True)
class TileFit(Record):
    """A size that fits if parts of the model are computed piece by piece, in a package: `pack --tile`."""

    size: int
    bytes: int
    """What all workers together are predicted to take then."""
    needed: int = stored("needed_bytes")
    """The same with what predictions may be off."""
    extra_work: float
    """How much more it computes, as a part of what the model does."""
    nodes: int
    """How many more there are."""


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """What fits, along one range of sizes."""

    axis: Axis
    modes: tuple[ModeFit, ...]
    changes: tuple[Change, ...]
    """Each lets more in than those before it, and asks for more work."""
    recommended: str | None
    """The mode that takes the least work of those that let nearly the most in; None if nothing fits."""
    impossible: tuple[int, ...]
    """Sizes that the model cannot run at."""
    tiles: TileFit | None = None
    """What fits in pieces and in no mode; None if that was not found."""

    @property
    def fits(self) -> bool:
        """Whether any mode fits at all."""
        return any(mode.holds is not None for mode in self.modes)

    def derived(self) -> Mapping[str, Any]:
        """How much more each mode lets in than stock, as a part of that."""
        sizes = {mode.mode: mode.holds for mode in self.modes if mode.holds}
        stock = sizes.get("stock")
        return {"gains": {mode: size / stock - 1 for mode, size in sizes.items()} if stock else {}}


@dataclass(frozen=True, kw_only=True)
class Fitting(Result):
    """The largest sizes of a model that fit into a budget, mode by mode, and what sizes below and above them take."""

    SCHEMA: ClassVar[str] = "onnxmem.fit/1"

    model: str
    budget: int | None = stored("budget_bytes")
    """None if only the curves were asked for."""
    workers: int
    threads: int
    margins: Mapping[str, float]
    """The parts of predictions that are kept free above them: of loading, of runs in stock's arena, of other runs."""
    fixed: Mapping[str, int]
    """Dimensions the caller decided."""
    assumed: Mapping[str, int]
    """Dimensions the caller left open, and the numbers used for them."""
    answers: tuple[Answer, ...]
    """One for each range of sizes."""
    unknown_tensors: tuple[str, ...]
    """Tensors whose size depends on what is fed: they are in no figure, so that nothing can be promised."""

    @property
    def fits(self) -> bool:
        """Whether anything fits; without a budget, everything does."""
        return self.budget is None or any(answer.fits for answer in self.answers)

    def derived(self) -> Mapping[str, Any]:
        """Whether anything fits."""
        return {"fits": self.fits}

    def __repr__(self) -> str:
        if self.budget is None:
            return f"<Fitting of {self.model}: memory by {', '.join(answer.axis.label for answer in self.answers)}>"
        found = []
        for answer in self.answers:
            best = next((mode for mode in answer.modes if mode.mode == answer.recommended), None)
            name = answer.axis.label or "the model"
            found.append(f"{name} {'does not fit' if best is None else f'up to {best.holds} {best.mode}'}")
        return f"<Fitting of {self.model} into {format_bytes(self.budget)}: {', '.join(found)}>"
