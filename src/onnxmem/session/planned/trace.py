"""What does a model really ask its allocator for? One run's allocations and frees, kernels' scratch included."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from onnxmem._native import arena as native
from onnxmem.deadline import MORE_TIME
from onnxmem.documents import Document, Record
from onnxmem.errors import ModelError, PlanError, RuntimeUnsupported
from onnxmem.placement.problem import Int64Array, Problem
from onnxmem.placement.shares import NO_PAIRS, live_bytes, savings, within
from onnxmem.session.modes import CPU, CUDA
from onnxmem.session.options import silent

if TYPE_CHECKING:
    from onnxmem.session.planned.profile import NodeCalls, Profile

ALIGNMENT, DEVICE_ALIGNMENT = 64, 256
OUTLIVES = -1


@dataclass(frozen=True, eq=False)
class Trace(Record):
    """One row per buffer: its size, and when it was allocated and freed, counted in calls.

    An upper of -1 says that the buffer outlived the run: it is an output. A size of 0 stands for any size.
    """

    sizes: Int64Array
    lowers: Int64Array
    uppers: Int64Array
    alignment: int = field(default=ALIGNMENT, kw_only=True)
    """Where a buffer may begin, in bytes: a device has a coarser one."""

    @classmethod
    def recorded(cls, calls: native.Recorded) -> Self:
        """The trace of a run that was recorded to its end."""
        return cls(calls.sizes, calls.lowers, calls.uppers, alignment=calls.alignment)

    def __len__(self) -> int:
        return len(self.sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and all(
            np.array_equal(mine, its) for mine, its in zip(self.columns, other.columns, strict=True)
        )

    __hash__ = None  # type: ignore[assignment] # as for the arrays that it holds

    @property
    def columns(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Sizes, lowers and uppers."""
        return self.sizes, self.lowers, self.uppers

    @property
    def is_possible(self) -> bool:
        """Whether its numbers can be those of a run: every step is a call, and a buffer has two at most."""
        if len({column.shape for column in self.columns}) > 1 or self.sizes.ndim != 1:
            return False
        last, largest = 2 * len(self), np.iinfo(np.int64).max // max(1, 2 * len(self))
        times = np.concatenate([self.lowers, self.uppers])
        return bool(
            np.all((times >= OUTLIVES) & (times < last)) and np.all((self.sizes >= 0) & (self.sizes <= largest))
        )

    @cached_property
    def steps(self) -> int:
        """How many calls there were."""
        return int(max(self.lowers.max(initial=-1), self.uppers.max(initial=-1))) + 1

    @cached_property
    def inside(self) -> Int64Array:
        """The buffers that live within the run, by their row: those that a plan places."""
        return np.flatnonzero(self.uppers != OUTLIVES)

    @property
    def output_bytes(self) -> int:
        """What outlived the run."""
        return int(self.sizes[self.uppers == OUTLIVES].sum())

    def padded(self, guard: int = 0) -> Int64Array:
        """What each buffer occupies: its size rounded up to the alignment, and a guard behind it."""
        padded: Int64Array = -(-self.sizes // self.alignment) * self.alignment + guard
        return padded

    def problem(
        self,
        *,
        outputs: bool = False,
        guard: int = 0,
        rows: Int64Array | None = None,
        pairs: Int64Array = NO_PAIRS,
    ) -> Problem:
        """The placement problem: buffers that live within the run (or `rows`); with `outputs`, all of them.

        `pairs` of rows (before, after) may share a place: see `sharing.py`.
        """
        if rows is None:
            rows = np.arange(len(self)) if outputs else self.inside
        uppers = np.where(self.uppers == OUTLIVES, self.steps, self.uppers)[rows]
        sizes = (self.padded(guard) if guard else self.sizes)[rows]
        shares = within(pairs, rows, len(self)) if len(pairs) else pairs
        names = tuple(f"a{row}" for row in rows)
        return Problem(names, self.lowers[rows], uppers, sizes, self.alignment, shares=shares)

    def bound(self, guard: int = 0, rows: Int64Array | None = None, pairs: Int64Array = NO_PAIRS) -> int:
        """The most that is alive at once, of the buffers that live within the run (or of `rows`).

        No plan takes less than that; one in which `pairs` of rows share places, less than what those leave of it.
        """
        rows = self.inside if rows is None else rows
        sizes = self.padded(guard)[rows]
        if len(pairs):
            lowers, uppers = self.lowers[rows], self.uppers[rows]
            saved = savings(lowers, uppers, sizes, within(pairs, rows, len(self)))
            return int(live_bytes(lowers, uppers, sizes, saved)[1].max(initial=0))
        changes = np.zeros(self.steps + 1, np.int64)
        changes[self.lowers[rows]] = sizes
        changes[self.uppers[rows]] = -sizes  # every step is one call, so nothing is overwritten
        return int(np.cumsum(changes).max(initial=0))

    @property
    def calls(self) -> Int64Array:
        """Which buffer each call was about, by its row, counted from 1; negative where it was freed."""
        calls, ends = np.zeros(self.steps, np.int64), self.inside
        calls[self.lowers] = np.arange(1, len(self) + 1)
        calls[self.uppers[ends]] = -1 - ends
        return calls

    def prefix(self, step: int) -> Trace:
        """The part before a step, in which whatever is alive at its end stays alive until then."""
        rows = self.lowers < step
        uppers = self.uppers[rows]
        alive = np.flatnonzero(uppers >= step)
        # One call per step: they end one after the other, behind the last step there was.
        uppers[alive] = step + np.arange(len(alive))
        return Trace(self.sizes[rows], self.lowers[rows], uppers, alignment=self.alignment)

    def ended(self, rows: npt.NDArray[np.bool_]) -> Trace:
        """The same, in which those of these buffers that have no end get one, behind the last step."""
        uppers, still = self.uppers.copy(), np.flatnonzero(rows & (self.uppers == OUTLIVES))
        uppers[still] = self.steps + np.arange(len(still))
        return replace(self, uppers=uppers)

    def without(self, step: int) -> Trace:
        """The same, but the buffer allocated at that step may have any size (it says 0) and ends at any time."""
        row = self.lowers == step
        return replace(self, sizes=np.where(row, 0, self.sizes), uppers=np.where(row, OUTLIVES, self.uppers))

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """The trace that `document` wrote."""
        try:
            columns = (np.asarray(document[name], np.int64) for name in ("sizes", "lowers", "uppers"))
            alignment = document.get("alignment", ALIGNMENT)
            if alignment not in (ALIGNMENT, DEVICE_ALIGNMENT):
                raise ValueError(f"no memory is aligned to {alignment!r} bytes")
            trace = cls(*columns, alignment=alignment)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"this is not a trace: {error}") from error
        if not trace.is_possible:
            raise PlanError("this is not a trace: it has more steps than calls, or buffers of no size")
        return trace


