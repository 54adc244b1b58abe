"""A session that runs inside a plan: onnxruntime's own, with every tensor at the place that was solved for it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import onnxruntime

from onnxmem._native import arena as native
from onnxmem.errors import UsageError
from onnxmem.runtime import bridge
from onnxmem.runtime.arena import Arena, own_arena
from onnxmem.runtime.improve import improve
from onnxmem.runtime.placing import warm_up
from onnxmem.runtime.plans import Deviation, PlanBook, RunKey, ShapePlan
from onnxmem.runtime.trace import Trace

Result = TypeVar("Result")

_ENVIRONMENT = "session.use_env_allocators"
_GUARD = 64


@dataclass(frozen=True)
class ShapeMemory:
    """One combination of input shapes: what its plan takes, and how it went."""

    inputs: dict[str, tuple[int, ...]]
    arena_bytes: int
    bound_bytes: int
    optimal: bool
    replayed: int
    deviated: int
    reason: str
    """Why it is not, or only partly, planned; empty if it is."""
    last_deviation: Deviation | None


@dataclass(frozen=True)
class SessionMemory:
    """What a planned session takes to run, and how its runs were served."""

    arena_bytes: int
    """The memory of its arena: all regions, for all sessions that share it."""
    plan_bytes: int
    """What the largest of its plans takes."""
    bound_bytes: int
    """The proven least for the largest of its plans."""
    regions: int
    runs_recorded: int
    runs_replayed: int
    runs_deviated: int
    runs_from_heap: int
    waits: int
    """How often a run had to wait for a region."""
    overruns: int
    """Writes behind the end of a buffer; only a session with debug=True looks."""
    shapes: tuple[ShapeMemory, ...]
    reason: str
    """Why nothing is planned at all; empty if it is."""


class PlannedSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """`onnxruntime.InferenceSession` with less memory: the same arguments, the same outputs.

    The first run of each combination of input shapes records what the model asks for; its placement is solved, and
    later runs happen at those places in one arena. `arena` shares memory with other sessions. At most `max_plans`
    shapes are remembered; `plans` are some that `export_plans` wrote. Better placements are sought in the background
    for `plan_seconds`. `debug` overwrites freed memory and watches the ends of buffers.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        arena: Arena | None = None,
        plans: Iterable[Mapping[str, Any]] = (),
        max_plans: int = 16,
        plan_seconds: float = 5.0,
        trim_after: float | None = None,
        huge_pages: bool = False,
        debug: bool = False,
        **kwargs: Any,
    ) -> None:
        if max_plans < 1:
            raise UsageError(f"a session remembers at least one plan, not {max_plans}")
        if arena is not None and (trim_after is not None or huge_pages):
            raise UsageError("a shared arena has its own trim_after and huge_pages", hint="give them to the Arena")
        self._arena = arena or own_arena(trim_after, huge_pages)
        self._book = PlanBook(max_plans, _GUARD if debug else 0)
        self._plan_seconds = plan_seconds
        _BOOKS.add(self._book)
        self._book.load(plans)
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        with bridge.enlisted(), _made_for_plans(options):
            super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        self._unplannable = _why_unplannable(options)
        warm_up()

    # What runs.

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Compute outputs, as onnxruntime's `run` does."""
        run = super().run
        return self._placed(_key(output_names, input_feed), lambda: run(output_names, input_feed, run_options))

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """Compute outputs from OrtValues, as onnxruntime's does."""
        run = super().run_with_ort_values
        feeds = input_dict_ort_values
        return self._placed(_key(output_names, feeds), lambda: run(output_names, feeds, run_options))

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute what is bound, as onnxruntime's does."""
        run = super().run_with_iobinding
        self._placed(_binding_key(iobinding), lambda: run(iobinding, run_options))

    def io_binding(self) -> Any:
        """A binding that remembers the shapes bound to it, so that each of them is planned for itself."""
        return _Binding(self)

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew with other providers; its plans start anew, too."""
        with bridge.enlisted(), _made_for_plans(self._sess_options_initial):
            super().set_providers(providers, provider_options)
        self._book.shapes.clear()

    # What it takes.

    @property
    def arena(self) -> Arena:
        """The memory it runs in."""
        return self._arena

    @property
    def memory(self) -> SessionMemory:
        """What it takes to run, and how its runs were served."""
        pool, counts = self._arena.pool.stats(), self._book.counts
        shapes = list(self._book.shapes.values())
        largest = max((s.placement for s in shapes if s.tape), key=lambda placement: placement.peak, default=None)
        return SessionMemory(
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
            reason=self._unplannable,
        )

    def trim(self) -> None:
        """Give the arena's pages back to the system; the next run takes them again."""
        self._arena.trim()

    def traces(self) -> list[Trace]:
        """What the model asked for, one trace per shape that is planned."""
        return [trace for shape in self._book.shapes.values() if (trace := shape.trace) is not None]

    def export_plans(self) -> list[dict[str, Any]]:
        """The plans as plain data, for `plans` of another session of the same model."""
        return self._book.documents()

    # How.

    def _placed(self, key: RunKey, run: Callable[[], Result]) -> Result:
        """Run inside the shape's plan, or record it if it has none."""
        shape = self._book.find(key)
        tape = shape.tape if shape is not None else None  # once: another thread may take it away
        if self._unplannable or (shape is not None and tape is None):
            self._book.from_heap()
            return run()
        inside = False
        if tape is None:
            inside = native.begin_record_inside(self._arena.pool, self._book.peak, self._book.outlasting)
        elif not native.begin_replay(tape, self._arena.pool):
            shape = None
            self._book.from_heap()
            key = _NO_KEY
        completed = False
        try:
            result = run()
            completed = True
        finally:
            said: Any = native.finish()
            self._ended(key, shape, said, completed)
            if tape is None and not inside:
                native.trim_heap()  # the run was there
        return result

    def _ended(self, key: RunKey, shape: ShapePlan | None, said: Any, completed: bool) -> None:
        """Learn from a run: its trace if it was recorded, its deviation if it was replayed."""
        if shape is not None:
            self._arena.used()
            if said is not None and said[4]:
                self._book.overran(said[4])
            deviation = Deviation(*said[:4]) if said is not None and said[0] else None
            # A run that failed says nothing about the plan.
            if completed:
                self._book.ran(shape, deviation)
        elif completed and key is not _NO_KEY:
            if said is None:
                self._book.unfollowable(key)
            else:
                made = self._book.recorded(key, Trace(*said))
                self._arena.needed(self._book, self._book.peak)
                improve(self._book, made, self._arena, self._plan_seconds)


class _Binding(onnxruntime.IOBinding):  # type: ignore[misc]
    """Remembers the shapes of what is bound; onnxruntime's own does not tell them."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.outputs: list[str] = []

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
def _made_for_plans(options: Any) -> Iterator[None]:
    """The options a planned session needs, for as long as it takes to make one: they are the caller's."""
    pattern, reuse = options.enable_mem_pattern, options.enable_mem_reuse
    # Same-size reuse stretches lifetimes, and the pattern would be one buffer that nobody can look into.
    options.enable_mem_pattern = options.enable_mem_reuse = False
    # An entry cannot be removed, and overwriting it is logged as a warning. It may stay: a stock session made with
    # it finds no allocator in the environment and takes its own.
    if _entry(options, _ENVIRONMENT) != "1":
        options.add_session_config_entry(_ENVIRONMENT, "1")
    try:
        yield
    finally:
        options.enable_mem_pattern, options.enable_mem_reuse = pattern, reuse


def _entry(options: Any, name: str) -> str:
    try:
        return str(options.get_session_config_entry(name))
    except RuntimeError:
        return ""  # nothing was said


def _why_unplannable(options: Any) -> str:
    if options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL:
        return "nodes run in parallel, so that no two runs ask in the same order"
    return ""


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
