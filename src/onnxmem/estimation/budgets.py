"""What does it take to keep a run within a budget, and what is the least that is possible? On paper, nothing is run.

The same that `pack --budget` does and measures, in the same order: what is free, rows of a batch, tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.documents import Record, stored
from onnxmem.prediction.chunks import Chunking, cutting_of
from onnxmem.prediction.predict import Subject
from onnxmem.prediction.requests import unknown_tensors
from onnxmem.rewriting.budgets import stops, within
from onnxmem.rewriting.rewriting import Rewriting
from onnxmem.rewriting.static import static_graph
from onnxmem.unknown import Unknown

LEAST = "least"
"""As a budget: all steps down to the least that is possible."""
WHOLE, ROWS, TILES = "as it is", "rows", "tiles"
Say = Callable[[str], None]
"""Told what is being done."""
_SECONDS = 3.0
"""For one search, on an ordinary processor."""


@dataclass(frozen=True, kw_only=True)
class Step(Record):
    """One way to need less, and what it costs."""

    kind: str
    """`as it is`, `rows` of a batch at a time, or `tiles`."""
    needed: int = stored("needed_bytes")
    """What a run needs then, its outputs included."""
    extra_work: float = 0.0
    """As a part of what the model computes."""
    nodes: int = 0
    """How many more there are."""
    rows_at_once: int | None = None

    @classmethod
    def of_tiles(cls, found: Rewriting, outputs: int) -> Step:
        return cls(
            kind=TILES, needed=found.after + outputs, extra_work=found.extra_work, nodes=max(0, found.added_nodes)
        )


@dataclass(frozen=True, kw_only=True)
class BudgetFacts(Record):
    """What runs can be made to need: each step less than the one before it, or at less cost."""

    budget: int | None = stored("budget_bytes")
    """None: down to the least that is possible."""
    output_bytes: int
    """What a run returns, which counts."""
    rows: int | None
    """How many the batch has; None if it cannot be split."""
    unsplit: str = ""
    """Why that is."""
    steps: tuple[Step, ...]

    @property
    def chosen(self) -> Step | None:
        """The first that meets the budget; None if nothing does, or there is none."""
        return next((step for step in self.steps if self.budget is not None and step.needed <= self.budget), None)

    @property
    def least(self) -> Step:
        """What needs least of all."""
        return min(self.steps, key=lambda step: step.needed)

    @property
    def fits(self) -> bool:
        """Whether the budget can be met."""
        return self.budget is None or self.chosen is not None

    def derived(self) -> Mapping[str, Any]:
        """What readers look for first."""
        return {"fits": self.fits, "chosen": self.chosen, "least": self.least}


def budget_facts(subject: Subject, budget: int | None, say: Say = lambda _: None) -> BudgetFacts | Unknown:
    """What it takes to keep to a budget; without one, all steps down to the least that is possible."""
    unknown = unknown_tensors(subject.graph)
    if unknown:
        return Unknown(f"the size of '{unknown[0]}' depends on what is fed")
    runs = subject.plain_runs.first
    outputs = runs.output_bytes
    whole = Step(kind=WHOLE, needed=runs.inner_peak + runs.peak_of("reserved") + outputs)
    steps, rows, unsplit = [whole], None, "it has a single row"
    if budget is None or whole.needed > budget:
        say("looking at the rows of a batch")
        cut = _cut(subject, budget)
        unsplit = cut.reason if isinstance(cut, Unknown) else ""
        if isinstance(cut, Chunking):
            rows = cut.rows
            steps.append(Step(kind=ROWS, needed=cut.needed, rows_at_once=cut.rows_at_once or cut.fewest))
    if budget is None or all(step.needed > budget for step in steps):
        steps += _tiles(subject, outputs, budget, say)
    return BudgetFacts(budget=budget, output_bytes=outputs, rows=rows, unsplit=unsplit, steps=tuple(steps))


def _cut(subject: Subject, budget: int | None) -> Chunking | Unknown:
    found = cutting_of(subject.model, subject.input_shapes, threads=subject.threads)
    if isinstance(found, Unknown):
        return found
    if found.rows < 2:
        return Unknown("it has a single row")
    return found.within(found.needs(found.exact[0]) if budget is None else budget)


def _tiles(subject: Subject, outputs: int, budget: int | None, say: Say) -> Iterator[Step]:
    graph, what = static_graph(subject.model, subject.input_shapes, threads=subject.threads), "searching tiles"
    say(what)
    if budget is not None:
        found = within(graph, max(budget - outputs, 0), time_limit=_SECONDS)
        if found.parts:
            yield Step.of_tiles(found, outputs)
        return
    for each in stops(graph, time_limit=_SECONDS, on_search=lambda done, total: say(f"{what}: {done} of {total}")):
        yield Step.of_tiles(each, outputs)
