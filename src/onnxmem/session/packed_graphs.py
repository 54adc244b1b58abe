"""Which graphs does a package hold, for which input shapes, and how is each of them loaded?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.documents import Record
from onnxmem.session.argument import Argument
from onnxmem.session.modes import Setting

# With these a file's nodes run in the order they stand in, as they are; `config` is what ONNX Runtime would change even
# so.
KEEP_OPTIONS: Mapping[str, Setting] = {
    "graph_optimization_level": "ORT_DISABLE_ALL",
    "execution_order": "PRIORITY_BASED",
}
KEEP_CONFIG: Mapping[str, str] = {"session.disable_quant_qdq": "1", "session.disable_aot_function_inlining": "1"}


@dataclass(frozen=True, kw_only=True)
class PackedPlan(Record):
    """The shapes a plan is for, and how much it takes."""

    inputs: Mapping[str, tuple[int, ...]]
    peak_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True, kw_only=True)
class TiledGraph(PackedPlan):
    """Another graph of the package, rewritten for these input shapes; it needs its plan, which is stored with it."""

    model: str
    plan: str
    """The files that hold them. Its weights are in the package's own file."""
    nodes: int
    extra_work: float
    """How much more it computes, as a part of what the model does."""
    always_read: tuple[tuple[int, int], ...] = ()
    always_mapped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReducedPart(Record):
    """One thing that was done so that runs need less: what it gave, and what it costs."""

    part: str
    gave_bytes: int
    nodes: int = 0
    """So many more nodes."""
    extra_work: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reduced(Record):
    """What runs with certain input shapes need, and how they came to need no more."""

    inputs: Mapping[str, tuple[int, ...]]
    before_bytes: int
    """What a run needs as ONNX Runtime orders it, in the best of places."""
    after_bytes: int
    """What its plan takes."""
    output_bytes: int
    """What it returns, which is the caller's. It counts in a budget."""
    parts: tuple[ReducedPart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TileSettings(Record):
    """What was asked for."""

    extra_work: float | None
    """How much more may be computed; None: as much as the budget takes."""
    budget_bytes: int | None = None


@dataclass(frozen=True)
class DeclaredTensor(Record):
    """An input or output as the model declares it."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    def argument(self) -> Argument:
        """As a session describes it."""
        return Argument(self.name, self.type, list(self.shape))


class PackageGraph(NamedTuple):
    """One graph of a package, as a session loads it."""

    model: Path
    options: Mapping[str, Setting]
    config: Mapping[str, str]
    always_read: tuple[tuple[int, int], ...]
    always_mapped: tuple[tuple[int, int], ...]
    plans: Callable[[], list[dict[str, Any]]]
