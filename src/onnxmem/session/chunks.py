"""How does a batch stay within a budget? It is run a few rows at a time, and outputs are written into their rows.

Only a batch whose rows were proven not to mix is split (`rewriting/batch.py`), and only into parts that give the same
bits. What a part takes is not guessed: the first two sizes are recorded, all others follow from them, because every
buffer grows evenly with the rows; and whoever follows such a plan checks every call.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxmem.errors import BudgetExceeded
from onnxmem.rewriting.batch import ROWS, Batch, Look, Looked
from onnxmem.session.forked import renew_in_children
from onnxmem.session.memory import BatchMemory
from onnxmem.session.planned.growth import Learned
from onnxmem.session.planned.planner import Planner
from onnxmem.session.planned.trace import Trace
from onnxmem.session.rows import Array, Outputs, Part, along, array_type
from onnxmem.units import format_bytes, format_count
from onnxmem.unknown import Unknown

if TYPE_CHECKING:
    from onnxmem.session.planned.run_key import RunKey


class Session(Protocol):
    """What a session can do, none of it split."""

    def get_inputs(self) -> Any: ...
    def get_outputs(self) -> Any: ...
    def own_binding(self) -> Any: ...
    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None: ...
    def run_whole(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any: ...


def batch_of(model: str | bytes | os.PathLike[str], *, packed: bool) -> Batch | Unknown:
    """The batch of a model's file or bytes, if its rows do not mix; Unknown, with the reason, otherwise."""
    if isinstance(model, bytes) or "onnx" in sys.modules:
        from onnxmem.rewriting.proof import look_at  # noqa: PLC0415  it needs what parses models, which is there already

        return look_at(model, packed=packed)
    from pathlib import Path  # noqa: PLC0415

    from onnxmem.process.child import run_child  # noqa: PLC0415

    # In a process of its own: what parses models would stay in this one's memory.
    try:
        ended = run_child("onnxmem.rewriting.proof", Look(Path(model).absolute(), packed))
    except OSError as error:
        return Unknown(f"no process can be started to look at the model: {error.strerror}")
    if ended.code:
        return Unknown(ended.last_line)
    found = ended.read(Looked)
    return Batch.from_document(json.loads(found.batch)) if found.batch else Unknown(found.reason)


