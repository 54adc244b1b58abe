"""How does a run stay inside its plan? The first one is recorded, its placement solved, and later ones happen there.

A `Planner` belongs to one session, which asks it to run; the session's memory comes from the arena that it holds.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnxruntime

from onnxmem._native import arena as native
from onnxmem.errors import UsageError
from onnxmem.session.memory import SessionMemory, ShapeMemory
from onnxmem.session.modes import CPU, CPU_PROVIDERS, find_mode
from onnxmem.session.options import applied, entries
from onnxmem.session.planned import bridge
from onnxmem.session.planned.arena import Arena, own_arena
from onnxmem.session.planned.improve import improve
from onnxmem.session.planned.placing import warm_up
from onnxmem.session.planned.plan_book import Deviation, PlanBook, RunKey, ShapePlan
from onnxmem.session.planned.trace import Trace

_ENVIRONMENT = "session.use_env_allocators"
_GUARD = 64
_SHRINK = "memory.enable_memory_arena_shrinkage"


class Planner:
    """The plans of one session, and the arena they are in.

    At most `max_plans` shapes are remembered; `plans` are some that `documents` wrote. Better placements are sought in
    the background for `plan_seconds`. `debug` overwrites freed memory and watches the ends of buffers.
    """

    def __init__(
        self,
        *,
        arena: Arena | None = None,
        plans: Iterable[Mapping[str, Any]] = (),
        max_plans: int = 16,
        plan_seconds: float = 5.0,
        trim_after: float | None = None,
        huge_pages: bool = False,
        debug: bool = False,
    ) -> None:
        if not isinstance(max_plans, int) or max_plans < 1:
            raise UsageError(f"a session remembers at least one plan, not {max_plans}")
        if not isinstance(plan_seconds, int | float) or not plan_seconds >= 0:
            raise UsageError(f"plan_seconds is a number of seconds, not {plan_seconds!r}")
        if arena is not None and not isinstance(arena, Arena):
            raise UsageError(f"arena is an onnxmem.Arena, not {arena!r}")
        if arena is not None and (trim_after is not None or huge_pages):
            raise UsageError("a shared arena has its own trim_after and huge_pages", hint="give them to the Arena")
        self.arena = arena or own_arena(trim_after, huge_pages)
        self.book = PlanBook(max_plans, _GUARD if debug else 0)
        self._plan_seconds = plan_seconds
        _BOOKS.add(self.book)
        self.book.load(plans)
        warm_up()

    # What runs. `run` is onnxruntime's own, bound to the session: nothing else lies between the caller and it.

    def run(self, run: Callable[..., Any], output_names: Any, feeds: Any, run_options: Any) -> Any:
        """Run with feeds, which may be arrays or OrtValues."""
        placed = self._shrunk if run_options is not None and _shrinks(run_options) else self._placed
        return placed(_key(output_names, feeds), run, output_names, feeds, run_options)

    def run_bound(self, run: Callable[..., Any], binding: Any, run_options: Any) -> None:
        """Run what is bound."""
        placed = self._shrunk if run_options is not None and _shrinks(run_options) else self._placed
        placed(_binding_key(binding), run, binding, run_options)

    def binding(self, session: Any) -> Binding:
        """A binding of which it knows the shapes."""
        return Binding(session)

    # What it takes.

    @property
    def memory(self) -> SessionMemory:
        """What it takes to run, and how its runs were served."""
        pool, counts = self.arena.pool.stats(), self.book.counts
        shapes = list(self.book.shapes.values())
        largest = max((s.placement for s in shapes if s.tape), key=lambda placement: placement.peak, default=None)
        return SessionMemory(
            reason="",
            arena_bytes=pool["bytes"],
            plan_bytes=largest.peak if largest else 0,
            bound_bytes=largest.bound if largest else 0,
            regions=pool["regions"],
            runs_recorded=counts.recorded,
            runs_replayed=counts.replayed,
            runs_deviated=counts.deviated,
            runs_from_heap=counts.heap,
            waits=pool["waits"],
            overruns=counts.overruns,
            shapes=tuple(_shape_memory(shape) for shape in shapes),
        )

    def traces(self) -> list[Trace]:
        """What the model asked for, one trace per shape that is planned."""
        return [trace for shape in self.book.shapes.values() if (trace := shape.trace) is not None]

    # How.

    def _shrunk(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run, and give the arena back: what the option asks of ONNX Runtime's own arena, which is not there."""
        run_options = arguments[-1]
        asked = run_options.get_run_config_entry(_SHRINK)
        run_options.add_run_config_entry(_SHRINK, "")
        try:
            return self._placed(key, run, *arguments)
        finally:
            run_options.add_run_config_entry(_SHRINK, asked)
            self.arena.trim()

    def _placed(self, key: RunKey, run: Callable[..., Any], *arguments: Any) -> Any:
        """Run inside the shape's plan, or record it if it has none."""
        shape = self.book.find(key)
        tape = shape.tape if shape is not None else None  # once: another thread may take it away
        if shape is not None and tape is None:
            self.book.from_heap()
            return run(*arguments)
        inside = False
        if tape is None:
            inside = native.begin_record_inside(self.arena.pool, self.book.peak, self.book.outlasting)
        elif not native.begin_replay(tape, self.arena.pool):
            shape = None
            self.book.from_heap()
            key = _NO_KEY
        completed = False
        try:
            result = run(*arguments)
            completed = True
        finally:
            said: Any = native.finish()
            on_heap = tape is None and not inside
            if on_heap:
                native.trim_heap()  # what the run left there is not to lie beside what the search takes
            self._ended(key, shape, said, completed)
            if on_heap:
                native.trim_heap()
        return result

    def _ended(self, key: RunKey, shape: ShapePlan | None, said: Any, completed: bool) -> None:
        """Learn from a run: its trace if it was recorded, its deviation if it was replayed."""
        if shape is not None:
            self.arena.used()
            if said is not None and said[4]:
                self.book.overran(said[4])
            deviation = Deviation(*said[:4]) if said is not None and said[0] else None
            # A run that failed says nothing about the plan.
            if completed:
                self.book.ran(shape, deviation)
        elif completed and key is not _NO_KEY:
            if said is None:
                self.book.unfollowable(key)
            else:
                made = self.book.recorded(key, Trace(*said))
                self.arena.needed(self.book, self.book.peak)
                improve(self.book, made, self.arena, self._plan_seconds)


