"""Ctrl-C ends a search at once, with the best it has found so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends a signal")

PLACING = """
from benchmarks.placement_instances import cut_rectangle, random_buffers
from onnxmem.placement.strategies import solve
problem = {problem}.with_capacity(None)
solve(random_buffers(9, 0))  # what it needs is imported: Ctrl-C ends that with a KeyboardInterrupt, as it should
print("ready", flush=True)
plan = solve(problem, "best", time_limit=300.0)
print(plan.interrupted, plan.peak >= problem.lower_bound, len(plan.offsets) == len(problem))
"""
ORDERING = """
from onnxmem.schedule.search import best_order
from benchmarks.synthetic import random_dag
workload = random_dag(1000, seed=1, reach=60)
print("ready", flush=True)
result = best_order(workload, time_limit=120)
print(result.interrupted, len(result.order))
"""
JOINTLY = """
from onnxmem.schedule.joint import order_and_place
from benchmarks.synthetic import random_dag
order_and_place(random_dag(5, seed=1, reach=3), time_limit=1, workers=1)
print("ready", flush=True)
result = order_and_place(random_dag(80, seed=1, reach=30), time_limit=120, workers=1)
print(result.optimal, len(result.order))
"""


@pytest.mark.parametrize(
    ("script", "after", "printed"),
    [
        (PLACING.format(problem="cut_rectangle(900, 0, trim=0.3)"), 2.0, "True True True"),  # in the exact search
        (PLACING.format(problem="random_buffers(100_000, 0)"), 2.0, "True True True"),  # in the greedy step
        (ORDERING, 0.5, "True 1000"),
        (JOINTLY, 0.5, "False 80"),
    ],
    ids=["exact placement", "greedy placement", "ordering", "order and placement"],
)
def test_ctrl_c_ends_a_search_with_the_best_so_far(script: str, after: float, printed: str) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        started = time.perf_counter()
        assert process.stdout.read() == f"{printed}\n"
        # Most of this is the validator, which looks at every plan.
        assert time.perf_counter() - started < 60
    assert process.returncode == 0
