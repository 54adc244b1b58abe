"""What a sweep has found: how far it is, what each cell took, which is the better trade, and what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxmem.documents import Record, stored
from onnxmem.history.tolerance import Tolerance
from onnxmem.result import Result


@dataclass(frozen=True, kw_only=True)
class CellRow(Record):
    """One cell of the table."""

    verb: str
    model: str
    mode: str
    size: str
    state: str
    """finished, failed or waiting."""
    reason: str
    """Of a failure: out of memory, time limit, crash, lost or failed."""
    message: str
    bytes: int | None
    """The figure of its verb."""
    latency: float | None = stored("latency_seconds")
    seconds: float | None
    """How long it took to find out."""
    tries: int
    processor: str
    node: str
    date: str
    onnxmem: str
    onnxruntime: str


@dataclass(frozen=True, kw_only=True)
class Status(Record):
    """How far a sweep is."""

    sweep: int
    """Its number in the store."""
    date: str
    engine: str
    finished: int
    failed: int
    waiting: int
    verbs: Mapping[str, int]
    """How many cells of each."""
    reasons: Mapping[str, int]
    """Of failures."""
    processors: tuple[str, ...]
    seconds: float
    """What all cells took together."""
    left: float | None = stored("left_seconds")
    """What those that wait will take, one after the other; None if nothing tells."""
    slowest: tuple[CellRow, ...]

    @property
    def cells(self) -> int:
        """All of them."""
        return self.finished + self.failed + self.waiting


@dataclass(frozen=True, kw_only=True)
class MapRow(Record):
    """What a model took at each size; None where nobody knows."""

    model: str
    mode: str
    processor: str
    """Empty where all are of one."""
    bytes: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class SizeMap(Record):
    """Models × sizes, for one verb."""

    verb: str
    label: str
    """What the figures are."""
    sizes: tuple[str, ...]
    rows: tuple[MapRow, ...]
    left_out: int = 0
    """Models and modes that take less than those here."""


@dataclass(frozen=True, kw_only=True)
class Trade(Record):
    """One measured cell between memory and time."""

    model: str
    mode: str
    size: str
    processor: str
    bytes: int
    latency: float = stored("latency_seconds")
    best: bool
    """No other mode of the same model at the same size takes less of both."""


@dataclass(frozen=True, kw_only=True)
class Change(Record):
    """A cell that takes more or less than the same one did before."""

    verb: str
    model: str
    mode: str
    size: str
    before: int = stored("before_bytes")
    after: int = stored("bytes")
    since: tuple[str, ...]
    """What else was changed: the version, the model or the commit that is to blame."""
    date: str
    """Of the one before."""

    @property
    def grew(self) -> bool:
        """Whether it takes more."""
        return self.after > self.before


@dataclass(frozen=True, kw_only=True)
class SweepStatus(Result):
    """How far the last sweep of a store is."""

    SCHEMA = "onnxmem.sweep_status/1"

    file: Path
    status: Status

    def __repr__(self) -> str:
        status = self.status
        return f"<SweepStatus: {status.finished} of {status.cells} cells finished, {status.failed} failed>"


@dataclass(frozen=True, kw_only=True)
class Sweep(Result):
    """What the last sweep of a store has found."""

    SCHEMA = "onnxmem.sweep/1"

    file: Path
    status: Status
    maps: tuple[SizeMap, ...]
    trades: tuple[Trade, ...]
    changes: tuple[Change, ...]
    """The largest first, and only those beyond the tolerance."""
    changed: int
    """How many there are."""
    tolerance: Tolerance
    failures: tuple[CellRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all cells are finished."""
        return not self.status.failed and not self.status.waiting

    def __repr__(self) -> str:
        return f"<Sweep of {self.status.cells} cells: {self.status.finished} finished, {self.status.failed} failed>"


@dataclass(frozen=True, kw_only=True)
class PlannedCell(Record):
    """A cell that would be worked out."""

    verb: str
    model: str
    mode: str
    size: str
    finished: bool
    """It is in the store already, and will not be repeated."""
    seconds: float | None
    """What earlier ones took."""


@dataclass(frozen=True, kw_only=True)
class SweepPlan(Result):
    """What a sweep would do."""

    SCHEMA = "onnxmem.sweep_plan/1"

    file: Path
    cells: tuple[PlannedCell, ...]
    workers: int
    """Cells without a run that are worked out at a time."""
    parallel: int
    """Measurements at a time."""
    seconds: float | None
    """What all of it will take; None if nothing tells."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<SweepPlan of {len(self.cells)} cells, {sum(each.finished for each in self.cells)} of them finished>"
