"""The figures of a result that budgets and histories are about."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.unknown import Bytes, Unknown


@dataclass(frozen=True, kw_only=True)
class Figures(Record):
    """What it took. All are RSS of the whole process, but for the growth."""

    peak: Bytes = stored("peak_bytes")
    """The most, from its start to its end."""
    load_peak: Bytes = stored("load_peak_bytes")
    """The most while the model was loaded."""
    loaded: Bytes = stored("loaded_bytes")
    """With the model loaded, before its first run."""
    run_growth: Bytes = stored("run_growth_bytes")
    """The most in all runs − what it had before the first."""
    steady: Bytes = stored("steady_bytes")
    """After its last run."""
    latency: float | Unknown = stored("latency_seconds")
    """The median of its steady runs."""


@dataclass(frozen=True, kw_only=True)
class Figure(Record):
    """One of the figures that results have: its name here and in `Figures`, and what it is."""

    name: str
    field: str
    label: str
    about: str

    def of(self, figures: Figures) -> Bytes:
        """Its value."""
        value: Bytes = getattr(figures, self.field)
        return value


FIGURES = (
    Figure(name="peak", field="peak", label="peak RSS", about="the most that the process took"),
    Figure(name="load", field="load_peak", label="peak RSS while loading", about="the most while loading"),
    Figure(name="loaded", field="loaded", label="RSS when loaded", about="before the first run"),
    Figure(name="run", field="run_growth", label="growth by running", about="peak RSS in all runs − RSS before"),
    Figure(name="steady", field="steady", label="RSS after its runs", about="what it keeps between runs"),
)
"""What a budget or a history can be about."""


def find_figure(name: str) -> Figure:
    """The figure of that name."""
    for figure in FIGURES:
        if figure.name == name:
            return figure
    raise UsageError(f"there is no figure '{name}'", hint=f"known: {', '.join(each.name for each in FIGURES)}")
