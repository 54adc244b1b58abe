"""Who works out cells: what all engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.outcome import Outcome

ANY = ""
"""As the processor of a job: whichever comes first."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell that is to be worked out, and its number in the store."""

    id: int
    cell: Cell
    processor: str = ANY
    tries: int = 1


OnStart = Callable[[Job], None]
Answers = Generator[tuple[Job, Outcome], None, None]


class Engine(Protocol):
    """Works out jobs. `runs` says whether they run their models: then each has its cores to itself."""

    name: str

    @property
    def workers(self) -> Mapping[bool, int]:
        """How many jobs are worked out at a time, by `runs`."""

    def processors(self, runs: bool) -> Sequence[str]:
        """The processors that jobs meet: their names, and how many cores each job has."""

    def run(self, jobs: Sequence[Job], runs: bool, on_start: OnStart) -> Answers:
        """Work all of them out: each comes back once, in the order in which they are done."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
