"""How many rows of a batch fit into a budget at once, before anything runs? Model + shapes + budget → `Chunking`.

The same as a session with a budget finds out by recording its first runs (`session/chunks.py`), on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from onnxmem.documents import Record, stored
from onnxmem.environment import available_cores
from onnxmem.errors import UsageError
from onnxmem.model.model import Model
from onnxmem.prediction.predict import Subject
from onnxmem.rewriting.batch import ROWS, Batch
from onnxmem.rewriting.proof import find_batch
from onnxmem.schedule.scheduled import Question
from onnxmem.unknown import Unknown


@dataclass(frozen=True, kw_only=True)
class Chunking(Record):
    """A batch in parts, as a planned session would run it. All of it is about one run: its plan and its outputs."""

    rows: int
    rows_at_once: int | None
    """The most that fit into the budget; None if not even the fewest do."""
    needed: int = stored("needed_bytes")
    """What so many at once take, or the fewest if they do not fit."""
    whole: int = stored("whole_bytes")
    """What all rows at once take."""
    fewest: int
    """The fewest rows that give the same bits."""
    least: int = stored("least_bytes")
    """What the fewest that give the same bits take: the least that is possible."""

    @property
    def parts(self) -> int:
        """How many runs that makes."""
        return -(-self.rows // (self.rows_at_once or 1))


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """A batch that may be cut: how many rows at once give the same bits, and what so many take."""

    rows: int
    exact: tuple[int, ...]
    """Ascending; the last is all of them."""
    runs: Callable[[int], tuple[int, int]]
    """What the plan of a run of so many rows takes, and what its outputs take."""

    @property
    def outputs(self) -> int:
        """What all rows of the outputs take, however many are computed at once."""
        return self.runs(self.rows)[1]

    def needs(self, at_once: int) -> int:
        """What so many at once take, with all outputs."""
        return self.runs(at_once)[0] + self.outputs

    def within(self, budget: int) -> Chunking:
        """The most at once that keep to a budget."""
        low, high = -1, len(self.exact)  # the last that fits, and the first that does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.needs(self.exact[middle]) <= budget else (low, middle)
        return Chunking(
            rows=self.rows,
            rows_at_once=self.exact[low] if low >= 0 else None,
            needed=self.needs(self.exact[max(low, 0)]),
            whole=self.needs(self.rows),
            fewest=self.exact[0],
            least=self.needs(self.exact[0]),
        )


def cutting_of(model: Model, shapes: Mapping[str, Sequence[int]], *, threads: int | None = None) -> Cutting | Unknown:
    """How a batch of these shapes may be cut; Unknown, with the reason, if it may not."""
    batch = find_batch(model.proto)
    if isinstance(batch, Unknown):
        return batch
    missing = [name for name in model.inputs if name not in shapes]
    if missing:
        raise UsageError(f"the shape of input '{missing[0]}' is not given")
    dims = batch.dims(shapes)
    if dims is None:
        return Unknown("the inputs have different numbers of rows")
    count, rows = threads or available_cores(), dims[ROWS]
    exact = (rows,) if rows < 2 else (*batch.exact(dims, count), rows)
    if exact == (rows,) and rows > 1:
        return Unknown(batch.differs(dims, 1, count))
    return Cutting(rows=rows, exact=exact, runs=_needs(model, shapes, batch, count))


def largest_chunk(
    model: Model, shapes: Mapping[str, Sequence[int]], budget: int, *, threads: int | None = None
) -> Chunking | Unknown:
    """How a batch of these shapes is cut to fit into so many bytes; Unknown, with the reason, if it cannot be cut."""
    found = cutting_of(model, shapes, threads=threads)
    return found if isinstance(found, Unknown) else found.within(budget)


def _needs(
    model: Model, shapes: Mapping[str, Sequence[int]], batch: Batch, threads: int
) -> Callable[[int], tuple[int, int]]:
    """What the plan of a run of so many rows takes, and what its outputs take."""

    @cache
    def of(rows: int) -> tuple[int, int]:
        cut = {
            name: tuple(rows if axis == batch.inputs.get(name) else dim for axis, dim in enumerate(shape))
            for name, shape in shapes.items()
        }
        requests = Subject.of(model, Question(shapes=cut), threads).plain_runs.first
        return requests.inner_peak + requests.peak_of("reserved"), requests.output_bytes

    return of
