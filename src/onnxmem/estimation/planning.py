"""Where should every buffer lie? Model or problem → Planning: offsets, and a proof of how good they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from onnxmem.deadline import Deadline
from onnxmem.documents import Record
from onnxmem.errors import UsageError
from onnxmem.estimation.records import BufferRow, ModelFacts, OnModel, Rated, UnknownTensor, listing, rating
from onnxmem.estimation.tiling import TilingFacts, checked_extra_work, tile_schedule
from onnxmem.model.model import Model
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.placement.shares import named
from onnxmem.placement.strategies import JOINT, solve
from onnxmem.placement.table import is_table, read_problem
from onnxmem.schedule.joint import plan_jointly
from onnxmem.schedule.scheduled import ALIGNMENT, Question, Scheduled, schedule
from onnxmem.schedule.storages import Rules
from onnxmem.schedule.timeline import Step
from onnxmem.units import format_bytes, format_percent

_EFFORT = 0.3
"""The part of the time limit that the strategy takes on an ordinary processor."""


@dataclass(frozen=True, kw_only=True)
class Sharing(Record):
    """How many pairs of buffers may share a place, and how many do; and what no plan without that could go below."""

    possible: int
    used: int
    unshared_bound_bytes: int

    @classmethod
    def of(cls, plan: Plan) -> Sharing | None:
        pairs = len(plan.problem.shares)
        apart = plan.problem.without_shares().lower_bound
        return cls(possible=pairs, used=len(plan.shared), unshared_bound_bytes=apart) if pairs else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Planning(Rated, OnModel):
    """A plan, what it is a plan of, and how good it is. `about` is None for a problem that comes without a model."""

    SCHEMA: ClassVar[str] = "onnxmem.plan/1"

    about: ModelFacts | None = None
    problem: str | None = None
    """The name of a problem that comes without a model."""
    strategy: str
    buffers: int
    lower_bound_bytes: int
    """The most bytes alive at once: no plan can take less."""
    naive_bytes: int
    """All buffers together, if nothing were ever reused."""
    alignment: int
    capacity_bytes: int | None
    sharing: Sharing | None = None
    """Which buffers lie at one place; None where none may."""
    tiling: TilingFacts | None = None
    """What computing parts of the model in pieces gives, where that was asked for: the plan is of that graph."""
    placement: tuple[BufferRow, ...] | None
    placement_note: str | None = None
    schedule: tuple[Step, ...] | None = None
    """The nodes in the order in which they run: one for every step. None for a problem without a model."""
    unknown: tuple[UnknownTensor, ...] = ()

    @property
    def fits(self) -> bool:
        """Does it stay within the capacity, where there is one?"""
        return self.capacity_bytes is None or self.peak_bytes <= self.capacity_bytes

    @property
    def title(self) -> str:
        """What was planned, for the top of a picture."""
        return self.about.title if self.about else self.problem or ""

    def derived(self) -> Mapping[str, Any]:
        """How good it is, and whether it fits."""
        return {**super().derived(), "fits": self.fits}

    def plan(self) -> Plan:
        """The offsets as a plan of a problem, for the validator and the writers of CSV."""
        if self.placement is None:
            raise UsageError(f"this plan does not list its buffers: {self.placement_note}")
        rows = self.placement
        buffers = (Buffer(row.name, row.lower, row.upper, row.size) for row in rows)
        pairs = named([row.name for row in rows], [row.may_share or () for row in rows])
        problem = Problem.of(buffers, alignment=self.alignment, capacity=self.capacity_bytes, shares=pairs)
        return Plan(
            problem,
            np.array([row.offset for row in rows], dtype=np.int64),
            self.strategy,
            seconds=self.seconds,
            proven_bound=self.proven_bound_bytes,
            interrupted=self.interrupted,
        )

    def __repr__(self) -> str:
        how = "optimal" if self.optimal else f"{format_percent(self.gap)} above the bound"
        return f"<Planning of {self.title}: {self.buffers} buffers in {format_bytes(self.peak_bytes)}, {how}>"

    @classmethod
    def of(cls, plan: Plan, scheduled: Scheduled | None = None, name: str = "") -> Planning:
        """The result of a plan; `name` is that of a problem without a model."""
        return cls(
            about=ModelFacts.of(scheduled) if scheduled else None,
            problem=name or None,
            strategy=plan.strategy,
            **rating(plan),
            buffers=len(plan.problem),
            lower_bound_bytes=plan.problem.lower_bound,
            naive_bytes=plan.problem.total,
            alignment=plan.problem.alignment,
            capacity_bytes=plan.problem.capacity,
            sharing=Sharing.of(plan),
            **listing(plan, scheduled),
            unknown=tuple(map(UnknownTensor.of, scheduled.timeline.unknown)) if scheduled else (),
        )


def plan(
    source: str | PathLike[str] | Model | Problem,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    strategy: str = "best",
    capacity: int | None = None,
    view: str | None = None,
    level: str = "all",
    fix_dims: bool = False,
    order: str = "ort-default",
    alias: bool = True,
    in_place: bool = True,
    count_inputs: bool = False,
    alignment: int | None = None,
    tile: bool = False,
    extra_work: float | None = None,
    time_limit: float = 20.0,
    seed: int = 0,
) -> Planning:
    """Where should every buffer lie? `plan("m.onnx", shapes={"x": (1, 3, 640, 640)})` or `plan("problem.csv")`.

    `source` is a model, a CSV file (`id,lower,upper,size`, and `shares` where buffers may be written over others) or a
    Problem; `strategy` a name from STRATEGIES, "cp_sat", "model" (order and placement together, for small models) or
    your own as "package.module:function". The plan should fit into `capacity` bytes, where that is given: the result's
    `fits` says whether it does. `alignment` is 64 for models and 1 for a CSV unless it is given. With `tile`, parts of
    the model are computed in pieces where that takes less, with at most `extra_work` more to compute (0.1 is 10 %);
    with a capacity, no more of them than it takes. The other options are those of `estimate`.
    """
    work = checked_extra_work(tile=tile, extra_work=extra_work, capacity=capacity)
    question = Question(
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims=dims or {},
        view=view,
        level=level,
        fix_dims=fix_dims,
        order=order,
        rules=Rules(alias=alias, in_place=in_place, inputs=count_inputs),
        alignment=ALIGNMENT if alignment is None else alignment,
        time_limit=time_limit,
        seed=seed,
    )
    if isinstance(source, Problem):
        problem, name = source, ""
    elif not isinstance(source, Model) and is_table(Path(source)):
        problem, name = read_problem(Path(source), alignment=alignment or 1), Path(source).name
    else:
        model = source if isinstance(source, Model) else Model.open(source)
        return compute_plan(model, question, strategy, capacity, extra_work=work)[0]
    if shapes or dims:
        raise UsageError("a placement problem has no inputs whose shapes could be set")
    if tile:
        raise UsageError("tiles are for models: a placement problem has no nodes")
    return compute_plan(problem, question, strategy, capacity, name)[0]


def compute_plan(
    source: Model | Problem,
    question: Question,
    strategy: str = "best",
    capacity: int | None = None,
    name: str = "",
    *,
    extra_work: float | None = None,
) -> tuple[Planning, Plan, Scheduled | None]:
    """The result, the plan itself, and the model laid out in time, if it is one; `name` is that of a problem.

    With `extra_work`, parts of the model are computed in pieces.
    """
    deadline = Deadline(question.time_limit)
    scheduled, tiling = None, None
    if extra_work is not None and strategy == JOINT:
        raise UsageError(f"strategy '{JOINT}' orders the nodes itself, and tiles keep theirs", hint="leave out one")
    if isinstance(source, Model) and strategy == JOINT:
        scheduled, found = plan_jointly(source, question, deadline, capacity)
        return Planning.of(found, scheduled), found, scheduled
    if isinstance(source, Model) and extra_work is not None:
        scheduled, tiling = tile_schedule(source, question, deadline, extra_work, capacity)
        source = scheduled.problem
    elif isinstance(source, Model):
        scheduled = schedule(source, question, deadline)
        source = scheduled.problem
    problem = source if capacity is None else source.with_capacity(capacity)
    found = solve(
        problem, strategy, time_limit=deadline.share(1.0), effort=question.time_limit * _EFFORT, seed=question.seed
    )
    return replace(Planning.of(found, scheduled, name), tiling=tiling), found, scheduled
