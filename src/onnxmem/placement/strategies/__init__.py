"""The strategies, in the order results list them: one file each, one pure function `plan(problem) -> Plan`."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from onnxmem.errors import BudgetExceeded, OnnxmemError, PlanError, UsageError
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.sharing import place_with_shares
from onnxmem.placement.validate import validate_plan
from onnxmem.units import format_bytes

Strategy = Callable[..., Plan]

STRATEGIES = ("naive", "greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit", "best")
# Known by name, but not part of "all": it needs an extra, and takes what time it is given.
OPTIONAL = ("cp_sat",)
# They decide themselves which buffers share places; for the others, what shares a place is made one buffer.
_KNOW_SHARES = ("best", "cp_sat")
JOINT = "model"
"""MODeL chooses the order of a model's nodes, too: `onnxmem.schedule.joint`. It is no strategy for a problem alone."""


def solve(
    problem: Problem,
    strategy: str = "best",
    *,
    time_limit: float | None = None,
    effort: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Plan:
    """Place a problem's buffers, and vouch for the result.

    `strategy` is a name from STRATEGIES or OPTIONAL, or a dotted path such as "mypkg.mine:plan". The
    options reach those strategies that have a parameter of that name, if they are given: seconds at most, how many an
    ordinary processor should take, where to begin where choices are random, how many threads, and bytes for the search
    to remember what it has seen. Every plan passes the validator before it is returned; whether it stays within the
    problem's capacity is the plan's `fits`. Where buffers may share places, the plan is never larger than the one that
    the same strategy gives without sharing.
    """
    place = find(strategy)
    if problem.capacity is not None and problem.lower_bound > problem.capacity:
        raise BudgetExceeded(
            f"no plan fits into {format_bytes(problem.capacity)}: "
            f"{format_bytes(problem.lower_bound)} are live at step {problem.peak_step[0]}",
            hint=f"the lower bound is {problem.lower_bound} bytes, the capacity {problem.capacity}",
        )
    options = {"time_limit": time_limit, "effort": effort, "seed": seed, "threads": threads, "memory": memory}
    accepted = inspect.signature(place).parameters
    started = time.perf_counter()
    given = {n: value for n, value in options.items() if n in accepted and value is not None}
    try:
        knows = strategy.replace("-", "_") in _KNOW_SHARES
        plan = place(problem, **given) if knows else place_with_shares(problem, partial(place, **given))
    except OnnxmemError:
        raise
    except Exception as error:
        raise PlanError(f"strategy '{strategy}' failed: {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - started
    if not isinstance(plan, Plan) or plan.problem is not problem:
        raise PlanError(f"strategy '{strategy}' did not return a Plan of the problem it was given")
    validate_plan(plan)
    return replace(plan, strategy=strategy, seconds=seconds)


def find(name: str) -> Strategy:
    """The function behind a strategy's name or dotted path."""
    plain = name.replace("-", "_")  # cp-sat is how everyone else writes it
    if plain in STRATEGIES or plain in OPTIONAL:
        module, attribute = f"{__name__}.{plain}", "plan"
    elif ":" in name:
        module, _, attribute = name.partition(":")
    elif name == JOINT:
        raise UsageError(
            f"strategy '{JOINT}' chooses the order of a model's nodes, too: there is none to choose here",
            hint=f"onnxmem plan MODEL.onnx --strategy {JOINT}; for a given order or problem: best or cp_sat",
        )
    else:
        raise UsageError(
            f"there is no strategy '{name}'",
            hint=f"known: {', '.join((*STRATEGIES, *OPTIONAL, JOINT))}; or your own as package.module:function",
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"strategy '{name}' cannot be imported: {error}") from error
    if not callable(found):
        raise UsageError(f"strategy '{name}' is not a function")
    strategy: Strategy = found
    return strategy
