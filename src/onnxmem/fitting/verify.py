"""Does it hold? The model is run under the limit, at the size that was predicted, and then at others next to it.

A size holds if the process ends well under the limit and never had more resident than the budget. The second is asked
because limits count differently: a control group does not charge a page of a library that others brought in, and
RLIMIT_DATA counts what is reserved but no files at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError
from onnxmem.fitting.fitting import Attempt, ModeFit, Verified
from onnxmem.fitting.search import Sizes
from onnxmem.folders import temporary_folder
from onnxmem.measurement.measure import measure
from onnxmem.measurement.protocol import OUT_OF_MEMORY
from onnxmem.packing.pack import pack
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import find_mode
from onnxmem.sharing.share import share
from onnxmem.unknown import Unknown

ATTEMPTS = 12
CONFIRMED = (1.0, 0.97, 1.0)
"""Under these parts of the budget a size is run once more before it is recommended. Near a limit, ONNX Runtime's arena
asks for less and less until it gets something, so that a run may go well once and fail the next time."""
_RUNS = 3
_UNSURE = 0.995
"""From one process to the next, peaks differ by this part: what is nearer to the budget does not count as held."""
TOGETHER = "no limit: sum of PSS"
"""How several workers are judged."""
_KILLED = ("killed", "crashed")
"""How a process may end, too, that got no memory from a library which does not ask twice."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What is run, and within which limits."""

    model: Path
    sizes: Sizes
    feed: Mapping[str, Any]
    """Fixed dimensions, shapes, ranges and the seed, as `measure` takes them."""
    budget: int
    threads: int | None
    deadline: Deadline
    on_progress: OnProgress

    def verify(self, fit: ModeFit) -> ModeFit:
        """The same with what measuring has shown."""
        with self._prepared(fit.mode) as model:
            return replace(fit, verified=self._step(fit, model))

    def _step(self, fit: ModeFit, model: Path) -> Verified:
        """Measure at the predicted size; then where the prediction, corrected by that measurement, meets the budget."""
        axis = self.sizes.axis
        first, last = self.sizes.first, axis.last
        index = first if fit.size is None else (fit.size - axis.start) // axis.step
        good, bad = first - 1, (1 << 31) if last is None else last + 1
        attempts: list[Attempt] = []
        held: set[int] = set()
        limited_by, sure = "", False
        while not sure and (held or len(attempts) < ATTEMPTS) and not self.deadline.passed:
            again = index in held
            at = f", {axis.label} {axis.size(index)}" if axis.names else ""
            self.on_progress(Progress(f"running {fit.mode}{at}{' again' * again}", len(attempts), ATTEMPTS))
            attempt, limited_by = self._try(fit.mode, model, index, CONFIRMED if again else (1.0,))
            attempts.append(attempt)
            if attempt.fits:
                good, sure = index, again
                held.add(index)
            else:
                # What held once and then did not was luck: back to what held below it.
                held = {each for each in held if each < index}
                good, bad = max(held, default=first - 1), index
            index = self._next(fit.mode, index, attempt, good, bad)
            if not good < index < bad or len(attempts) >= ATTEMPTS:
                if good < first:
                    break
                index = good
        return Verified(size=axis.size(good) if sure else None, limited_by=limited_by, attempts=tuple(attempts))

    def _try(self, mode: str, model: Path, index: int, parts: Sequence[float]) -> tuple[Attempt, str]:
        """One size, run under each of these parts of the budget until it does not hold; and what the limit was."""
        axis = self.sizes.axis
        dims = {**self.feed["dims"], **axis.dims(axis.size(index))}
        keywords = {
            **self.feed,
            "dims": dims,
            "runs": _RUNS,
            "threads": self.threads,
            "time_limit": max(self.deadline.left, 1.0),
        }
        peaks = []
        for part in parts if self.sizes.workers == 1 else (1.0,):
            if self.sizes.workers == 1:
                peak, verdict, limited_by = self._alone(mode, model, keywords, round(self.budget * part))
            else:
                peak, verdict, limited_by = self._together(mode, model, keywords)
            if peak is None or peak > self.budget * _UNSURE:
                return Attempt(size=axis.size(index), fits=False, peak=peak, verdict=verdict), limited_by
            peaks.append(peak)
        return Attempt(size=axis.size(index), fits=True, peak=max(peaks), verdict=verdict), limited_by

    def _alone(self, mode: str, model: Path, keywords: Mapping[str, Any], limit: int) -> tuple[int | None, str, str]:
        """The peak of one process under the limit; none if it did not get through."""
        found = measure(model, **keywords, mode=mode, memory_limit=limit, nodes=False)
        verdict, peak = found.verdict, found.trial.highest
        if not verdict.ok and verdict.kind not in (OUT_OF_MEMORY, *_KILLED) and not self.deadline.passed:
            raise ModelError(f"the model does not run in mode {mode}: {verdict}", hint=verdict.hint)
        ended = None if isinstance(peak, Unknown) or not verdict.ok else peak
        return ended, str(verdict), str(found.trial.limited_by or "")

    def _together(self, mode: str, model: Path, keywords: Mapping[str, Any]) -> tuple[int | None, str, str]:
        """The sum of all workers' PSS. Nothing holds them below the budget: no limit is on several processes."""
        (found,) = share(model, (self.sizes.workers,), (mode,), **keywords, cold=False).modes
        if isinstance(found.total_pss, Unknown):
            raise ModelError(f"the workers do not run in mode {mode}: {found.total_pss.reason}")
        return found.total_pss, "ok", TOGETHER

    def _next(self, mode: str, index: int, attempt: Attempt, good: int, bad: int) -> int:
        """The next place to look at, between what held and what did not; one that was looked at if there is none."""
        predicted, first = self.sizes.need(mode, index), self.sizes.first
        if attempt.peak is None or predicted is None:
            # It died, and nobody knows of how much more: look in the middle, or a good deal lower.
            return (good + bad) // 2 if good >= first else max(first, index - max(1, (index - first) // 4))
        low, high = (index, bad) if attempt.fits else (good, index)
        return max(first, self._meets(mode, attempt.peak / predicted, low, high))

    def _meets(self, mode: str, ratio: float, low: int, high: int) -> int:
        """The largest place below `high` whose corrected prediction meets the budget; never below `low`."""

        def fits(index: int) -> bool:
            need = self.sizes.need(mode, index)
            return need is not None and need * ratio <= self.budget * _UNSURE

        reach = 1
        while low + reach < high and fits(low + reach):
            reach *= 2
        above = min(low + reach, high)
        below = low + reach // 2 if reach > 1 else low
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (middle, above) if fits(middle) else (below, middle)
        return below

    @contextmanager
    def _prepared(self, mode: str) -> Iterator[Path]:
        """The model in the form that the mode reads."""
        if find_mode(mode).form == "any":
            yield self.model
            return
        with temporary_folder() as folder:
            self.on_progress(Progress(f"{mode}: packing"))
            first = self.sizes.axis.dims(self.sizes.axis.size(self.sizes.first))
            feed = {**self.feed, "dims": {**self.feed["dims"], **first}}
            yield pack(self.model, folder / "package", mode, **feed, time_limit=max(self.deadline.left, 1.0)).folder
