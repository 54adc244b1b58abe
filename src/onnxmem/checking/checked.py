"""The answer on one case, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxmem.checking.case import Case
from onnxmem.documents import Record, stored
from onnxmem.history.entry import Entry, Key, short
from onnxmem.history.figures import Figures
from onnxmem.units import format_bytes, format_percent
from onnxmem.unknown import Bytes, Unknown

OK, EXCEEDED, GROWN, FAILED = "ok", "exceeded", "grown", "failed"
_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class Baseline(Record):
    """What it took before."""

    size: int = stored("bytes")
    allowed: int = stored("allowed_bytes")
    """The most that is not yet grown."""
    origin: str
    """The file it is from."""
    date: str
    commit: str | None = None
    since: tuple[str, ...] = ()
    """What else was changed since then."""

    @property
    def when(self) -> str:
        """When and where that was."""
        return self.date[:10] + (f", commit {short(self.commit)}" if self.commit else "")


@dataclass(frozen=True, kw_only=True)
class Remedy(Record):
    """Another mode, and what it takes there."""

    mode: str
    size: int = stored("bytes")
    fits: bool


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """One case, checked."""

    case: Case
    key: Key
    sha256: str = stored("model_sha256", default="")
    figures: Figures
    spread: tuple[int, int] | None = stored("spread_bytes", default=None)
    """The lowest and the highest of several processes."""
    baseline: Baseline | None = None
    parts: Mapping[str, int] = field(default_factory=dict)
    """What the peak is made of, if it is over the budget."""
    remedies: tuple[Remedy, ...] = ()
    """Other modes that were tried because it is."""
    failure: str = ""
    """Why there is no answer."""
    hint: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """How long checking took."""

    @property
    def size(self) -> Bytes:
        """The figure that the budget is about."""
        return self.case.about.of(self.figures)

    @property
    def excess(self) -> Bytes:
        """How much more than the budget it takes; negative if it fits."""
        if self.case.budget is None:
            return Unknown("it has no budget")
        return self.size if isinstance(self.size, Unknown) else self.size - self.case.budget

    @property
    def growth(self) -> Bytes:
        """How much more than before it takes."""
        if self.baseline is None:
            return Unknown("there is no baseline")
        return self.size if isinstance(self.size, Unknown) else self.size - self.baseline.size

    @property
    def fits(self) -> bool | None:
        """Whether it is within its budget; None if nobody knows, or there is none."""
        return None if isinstance(self.excess, Unknown) else self.excess <= 0

    @property
    def grew(self) -> bool:
        """Whether it has grown by more than it may."""
        return self.baseline is not None and isinstance(self.size, int) and self.size > self.baseline.allowed

    @property
    def verdict(self) -> str:
        """One of: ok, exceeded, grown, failed."""
        if self.failure:
            return FAILED
        return EXCEEDED if self.fits is False else GROWN if self.grew else OK

    @property
    def title(self) -> str:
        """The model and the mode, and its name if it has one."""
        name = f"{self.case.name} ({self.key.model})" if self.case.name else self.key.model
        return f"{name} in mode {self.key.mode}"

    @property
    def brief(self) -> str:
        """What is wrong, in a line."""
        if self.failure:
            return self.sentence.rstrip(".")
        if isinstance(self.excess, int) and self.excess > 0:
            return f"{self.title} is over its budget by {format_bytes(self.excess)}"
        return f"{self.title} has grown by {format_bytes(self.growth)}" if isinstance(self.growth, int) else self.title

    @property
    def sentence(self) -> str:
        """The answer, in a sentence or two."""
        if self.failure:
            return f"{self.title} could not be checked: {self.failure.rstrip('.')}."
        assert isinstance(self.size, int)
        said = "estimated " if self.case.by == "estimate" else ""
        figure = f"{said}{self.case.about.label} is {format_bytes(self.size)}"
        parts = []
        if self.case.budget is not None and isinstance(self.excess, int):
            allowed = format_bytes(self.case.budget)
            parts.append(
                f"{self.title} {self._takes} {format_bytes(self.excess)} more than its budget: "
                f"its {figure}, and {allowed} are allowed."
                if self.excess > 0
                else f"{self.title} is within its budget: its {figure} of {allowed}."
            )
        else:
            parts.append(f"{self.title}: its {figure}.")
        return " ".join([*parts, *self._growth(), *self._largest(), *self._remedy()])

    @property
    def _takes(self) -> str:
        return "would take" if self.case.by == "estimate" else "takes"

    def _growth(self) -> list[str]:
        if self.baseline is None or not isinstance(self.growth, int):
            return []
        before = f"{format_bytes(self.baseline.size)} ({self.baseline.when})"
        if not self.grew:
            return [f"Before, it was {before}."]
        part = f" or {format_percent(self.growth / self.baseline.size)}" if self.baseline.size else ""
        since = f" Since then: {'; '.join(self.baseline.since)}." if self.baseline.since else ""
        return [
            f"It has grown by {format_bytes(self.growth)}{part} from {before}, "
            f"more than the {self.case.tolerance} that it may.{since}"
        ]

    def _largest(self) -> list[str]:
        largest = sorted(self.parts.items(), key=lambda part: -part[1])[:_PARTS]
        listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest)
        return [f"Its largest parts: {listed}."] if listed else []

    def _remedy(self) -> list[str]:
        if not self.remedies:
            return []
        fitting = next((each for each in self.remedies if each.fits), None)
        if fitting:
            return [f"It fits in mode {fitting.mode}, in which it {self._takes} {format_bytes(fitting.size)}."]
        least = min(self.remedies, key=lambda each: each.size)
        return [f"It does not fit in mode {least.mode} either, in which it {self._takes} {format_bytes(least.size)}."]

    def entry(self, **made: Any) -> Entry:
        """As a result of a history, with where and when it was made."""
        return Entry(key=self.key, figures=self.figures, sha256=self.sha256, passed=self.verdict == OK, **made)

    def derived(self) -> Mapping[str, Any]:
        """What readers look for first."""
        return {
            "model": self.key.model,
            "mode": self.key.mode,
            "label": self.case.about.label,
            "bytes": self.size,
            "budget_bytes": self.case.budget,
            "fits": self.fits,
            "excess_bytes": self.excess,
            "growth_bytes": self.growth,
            "verdict": self.verdict,
            "sentence": self.sentence,
        }