def record(
    model: str | bytes,
    feeds: Mapping[str, Any],
    options: Any = None,
    *,
    time_limit: float | None = None,
    device: int | None = None,
) -> Trace:
    """Run a model once and write down what it asks for. `model` is a file's path or a serialized model.

    On a CUDA `device` it is what the second run asks for there: in the first, kernels try out algorithms.
    """
    runs = [feeds] if device is None else [feeds, feeds]
    return record_all(model, runs, options, time_limit=time_limit, device=device)[-1]


def record_all(
    model: str | bytes,
    runs: Iterable[Mapping[str, Any]],
    options: Any = None,
    *,
    time_limit: float | None = None,
    nodes: list[NodeCalls] | None = None,
    device: int | None = None,
) -> list[Trace]:
    """The same of several runs of one session, each with its feeds.

    `nodes` are told which calls of the first run are which node's, as far as ONNX Runtime says so.
    """
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.choosing import refuse_fallback  # noqa: PLC0415
    from onnxmem.session.planned.made import made_for_plans  # noqa: PLC0415
    from onnxmem.session.planned.profile import profiled  # noqa: PLC0415
    from onnxmem.session.planned.target import target_of  # noqa: PLC0415

    how = silent(onnxruntime.RunOptions())
    try:
        options = options or silent(onnxruntime.SessionOptions())
        providers: list[Any] = [CPU] if device is None else [(CUDA, {"device_id": device}), CPU]
        there = None if device is None else target_of(options, providers).device
        seen = profiled(options) if nodes is not None else nullcontext(lambda: None)
        with made_for_plans(options, device=there), seen as profile:
            session = onnxruntime.InferenceSession(model, options, providers)
        if device is not None:
            refuse_fallback(session.get_providers())
        marked = profile()
        # Nothing but this ends a run within this process.
        alarm = threading.Timer(time_limit or 0.0, setattr, [how, "terminate", True])
        alarm.daemon = True
        if time_limit is not None:
            alarm.start()
        try:
            recorded = [_recorded(session, feeds, how, None if k else marked, there) for k, feeds in enumerate(runs)]
        finally:
            alarm.cancel()
    except RuntimeUnsupported:
        raise
    except Exception as error:
        if time_limit is not None and how.terminate:
            raise ModelError("the run was not done within its time limit", hint=MORE_TIME) from error
        raise ModelError(f"the model does not run: {str(error).splitlines()[0] if str(error) else error!r}") from error
    if any(result is None for result in recorded):
        raise ModelError("there was no memory to write down what the model asks for")
    if nodes is not None and marked is not None and recorded[0] is not None:
        nodes += marked.nodes(recorded[0].marks)
    return [Trace.recorded(result) for result in recorded if result is not None]


def _recorded(
    session: Any, feeds: Mapping[str, Any], how: Any, marked: Profile | None, device: native.Device | None
) -> native.Recorded | None:
    native.begin_record(limited=False, device=device)
    if marked is not None:
        native.mark_as(marked.new_token())
    outputs = None
    try:
        # Kept until the recording ends: an output is what outlives the run.
        outputs = session.run(None, feeds, how)
    finally:
        result = native.end_run(outputs is not None)
        del outputs
    if marked is not None:
        session.end_profiling()
    return result if isinstance(result, native.Recorded) and result.complete else None
