"""How small and how fast are the best plans? One table, of public instances and of generated ones.

    python benchmarks/placement.py FOLDER [--only NAME ...] [--repeat 3] [--time-limit 60] [--no-generated]

FOLDER holds placement CSVs (`id,lower,upper,size`), such as the "challenging" ones of google/minimalloc and those of
cappadokes/idealloc. A number in a file name (`A.1048576.csv`) is the capacity the plan has to fit into; where the
bound is lower, a second row asks for that. Every plan passes the validator. Seconds are wall-clock time of the
strategy, the median of the repetitions.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.placement_instances import cut_rectangle, random_buffers, sharing_run, training_step
from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import Problem
from onnxmem.placement.strategies import solve
from onnxmem.placement.table import read_problem


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    problem: Problem
    plan: Plan
    seconds: float

    def cells(self) -> list[str]:
        """As the header has them."""
        capacity = self.problem.capacity
        return [
            self.name,
            f"{len(self.problem):,}",
            f"{self.plan.proven_bound:,}",
            "–" if capacity is None else f"{capacity:,}",
            f"{self.plan.peak:,}{'' if self.plan.fits else ' (does not fit)'}",
            f"{100 * self.plan.gap:.2f} %",
            f"{self.seconds:.3f}",
            "yes" if self.plan.optimal else "no",
        ]


HEADER = ["instance", "buffers", "bound", "capacity", "peak", "gap", "seconds", "proven"]


def instances_in(folder: Path) -> Iterator[tuple[str, Problem]]:
    """Every CSV at the capacity in its name and at its bound; without a number, just as small as possible."""
    for path in sorted(folder.glob("*.csv")):
        name, _, number = path.stem.partition(".")
        problem = read_problem(path)
        if not number.isdecimal():
            yield path.stem, problem
            continue
        yield name, problem.with_capacity(int(number))
        if problem.lower_bound < int(number):
            yield f"{name}, smaller", problem


def generated() -> Iterator[tuple[str, Problem]]:
    """Puzzles known to fit, with and without pieces trimmed; runs whose buffers may share places; large ones."""
    for count in (150, 300, 450):
        for trim in (0.0, 0.05):
            for seed in range(2):
                yield f"cut {count}, trim {trim:.2f}, seed {seed}", cut_rectangle(count, seed, trim=trim)
    for count in (100, 500, 3000):
        for seed in range(2):
            shared = sharing_run(count, seed)
            yield f"run of {count:,}, seed {seed}", shared.without_shares()
            yield f"run of {count:,}, seed {seed}, {len(shared.shares):,} pairs may share", shared
    for count in (28_000, 62_000):
        yield f"training, {count:,}", training_step(count, 0)
        yield f"random {count:,}, 300 alive", random_buffers(count, 0, alive=300)
    yield "random, 1,000 alive", random_buffers(1_000_000, 0)


def measure(name: str, problem: Problem, repeat: int, time_limit: float) -> Row:
    """Solve it some times, each time with another seed; the largest peak counts."""
    plans = [solve(problem, "best", time_limit=time_limit, seed=seed) for seed in range(repeat)]
    return Row(name, problem, max(plans, key=lambda plan: plan.peak), statistics.median(p.seconds for p in plans))


def main() -> None:
    """Print the table while it grows: the long rows come last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="a folder of placement CSVs")
    parser.add_argument("--only", nargs="*", default=[], help="instances whose names begin with one of these")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each instance (default 3)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each run (default 60)")
    parser.add_argument("--no-generated", action="store_true", help="only the instances of the folder")
    arguments = parser.parse_args()

    rows: list[tuple[str, Problem]] = []
    if arguments.folder is None or not arguments.folder.is_dir():
        print(f"There are no public instances here: '{arguments.folder}' is not a folder. Generated ones only.\n")
    else:
        rows += instances_in(arguments.folder)
    if not arguments.no_generated:
        rows += generated()
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
          f"median of {arguments.repeat}, limit {arguments.time_limit:g} s\n")  # fmt: skip
    print(f"| {' | '.join(HEADER)} |")
    print(f"|{'|'.join('---' if name == 'instance' else '---:' for name in HEADER)}|")
    total = 0.0
    for name, problem in rows:
        if arguments.only and not name.startswith(tuple(arguments.only)):
            continue
        # A million buffers use all the time there is, once; a quarter of it is left for the validator.
        repeat, share = (1, 0.75) if len(problem) > 100_000 else (arguments.repeat, 1.0)
        row = measure(name, problem, repeat, arguments.time_limit * share)
        total += row.seconds
        print(f"| {' | '.join(row.cells())} |", flush=True)
    print(f"\nTogether {total:.2f} s.")


if __name__ == "__main__":
    main()
