"""Order and placement together: the joint program agrees with the searches wherever it is small enough to finish."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from benchmarks.synthetic import cells, nas_cells, random_dag, unet, workload_of
from onnxmem.errors import PlanError
from onnxmem.placement.strategies import solve
from onnxmem.placement.validate import validate_plan
from onnxmem.schedule.joint import order_and_place
from onnxmem.schedule.search import best_order
from onnxmem.schedule.workload import Workload, obeys_glue, peak, to_problem

from ..schedule.generators import workloads

pytest.importorskip("ortools")

SMALL = {"cells": cells(1, 4, 3), "nas cell": nas_cells(1), "dag": random_dag(16, seed=2), "unet": unet(3)}


@settings(max_examples=150)
@given(workloads(most=7))
def test_the_program_and_the_search_agree_on_the_best_order(workload: Workload) -> None:
    result = order_and_place(workload, place=False, workers=1)
    assert result.optimal
    assert result.peak == best_order(workload).peak
    assert obeys_glue(workload, result.order)


@settings(max_examples=150)
@given(workloads(most=6))
def test_the_program_places_what_it_orders(workload: Workload) -> None:
    result = order_and_place(workload, workers=1)
    assert result.optimal
    assert result.plan is not None
    validate_plan(result.plan)
    searched = best_order(workload)
    assert searched.peak <= peak(workload, result.order) <= result.peak
    assert result.peak <= solve(to_problem(workload, searched.order)).peak


@pytest.mark.parametrize("name", SMALL)
def test_the_best_order_needs_no_larger_arena_than_the_program_proves(name: str) -> None:
    searched = best_order(SMALL[name])
    placed = solve(to_problem(SMALL[name], searched.order, 64))
    result = order_and_place(SMALL[name], alignment=64, workers=2, time_limit=20)
    assert result.optimal
    assert result.peak <= placed.peak


def test_sizes_the_solver_cannot_add_up_are_refused() -> None:
    with pytest.raises(PlanError, match="too large"):
        order_and_place(workload_of([(), (0,)], [2**62, 2**62]))
