"""Who works out cells: what all engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from onnxmem.sweeping.cell import Cell, Stage
from onnxmem.sweeping.outcome import Outcome

ANY = ""
"""As the processor of a job: whichever comes first."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell that is to be worked out, and its number in the store."""

    id: int
    cell: Cell
    processor: str = ANY
    memory: int = 0
    """What it will take, in bytes, as far as an estimate tells."""
    tries: int = 1


OnStart = Callable[[Job], None]
Answers = Generator[tuple[Job, Outcome], None, None]


class Engine(Protocol):
    """Works out jobs, those of one stage at a time."""

    name: str

    def workers(self, stage: Stage) -> int:
        """How many jobs are worked out at a time."""

    def processors(self, stage: Stage) -> Sequence[str]:
        """The processors that jobs meet: their names, and how many cores each job has."""

    def memory(self, stage: Stage) -> int | None:
        """How much memory every place has for a job; None if jobs need not say what they will take."""

    def run(self, jobs: Sequence[Job], stage: Stage, on_start: OnStart) -> Answers:
        """Work all of them out: each comes back once, in the order in which they are done."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
