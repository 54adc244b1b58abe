"""The placement problem as a constraint program for OR-Tools (extra `solvers`): a reference that shares no code.

It proves optimality on small problems and agrees with the built-in search there; on large or tight ones the built-in
search is far faster.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxmem.errors import PlanError, missing_extra
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.sharing import place_with_shares
from onnxmem.placement.strategies import greedy_by_size

# The solver adds up in 64 bits; this leaves it room for its own sums.
_LARGEST_PEAK = 2**50


def plan(problem: Problem, *, time_limit: float = 60.0, seed: int = 0, threads: int | None = None) -> Plan:
    """The smallest plan the solver finds in time; Ctrl-C ends it with the best so far."""
    try:
        from ortools.sat.python import cp_model  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("ortools", "solvers") from error
    start = place_with_shares(problem, greedy_by_size.plan)
    if start.optimal or (problem.capacity is not None and start.fits):
        return start
    unit = math.gcd(*problem.footprints.tolist())
    most = start.peak // unit
    if most > _LARGEST_PEAK:
        raise PlanError("these sizes are too large for the constraint solver", hint="use the strategy 'best'")

    model = cp_model.CpModel()
    peak = model.new_int_var(problem.lower_bound // unit, most, "peak")
    offsets = [model.new_int_var(0, most - size // unit, "") for size in problem.footprints.tolist()]
    for offset, hint in zip(offsets, start.offsets.tolist(), strict=True):
        model.add_hint(offset, hint // unit)
    _place(model, problem, unit, offsets, peak)
    if problem.capacity is None:
        model.minimize(peak)
    else:
        model.add(peak <= problem.capacity // unit)

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.num_workers = threads or 0
    # OR-Tools 9.15 fails with an IndexError on models that have both symmetries and a hint.
    solver.parameters.symmetry_level = 0
    status = solver.solve(model)
    bound, found = problem.lower_bound, start
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = Plan(problem, np.array([solver.value(offset) * unit for offset in offsets], dtype=np.int64))
        if problem.capacity is None:
            bound = math.ceil(solver.best_objective_bound) * unit
    elif status == cp_model.INFEASIBLE and problem.capacity is not None:
        bound = problem.capacity // unit * unit + unit
    # The solver catches Ctrl-C itself; it shows in a search that ended neither with a proof nor at the limit.
    undecided = status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    interrupted = undecided and solver.wall_time < time_limit * 0.99
    smaller = found if found.peak < start.peak else start
    return Plan(problem, smaller.offsets, proven_bound=bound, interrupted=interrupted)


def _place(model: Any, problem: Problem, unit: int, offsets: list[Any], peak: Any) -> None:
    """Each buffer at its offset below the peak, and clear of the others."""
    over = _pairs(model, problem, offsets)
    lifetimes, spans, demands = [], [], []
    for index, buffer in enumerate(problem):
        units = int(problem.footprints[index]) // unit
        if not units:
            continue
        model.add(offsets[index] + units <= peak)
        # What is written over another takes room of its own only from when that is gone.
        alone = model.new_bool_var("")
        model.add_exactly_one([alone, *(shared for _, shared in over[index])])
        for begin, present in ((buffer.lower, alone), *over[index]):
            if begin < buffer.upper:
                steps = buffer.upper - begin
                lifetimes.append(model.new_optional_fixed_size_interval_var(begin, steps, present, ""))
                spans.append(model.new_optional_fixed_size_interval_var(offsets[index], units, present, ""))
                demands.append(units)
    model.add_no_overlap_2d(lifetimes, spans)
    # Follows from the placement, but the solver reasons better with it.
    model.add_cumulative(lifetimes, demands, peak)


def _pairs(model: Any, problem: Problem, offsets: list[Any]) -> list[list[tuple[int, Any]]]:
    """Per buffer: those that it may be written over, as the step at which that is gone, and whether it is.

    That is a variable of the model: then both lie at one offset, and nobody else is there.
    """
    over: list[list[tuple[int, Any]]] = [[] for _ in problem.ids]
    used: list[tuple[int, int, Any]] = []
    for before, after in problem.shares.tolist():
        if not problem.sizes[after]:
            continue
        shared = model.new_bool_var("")
        model.add(offsets[before] == offsets[after]).only_enforce_if(shared)
        for b, a, other in used:
            chained = (a == before and problem.uppers[b] > problem.lowers[after]) or (
                b == after and problem.uppers[before] > problem.lowers[a]
            )
            if b == before or chained:
                model.add_at_most_one([shared, other])
        used.append((before, after, shared))
        over[after].append((int(problem.uppers[before]), shared))
    return over