class Chunks:
    """The budget of a session, and how it keeps to it."""

    def __init__(
        self,
        budget: int,
        batch: Batch | Unknown,
        planner: Planner,
        threads: int,
        *,
        strict: bool = True,
        exact: bool = True,
    ) -> None:
        """Without `strict`, what cannot be run within the budget is run all the same; without `exact`, parts need not
        give the same bits.
        """
        self.budget = budget
        self.strict, self.exact = strict, exact
        self.batch = batch
        self._planner, self._threads = planner, threads
        self._learned: dict[Any, Learned] = {}
        self._memory: dict[Any, BatchMemory] = {}
        self.begin_anew()
        renew_in_children(self)

    def begin_anew(self) -> None:
        """Another thread may have been running a batch when this process was forked."""
        self._lock = threading.RLock()  # reentrant, as a handler of signals may come a second time

    @property
    def memory(self) -> tuple[BatchMemory, ...]:
        """The batches that were split, and how."""
        with self._lock:
            return tuple(self._memory.values())

    def run(self, session: Session, output_names: Any, feeds: Any, run_options: Any) -> Any:
        """Run within the budget: at once if that is possible, in parts if not."""
        every = [each.name for each in session.get_outputs()]
        names = list(output_names) if output_names else every
        # A single name is no list of its characters: ONNX Runtime says what is wrong with it.
        if (output_names and isinstance(output_names, str | bytes | Mapping)) or not all(n in every for n in names):
            return session.run_whole(output_names, feeds, run_options)
        dims = self._dims(session, feeds)
        if isinstance(dims, Unknown) or not isinstance(self.batch, Batch):
            reason = dims.reason if isinstance(dims, Unknown) else "it has none"
            return self._whole(session, output_names, feeds, run_options, reason)
        if dims[ROWS] < 2:
            return self._whole(session, output_names, feeds, run_options, "it is a single row")
        others = tuple(sorted((name, number) for name, number in dims.items() if name != ROWS))
        with self._lock:
            learned = self._learned.setdefault((tuple(names), others), Learned())
        if next(self._exact(learned, dims), None) is None:
            return self._whole(session, output_names, feeds, run_options, self.batch.differs(dims, 1, self._threads))
        needed = self._needed(self._planner.plain_run(output_names, feeds))
        if needed is not None and needed <= self.budget:
            return self._whole(session, output_names, feeds, run_options, "")
        return self._split(session, feeds, run_options, dims, learned, Outputs(session, self.batch, names, dims))

    def _dims(self, session: Session, feeds: Any) -> dict[str, int] | Unknown:
        """The numbers of the free dimensions, if these feeds are a batch that can be split."""
        if isinstance(self.batch, Unknown):
            return self.batch
        if not isinstance(feeds, Mapping) or feeds.keys() != self.batch.shapes.keys():
            return Unknown("other inputs are given than the model asks for")
        for each in session.get_inputs():
            value, dtype = feeds[each.name], array_type(each.type)
            if dtype is None or not isinstance(value, np.ndarray) or value.dtype != dtype:
                return Unknown(f"input '{each.name}' is no array of numbers of the right type")
        dims = self.batch.dims({name: value.shape for name, value in feeds.items()})
        return Unknown("the inputs have different numbers of rows") if dims is None else dims

    def _exact(self, learned: Learned, dims: Mapping[str, int]) -> Iterator[int]:
        """The numbers of rows at once that give the same bits, ascending."""
        return (rows for rows in range(1, dims[ROWS]) if self._is_exact(learned, dims, rows))

    def _is_exact(self, learned: Learned, dims: Mapping[str, int], rows: int) -> bool:
        assert isinstance(self.batch, Batch)
        key = (rows, dims[ROWS])
        if key not in learned.exact:
            same = not self.exact or rows == dims[ROWS]
            learned.exact[key] = same or not self.batch.differs(dims, rows, self._threads)
        return learned.exact[key]

    # All at once.

    def _whole(self, session: Session, output_names: Any, feeds: Any, run_options: Any, why: str) -> Any:
        key = self._planner.plain_run(output_names, feeds)
        self._check(key, why)
        outputs = session.run_whole(output_names, feeds, run_options)
        self._check(key, why)
        return outputs

    def _check(self, key: RunKey, why: str) -> None:
        """Raise BudgetExceeded if this run is known to take more than the budget."""
        needed = self._needed(key)
        if needed is not None and needed > self.budget:
            raise BudgetExceeded(
                f"a run takes {format_bytes(needed)}, the budget is {format_bytes(self.budget)}, and the batch cannot "
                f"be split: {why}",
                hint=f"the least that is possible is {format_bytes(needed)}",
            )

    def _needed(self, key: RunKey) -> int | None:
        """What a run takes, its outputs included; None if it has no plan."""
        shape = self._planner.book.find(key)
        if shape is None or shape.tape is None:
            return None
        return shape.placement.peak + Trace.recorded(shape.tape.trace).output_bytes

    # In parts.

    def _split(
        self,
        session: Session,
        feeds: Mapping[str, Array],
        run_options: Any,
        dims: Mapping[str, int],
        learned: Learned,
        outputs: Outputs,
    ) -> list[Any]:
        done, parts, largest = 0, 0, 0
        while done < dims[ROWS]:
            part = self._next(learned, dims, done, self._beside(outputs))
            self._run_part(session, feeds, run_options, part, learned, outputs)
            done, parts, largest = part.start + part.rows, parts + 1, max(largest, part.rows)
            if learned.peaks:
                self._refuse(learned, dims, self._beside(outputs))
        if parts == 1:
            return outputs.finished()
        peak = max((peak for rows, peak in learned.peaks.items() if rows <= largest), default=0)
        inputs = {name: array.shape for name, array in feeds.items()}
        with self._lock:
            before = self._memory.get(key := (tuple(outputs.names), tuple(sorted(inputs.items()))))
            self._memory[key] = BatchMemory(
                inputs=inputs,
                rows=dims[ROWS],
                rows_at_once=largest,
                parts=parts,
                needed=peak + self._beside(outputs),
                runs=1 + (before.runs if before else 0),
            )
        return outputs.finished()

    def _beside(self, outputs: Outputs) -> int:
        """What lies beside the arena in the memory that the budget is of: those of a device are on the host."""
        return outputs.bytes if self._planner.device is None else 0

    def _refuse(self, learned: Learned, dims: Mapping[str, int], output_bytes: int) -> None:
        """Raise BudgetExceeded if even the smallest part takes too much."""
        least, peak = min(learned.peaks.items())
        needed = peak + output_bytes
        if needed > self.budget and self.strict:
            at_once = format_count(least, "row")
            raise BudgetExceeded(
                f"a batch of {dims[ROWS]} takes {format_bytes(needed)} even {at_once} at a time, and the budget is "
                f"{format_bytes(self.budget)}",
                hint=f"the least that is possible is {format_bytes(needed)}; a smaller batch has smaller outputs",
            )

    def _next(self, learned: Learned, dims: Mapping[str, int], done: int, output_bytes: int) -> Part:
        left, room = dims[ROWS] - done, self.budget - output_bytes
        most = self._most(learned, dims, left, room)
        # Parts as equal as can be: the last one shall not be a small one that takes as long as a large one.
        rows = -(-left // -(-left // most))
        while rows and not self._is_exact(learned, dims, rows):
            rows -= 1
        if rows:
            return Part(done, rows)
        # So few are not computed in the same way: some are computed again.
        rows = next(self._exact(learned, dims))
        return Part(dims[ROWS] - rows, rows)

    def _most(self, learned: Learned, dims: Mapping[str, int], rows: int, room: int) -> int:
        """How many rows at once are within the room there is; what is not known is tried small."""
        exact = self._exact(learned, dims)
        least = next(exact)
        if not learned.peaks:
            return least
        if len(learned.traces) < 2:
            second = next(exact, None)
            return second if second and second <= rows and learned.at_most(second) <= room else least
        return learned.most(least, max(rows, least), room)

    def _run_part(
        self,
        session: Session,
        feeds: Mapping[str, Array],
        run_options: Any,
        part: Part,
        learned: Learned,
        outputs: Outputs,
    ) -> None:
        assert isinstance(self.batch, Batch)
        binding = session.own_binding()
        for name, array in feeds.items():
            axis = self.batch.inputs.get(name)
            rows = array if axis is None else array[along(axis, part)]
            binding.bind_cpu_input(name, np.ascontiguousarray(rows))
        outputs.bind(binding, part)
        key, book = self._planner.bound_run(binding), self._planner.book
        is_new = book.find(key) is None
        if is_new and (expected := learned.trace(part.rows)) is not None:
            book.expect(key, expected)
        # One that is recorded may find too little room in the arena that other sizes have left, and lie beside it; and
        # what it takes there shall not lie beside the arena of its plan.
        if is_new:
            self._planner.arena.trim()
        session.run_with_iobinding(binding, run_options)
        if is_new:
            self._planner.arena.trim()
        outputs.take(binding, part)
        shape = book.find(key)
        if shape is None or shape.tape is None:
            learned.uneven = True
            return
        trace = None if shape.predicted else Trace.recorded(shape.tape.trace)
        learned.took(part.rows, shape.placement.peak, trace)
