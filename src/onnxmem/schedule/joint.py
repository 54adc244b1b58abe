"""Order and placement in one program, as MODeL states it, for a solver anyone can install (extra `solvers`).

The searches treat the two one after the other: first the order whose live bytes peak lowest, then offsets for it. This
program decides both at once, so on graphs small enough for it, it proves what the best possible arena is: the strategy
`model`. It is the reference rather than the tool: a few dozen nodes are its limit.

    place in the order   an integer per node, all different, each after those it needs
    lifetime             from the writer's place to the place after the last reader
    offset               an integer per buffer; no two overlap in time and offset
    in place             the first allowed pair wins, exactly as `onnxmem.schedule.workload` defines it
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxmem.deadline import Deadline
from onnxmem.errors import PlanError, UsageError, missing_extra
from onnxmem.model.dims import Dim
from onnxmem.model.model import Model
from onnxmem.placement.plan import Plan
from onnxmem.placement.strategies import JOINT, solve
from onnxmem.placement.validate import validate_plan
from onnxmem.schedule.scheduled import Question, Scheduled, numbered_graph, problem_of
from onnxmem.schedule.search import OrderResult, best_order
from onnxmem.schedule.storages import memory_of
from onnxmem.schedule.timeline import lay_out
from onnxmem.schedule.workload import Workload, check_order, dependencies, lifetimes, peak, to_problem

MOST_NODES = 100
# CP-SAT adds up in 64 bits; this leaves it room for its own sums.
_LARGEST_TOTAL = 2**50


@dataclass(frozen=True)
class JointResult:
    """An order with its plan, and what is proven: no order and plan together need less than `proven_bound`.

    `plan` is None if only the order was asked for; `peak` is then that of the live bytes.
    """

    order: list[int]
    plan: Plan | None
    peak: int
    proven_bound: int
    seconds: float
    interrupted: bool = False

    @property
    def optimal(self) -> bool:
        """Is it proven that nothing is smaller?"""
        return self.peak == self.proven_bound


def plan_jointly(
    model: Model, question: Question, deadline: Deadline, capacity: int | None = None
) -> tuple[Scheduled, Plan]:
    """A small model laid out in the order that needs the smallest arena, and the plan of that arena."""
    graph, given, assumed = numbered_graph(model, question, deadline)
    if question.order not in ("ort-default", "best"):
        raise UsageError(f"strategy '{JOINT}' chooses the order itself, so it cannot be '{question.order}'")
    hint = "the strategy 'best' with the order 'best' searches for one after the other"
    if len(graph.nodes) > MOST_NODES:
        raise PlanError(
            f"strategy '{JOINT}' decides order and placement at once, which is out of reach for {len(graph.nodes)} "
            f"nodes: {MOST_NODES} are its limit",
            hint=hint,
        )
    if any(node.subgraphs for node in graph.nodes):
        raise PlanError(f"strategy '{JOINT}' cannot look into the subgraphs of If, Loop and Scan", hint=hint)
    workload = memory_of(graph, question.rules, number=_number).workload
    found = order_and_place(workload, alignment=question.alignment, time_limit=deadline.left, seed=question.seed)
    assert found.plan is not None
    order = OrderResult(found.order, peak(workload, found.order), found.optimal, found.proven_bound, found.seconds)
    timeline = lay_out(graph, JOINT, question.rules, found=order)
    problem = problem_of(timeline, question.alignment)
    plan = Plan(
        problem if capacity is None else problem.with_capacity(capacity),
        found.plan.offsets,
        JOINT,
        seconds=found.seconds,
        proven_bound=found.proven_bound,
        interrupted=found.interrupted,
    )
    validate_plan(plan)
    scheduled = Scheduled(model=model, graph=graph, timeline=timeline, problem=problem, given=given, assumed=assumed)
    return scheduled, plan


def _number(size: Dim) -> int:
    assert isinstance(size, int)  # every free dimension has a number
    return size


def order_and_place(
    workload: Workload,
    *,
    alignment: int = 1,
    place: bool = True,
    time_limit: float = 60.0,
    seed: int = 0,
    workers: int = 0,
) -> JointResult:
    """The smallest arena over all orders and placements, or with `place=False` the smallest peak over all orders."""
    try:
        from ortools.sat.python import cp_model  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("ortools", "solvers") from error
    started = time.perf_counter()
    program = _Program(cp_model, workload, alignment, place)
    order, plan, interrupted = program.suggest(seed, time_limit)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 0 if interrupted else time_limit
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.num_workers = workers
    # Its handler would replace Python's for the rest of the process, and the next Ctrl-C would kill it.
    solver.parameters.catch_sigint_signal = False
    # OR-Tools 9.15 fails with an IndexError on models that have both symmetries and a hint.
    solver.parameters.symmetry_level = 0
    status = _solve(solver, program.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = sorted(range(len(workload)), key=lambda node: solver.value(program.places[node]))
        check_order(workload, order)
        plan = _plan(program, solver, workload, order, alignment) if place else None
    elif status != cp_model.UNKNOWN:  # unknown: the searches' answer is still one
        raise PlanError(f"the solver found no order and placement: {solver.status_name(status)}")
    most = plan.peak if plan else peak(workload, order)
    bound = max(math.ceil(solver.best_objective_bound), 0) * program.unit
    return JointResult(order, plan, most, min(bound, most), time.perf_counter() - started, interrupted)


def _solve(solver: Any, model: Any) -> Any:
    """Run the solver beside the main thread, where Ctrl-C arrives; it then ends with the best so far."""
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solver.solve, model)
        try:
            while not solving.done():
                wait([solving], timeout=0.1)
        except KeyboardInterrupt:
            solver.stop_search()
        return solving.result()


def _plan(program: _Program, solver: Any, workload: Workload, order: list[int], alignment: int) -> Plan:
    """The solver's offsets, in the rows of the order's placement problem."""
    problem = to_problem(workload, order, alignment)
    firsts = [row.storages[0] for row in lifetimes(workload, order)]
    scratch = [~node for node in order if workload.scratch[node]]
    offsets = [solver.value(program.offsets[k]) * program.unit for k in (*firsts, *scratch)]
    return Plan(problem, np.array(offsets, dtype=np.int64), "model")


class _Program:
    """Variables and constraints. Storages go by their index, a node's scratch by ~node."""

    def __init__(self, cp_model: Any, workload: Workload, alignment: int, place: bool) -> None:
        self.workload, self.alignment, self.place = workload, alignment, place
        self.model = cp_model.CpModel()
        sizes = {index: storage.size for index, storage in enumerate(workload.storages)}
        sizes |= {~node: size for node, size in enumerate(workload.scratch) if size}
        footprints = {key: -(-size // alignment) * alignment for key, size in sizes.items()} if place else sizes
        if sum(footprints.values()) > _LARGEST_TOTAL:
            raise PlanError("all tensors together are too large for the joint program")
        # Offsets that are sums of footprints are enough, so only multiples of their common divisor matter.
        self.unit = math.gcd(*footprints.values()) or 1
        self.units = {key: footprint // self.unit for key, footprint in footprints.items()}
        self.total = sum(self.units.values())
        self.peak = self.model.new_int_var(0, self.total, "peak")
        self.earlier: dict[tuple[int, int], Any] = {}
        self._order()
        self._glue()
        self._share()
        self._live()
        self.model.minimize(self.peak)

    def _order(self) -> None:
        count = len(self.workload)
        self.before = [set(before) for before in dependencies(self.workload)]
        self.places = [self.model.new_int_var(0, count - 1, f"place {node}") for node in range(count)]
        self.model.add_all_different(self.places)
        for node, before in enumerate(self.before):
            for other in before:
                self.model.add(self.places[other] < self.places[node])
        self.above: list[set[int]] = [set() for _ in range(count)]
        done: set[int] = set()
        while len(done) < count:
            ready = [node for node in range(count) if node not in done and self.before[node] <= done]
            if not ready:
                raise PlanError("some nodes wait for each other in a circle")
            for node in ready:
                self.above[node] = set().union(*(self.above[p] | {p} for p in self.before[node]))
            done.update(ready)

    def _is_earlier(self, first: int, second: int) -> Any:
        """A literal: does `first` run before `second`? Known if one needs the other."""
        if first in self.above[second] or second in self.above[first]:
            return self.model.new_constant(int(first in self.above[second]))
        low, high = min(first, second), max(first, second)
        if (low, high) not in self.earlier:
            literal = self.model.new_bool_var(f"{low} before {high}")
            self.model.add(self.places[low] < self.places[high]).only_enforce_if(literal)
            self.model.add(self.places[low] > self.places[high]).only_enforce_if(~literal)
            self.earlier[low, high] = literal
        literal = self.earlier[low, high]
        return literal if first == low else ~literal

    def _glue(self) -> None:
        """Whatever is not glued runs before a glued node only if it ran no later than the last one that node needs."""
        for node, other in enumerate(self.workload.glued):
            if other < 0:
                continue
            last = self.model.new_int_var(-1, len(self.workload), f"ready {node}")
            self.model.add_max_equality(last, [self.places[p] for p in self.before[node]] or [-1])
            for free in range(len(self.workload)):
                if self.workload.glued[free] < 0 and free != node and free not in self.above[node]:
                    self.model.add(self.places[free] <= last).only_enforce_if(self._is_earlier(free, node))

    def _share(self) -> None:
        """`taken[source]`: the literals of its pairs. At most one of them is true, that of its last reader."""
        self.taken: dict[int, list[tuple[int, Any]]] = {}
        for node, pairs in enumerate(self.workload.inplace):
            chosen: list[tuple[int, int, Any]] = []
            for source, target in dict.fromkeys(pairs):
                old, new = self.workload.storages[source], self.workload.storages[target]
                if old.stays or old.producer < 0 or old.size != new.size or not old.size:
                    continue
                others = [self._is_earlier(reader, node) for reader in old.consumers if reader != node]
                others += [~literal for a, b, literal in chosen if a == source or b == target]
                takes = self.model.new_bool_var(f"{target} takes over {source}")
                self.model.add_bool_and(others).only_enforce_if(takes)
                self.model.add_bool_or([*(~literal for literal in others), takes])
                chosen.append((source, target, takes))
                self.taken.setdefault(source, []).append((target, takes))

    def _live(self) -> None:
        intervals, spans, demands = [], [], []
        self.offsets: dict[int, Any] = {}
        for key, units in self.units.items():
            if not units:
                self.offsets[key] = self.model.new_constant(0)
                continue
            life = self._lifetime(key)
            intervals.append(life)
            demands.append(units)
            if self.place:
                offset = self.model.new_int_var(0, self.total - units, f"offset {key}")
                self.offsets[key] = offset
                self.model.add(offset + units <= self.peak)
                spans.append(self.model.new_fixed_size_interval_var(offset, units, f"span {key}"))
        if spans:
            self.model.add_no_overlap_2d(intervals, spans)
            for source, pairs in self.taken.items():
                for target, takes in pairs:
                    self.model.add(self.offsets[source] == self.offsets[target]).only_enforce_if(takes)
        # Follows from the placement, but the solver reasons better with it.
        if intervals:
            self.model.add_cumulative(intervals, demands, self.peak)

    def _lifetime(self, key: int) -> Any:
        count = len(self.workload)
        if key < 0:
            return self.model.new_fixed_size_interval_var(self.places[~key], 1, f"life {key}")
        storage = self.workload.storages[key]
        start = self.places[storage.producer] if storage.producer >= 0 else 0
        end: Any = max(count, 1)
        if not storage.stays:
            last = self.model.new_int_var(0, count, f"last {key}")
            self.model.add_max_equality(last, [self.places[c] for c in storage.consumers or (storage.producer,)])
            end = self.model.new_int_var(0, count, f"end {key}")
            self.model.add(end == last + 1 - sum(takes for _, takes in self.taken.get(key, [])))
        length = self.model.new_int_var(1, max(count, 1), f"length {key}")
        return self.model.new_interval_var(start, length, end, f"life {key}")

    def suggest(self, seed: int, time_limit: float) -> tuple[list[int], Plan | None, bool]:
        """Start the solver from what the searches found, but not from what they proved: that is for it to confirm."""
        patience = min(time_limit / 10, 5)
        found = best_order(self.workload, seed=seed, time_limit=patience)
        problem = to_problem(self.workload, found.order, self.alignment)
        plan = solve(problem, time_limit=max(patience, 0.1)) if self.place else None
        for step, node in enumerate(found.order):
            self.model.add_hint(self.places[node], step)
        most = (plan.peak if plan else found.peak) // self.unit
        self.model.add_hint(self.peak, most)
        # That much is always enough; a larger arena need not be looked at.
        self.model.add(self.peak <= most)
        return found.order, plan, found.interrupted or (plan is not None and plan.interrupted)
