"""The placement problem as a constraint program for OR-Tools (extra `solvers`): a reference that shares no code.

It proves optimality on small problems and agrees with the built-in search there; on large or tight ones the built-in
search is far faster.
"""

from __future__ import annotations

import math

import numpy as np

from onnxmem.errors import PlanError, missing_extra
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies import greedy_by_size

# The solver adds up in 64 bits; this leaves it room for its own sums.
_LARGEST_PEAK = 2**50


def plan(problem: Problem, *, time_limit: float = 60.0, seed: int = 0, threads: int | None = None) -> Plan:
    """The smallest plan the solver finds in time; Ctrl-C ends it with the best so far."""
    try:
        from ortools.sat.python import cp_model  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("ortools", "solvers") from error
    start = greedy_by_size.plan(problem)
    if start.optimal or (problem.capacity is not None and start.fits):
        return start
    unit = math.gcd(*problem.footprints.tolist())
    most = start.peak // unit
    if most > _LARGEST_PEAK:
        raise PlanError("these sizes are too large for the constraint solver", hint="use the strategy 'best'")

    model = cp_model.CpModel()
    peak = model.new_int_var(problem.lower_bound // unit, most, "peak")
    offsets, lifetimes, spans, demands = [], [], [], []
    for index, buffer in enumerate(problem):
        units = int(problem.footprints[index]) // unit
        offset = model.new_int_var(0, most - units, f"offset {index}")
        offsets.append(offset)
        model.add_hint(offset, int(start.offsets[index]) // unit)
        if not units:
            continue
        model.add(offset + units <= peak)
        lifetimes.append(model.new_fixed_size_interval_var(buffer.lower, buffer.upper - buffer.lower, f"life {index}"))
        spans.append(model.new_fixed_size_interval_var(offset, units, f"span {index}"))
        demands.append(units)
    model.add_no_overlap_2d(lifetimes, spans)
    # Follows from the placement, but the solver reasons better with it.
    model.add_cumulative(lifetimes, demands, peak)
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
