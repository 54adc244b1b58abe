"""A portfolio: the other strategies and more orderings, until one meets the lower bound."""

from __future__ import annotations

from collections.abc import Iterator

from onnxmem.plan.plan import Plan
from onnxmem.plan.problem import Problem
from onnxmem.plan.strategies import best_fit, first_fit, greedy_by_breadth, greedy_by_size, naive


def plan(problem: Problem) -> Plan:
    """The smallest plan of the portfolio; the first one to meet the lower bound ends it."""
    smallest = naive.plan(problem)
    for candidate in _portfolio(problem):
        if candidate.peak < smallest.peak:
            smallest = candidate
        if smallest.optimal:
            break
    return smallest


def _portfolio(problem: Problem) -> Iterator[Plan]:
    for strategy in (greedy_by_size, greedy_by_breadth, first_fit, best_fit):
        yield strategy.plan(problem)