class Binding(onnxruntime.IOBinding):  # type: ignore[misc]
    """Remembers the shapes of what is bound; onnxruntime's own does not tell them."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        super().bind_cpu_input(name, arr_on_cpu)
        self.shapes[name] = _shape_of(arr_on_cpu)

    def bind_input(
        self, name: str, device_type: Any, device_id: Any, element_type: Any, shape: Any, buffer_ptr: Any
    ) -> None:
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        self.shapes[name] = tuple(shape)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_input(name, ortvalue)
        self.shapes[name] = _shape_of(ortvalue)

    def clear_binding_inputs(self) -> None:
        super().clear_binding_inputs()
        self.shapes.clear()


_NO_KEY = RunKey((), ("",))
_BOOKS: weakref.WeakSet[PlanBook] = weakref.WeakSet()


def _forked() -> None:
    # Another thread may have held one of these at the moment of the fork; in the child it does not exist.
    for book in _BOOKS:
        book.lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def made_for_plans(options: Any) -> Iterator[None]:
    """Sessions made with these options in this block take their memory from us; RuntimeUnsupported, if they cannot."""
    with bridge.enlisted(), applied(options, find_mode("planned").options, {}):
        # An entry cannot be removed, and overwriting it is logged as a warning. It may stay: a stock session made with
        # it finds no allocator in the environment and takes its own.
        if entries(options, [_ENVIRONMENT]).get(_ENVIRONMENT) != "1":
            options.add_session_config_entry(_ENVIRONMENT, "1")
        yield


def why_unplannable(options: Any, providers: Any) -> str:
    """Why a session with these options and providers cannot be planned, in one sentence; empty if it can be."""
    if options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL:
        return "nodes run in parallel, so that no two runs ask in the same order"
    there = onnxruntime.get_available_providers()  # others are ignored by ONNX Runtime, too, and it says so itself
    for provider in providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name in there and name not in CPU_PROVIDERS:
            return f"plans are for {CPU}, and {name} was asked for"
    if getattr(options, "has_providers", bool)():
        return f"plans are for {CPU}, and the session options choose other providers"
    return bridge.unsupported()


def _shrinks(run_options: Any) -> bool:
    try:
        return bool(run_options.get_run_config_entry(_SHRINK))
    except RuntimeError:
        return False  # nothing was said


def _key(output_names: Any, feeds: Mapping[str, Any]) -> RunKey:
    shapes = [(name, _shape_of(value)) for name, value in feeds.items()]
    if len(shapes) > 1:
        shapes.sort()
    return RunKey(tuple(shapes), tuple(output_names) if output_names else ())


def _binding_key(binding: Any) -> RunKey:
    shapes = tuple(sorted(getattr(binding, "shapes", {}).items()))
    # An output that is already there, bound by the caller or left from the last run, is written to and not allocated.
    there = tuple("there" if value.has_value() else "" for value in binding.get_outputs_as_ortvaluevector())
    return RunKey(shapes, (), ("binding", *there))


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a feed. A wrong guess does no harm: runs are checked call by call."""
    shape = getattr(value, "shape", None)
    if type(shape) is tuple:
        return shape
    if callable(shape):  # an OrtValue, which may also be a sequence
        return tuple(shape()) if value.is_tensor() else (-1,)
    return (len(value),) if isinstance(value, list | tuple | dict) else ()


def _shape_memory(shape: ShapePlan) -> ShapeMemory:
    return ShapeMemory(
        inputs=dict(shape.key.inputs),
        arena_bytes=shape.placement.peak if shape.tape else 0,
        bound_bytes=shape.placement.bound,
        optimal=shape.placement.optimal,
        replayed=shape.replayed,
        deviated=shape.deviated,
        reason=shape.reason,
        last_deviation=shape.last,
    )
