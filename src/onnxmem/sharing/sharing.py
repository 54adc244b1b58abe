"""The result of sharing: what was measured of every worker, the figures of each mode, and which mode to use."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from onnxmem.documents import Record, inlined, stored
from onnxmem.measurement.device import HOST
from onnxmem.measurement.feeds import Fed
from onnxmem.result import Result
from onnxmem.session.modes import find_mode
from onnxmem.units import format_bytes, format_percent
from onnxmem.unknown import Bytes, Unknown, combine, known, subtract

BASELINES = ("stock", "ort")
"""How ONNX Runtime loads a file if nobody says otherwise."""
# Totals that are this close are the same: then the mode that always has the baseline's outputs is the better one.
_CLOSE = 1.02


@dataclass(frozen=True, kw_only=True)
class Worker(Record):
    """One of the processes, while all of them were alive, idle, and had run the model."""

    pss: Bytes = stored("pss_bytes")
    uss: Bytes = stored("uss_bytes")
    anon: Bytes = stored("anon_bytes")
    model_pss: Bytes = stored("model_files_pss_bytes")
    """Its part of the model's files in memory."""
    load_seconds: float
    load_peak: Bytes = stored("load_peak_bytes")
    """Peak RSS while loading − RSS before it."""
    load_peak_anon: Bytes = stored("load_peak_anon_bytes")
    """The same without files: what was private at most. Sampled."""
    loaded_anon: Bytes = stored("loaded_anon_bytes")
    """How much anonymous memory it had after loading − before it."""
    first_run: float = stored("first_run_seconds")
    latencies: tuple[float, ...] = stored("latencies_seconds")
    """Of its steady runs."""
    outputs: str = stored("outputs_sha256")
    device: Bytes | None = stored("device_bytes", default=None)
    """What it takes on the device that it runs on; None if that is the CPU."""


@dataclass(frozen=True, kw_only=True)
class Cold(Record):
    """One more process, that found none of the model's files in memory."""

    load_seconds: float | Unknown
    first_run: float | Unknown = stored("first_run_seconds")


@dataclass(frozen=True, kw_only=True)
class Group(Record):
    """All workers of one mode at once, perhaps several times over."""

    mode: str
    count: int = stored("workers")
    rounds: tuple[tuple[Worker, ...], ...] = ()
    """The workers of each repetition."""
    cold: Cold
    failures: tuple[str, ...] = ()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Those of all repetitions."""
        return tuple(worker for workers in self.rounds for worker in workers)

    def figure(self, name: str, together: Callable[[Iterable[int]], float]) -> Bytes:
        """A figure of the workers: put together in each repetition, then the median repetition."""
        if self.failures:
            return Unknown(self.failures[0])
        totals = [combine(lambda *values: together(values), *(getattr(w, name) for w in ws)) for ws in self.rounds]
        return combine(lambda *values: int(statistics.median(values)), *totals)

    def median(self, values: Iterable[float]) -> float | Unknown:
        """The median of the values."""
        values = list(values)
        return statistics.median(values) if values else Unknown((*self.failures, "no worker ran to the end")[0])

    @property
    def outputs(self) -> str | Unknown:
        """The hash of the outputs, the same in all workers."""
        hashes = {worker.outputs for worker in self.workers}
        if len(hashes) == 1:
            return hashes.pop()
        return Unknown("the workers computed different outputs" if hashes else "no worker ran to the end")


@dataclass(frozen=True, kw_only=True)
class Latency(Record):
    """How long a mode's runs take: one worker of each mode, all alive, running in turns."""

    mode: str
    seconds: tuple[float, ...] | Unknown = stored("samples_seconds")
    of_baseline: float | None
    """The median of the ratios in each turn: whatever slows the machine in a turn slows both."""

    @property
    def median(self) -> float | Unknown:
        """The median run."""
        return combine(statistics.median, self.seconds)

    def derived(self) -> Mapping[str, Any]:
        return {"latency_seconds": self.median}


@dataclass(frozen=True, kw_only=True)
class ModeFigures(Record):
    """What one number of workers of one mode takes."""

    mode: str
    workers: int
    total_pss: Bytes = stored("total_pss_bytes")
    """What the workers take together: the sum of PSS, in the median repetition."""
    worker_uss: Bytes = stored("per_worker_uss_bytes")
    """What one worker has for itself: what one more would cost."""
    worker_anon: Bytes = stored("per_worker_anon_bytes")
    """What one worker has in heap and arenas."""
    model_pss: Bytes = stored("model_files_pss_bytes")
    """What of the model's files is in memory, each page once."""
    floor: Bytes = stored("floor_bytes")
    of_floor: float | Unknown
    of_baseline: float | Unknown
    """Total PSS in terms of the baseline's with as many workers."""
    load_peak: Bytes = stored("load_peak_bytes")
    """The most that loading took on top, in any worker."""
    load_peak_anon: Bytes = stored("load_peak_anon_bytes")
    loaded_anon: Bytes = stored("loaded_anon_bytes")
    """What loading has left in heap and arenas of one worker."""
    load_seconds: float | Unknown
    load_cold_seconds: float | Unknown
    first_run: float | Unknown = stored("first_run_seconds")
    """The median of first runs, in which mapped weights are touched."""
    first_run_cold: float | Unknown = stored("first_run_cold_seconds")
    latency: float | Unknown = stored("latency_seconds")
    """The median steady run of these workers, which take turns. How modes compare is in `Sharing.latencies`."""
    outputs: str | Unknown = stored("outputs_sha256")
    same_outputs: bool | Unknown = stored("outputs_equal_baseline")
    """Whether its outputs are the baseline's, bit for bit."""
    iterations: int
    failures: tuple[str, ...]
    total_device: Bytes | None = stored("total_device_bytes", default=None)
    """What the workers take together on the device that they run on; None if that is the CPU."""


@dataclass(frozen=True, kw_only=True)
class Sharing(Result):
    """Modes × numbers of workers, measured in one go."""

    SCHEMA: ClassVar[str] = "onnxmem.share/1"

    model: str
    file_bytes: int
    weights_bytes: int
    threads: int | None
    runs: int
    fed: Fed = inlined()
    groups: tuple[Group, ...]
    latencies: tuple[Latency, ...] = stored("latency")
    device: str = HOST
    """Where they ran."""

    @property
    def baseline(self) -> str | None:
        """The mode that others are compared with."""
        return next((group.mode for group in self.groups if group.mode in BASELINES), None)

    @cached_property
    def modes(self) -> tuple[ModeFigures, ...]:
        """The figures of each group."""
        return tuple(map(self._figures, self.groups))

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """Which of the measured modes to use: the least memory with equal outputs, then the least of all if lower."""
        most = max((group.count for group in self.groups), default=0)
        choices = [
            Choice(each.mode, each.workers, total, each.same_outputs is True)
            for each in self.modes
            if each.workers == most and isinstance(total := self._counted(each), int)
        ]
        return recommend(choices, self.baseline)

    def _counted(self, each: ModeFigures) -> Bytes | None:
        """What modes are compared by: memory of the device that they run on."""
        return each.total_pss if self.device == HOST else each.total_device

    def derived(self) -> Mapping[str, Any]:
        return {"baseline": self.baseline, "modes": self.modes, "recommendations": self.recommendations}

    def floor(self, count: int) -> Bytes:
        """The least that `count` workers could take: one copy of the weights + what the smallest has beside them.

        Workers whose weights are all in files tell how much of these is in memory: weights that no run has touched,
        as most rows of an embedding table, do not count. What workers have beside the model's files is the
        interpreter, the runtime and what the model computes. What was measured to take less is the floor itself.
        """
        groups = [group for group in self.groups if group.count == count]
        files = known(group.figure("model_pss", sum) for group in groups if find_mode(group.mode).shared)
        totals = known(group.figure("pss", sum) for group in groups)
        beside = known(subtract(group.figure("pss", sum), group.figure("model_pss", sum)) for group in groups)
        if not files or not beside:
            shared = "prepacked, mapped or ort-mapped"
            return Unknown(f"no mode that leaves all weights in files ({shared}) was measured with {count} workers")
        return min(*totals, min(self.weights_bytes, *files) + min(beside))

    def _figures(self, group: Group) -> ModeFigures:
        total, floor = group.figure("pss", sum), self.floor(group.count)
        missing = Unknown("no mode is the baseline")
        base = next((g for g in self.groups if g.mode == self.baseline and g.count == group.count), None)
        return ModeFigures(
            mode=group.mode,
            workers=group.count,
            total_pss=total,
            worker_uss=group.figure("uss", statistics.median),
            worker_anon=group.figure("anon", statistics.median),
            model_pss=group.figure("model_pss", sum),
            floor=floor,
            of_floor=combine(_ratio, total, floor),
            of_baseline=combine(_ratio, total, base.figure("pss", sum) if base else missing),
            load_peak=group.figure("load_peak", max),
            load_peak_anon=group.figure("load_peak_anon", max),
            loaded_anon=group.figure("loaded_anon", statistics.median),
            load_seconds=group.median(worker.load_seconds for worker in group.workers),
            load_cold_seconds=group.cold.load_seconds,
            first_run=group.median(worker.first_run for worker in group.workers),
            first_run_cold=group.cold.first_run,
            latency=group.median(seconds for worker in group.workers for seconds in worker.latencies),
            outputs=group.outputs,
            same_outputs=combine(str.__eq__, group.outputs, base.outputs if base else missing),
            iterations=len(group.rounds),
            failures=group.failures,
            total_device=None if self.device == HOST else group.figure("device", sum),
        )


def _ratio(one: int, other: int) -> float | Unknown:
    return one / other if other else Unknown("there is nothing to compare with")


class Choice(NamedTuple):
    """A mode with the largest number of workers that was measured."""

    mode: str
    workers: int
    total: int
    same_outputs: bool
    """Whether its outputs were those of the baseline, which are its own if there is none to compare with."""


@dataclass(frozen=True, kw_only=True)
class Recommendation(Record):
    """A mode, and what to know before using it."""

    mode: str
    text: str
    trade_off: str
    avoid_if: str


def recommend(choices: Sequence[Choice], baseline: str | None) -> tuple[Recommendation, ...]:
    """The mode with the least memory among those whose outputs are the baseline's; then the least of all, if less."""
    if not choices:
        return ()
    before = next((each for each in choices if each.mode == baseline), None)
    equal = [each for each in choices if each.same_outputs or (before is None and find_mode(each.mode).exact)]
    best = _least(equal) if equal else None
    least = _least(choices)
    found = [_recommended(best, before)] if best else []
    if best is None or least.total * _CLOSE < best.total:
        found.append(_least_of_all(least, before))
    return tuple(found)


def _least(choices: Sequence[Choice]) -> Choice:
    least = min(each.total for each in choices)
    near = [each for each in choices if each.total <= least * _CLOSE]
    return min(near, key=lambda each: (not find_mode(each.mode).exact, each.total))


def _recommended(best: Choice, before: Choice | None) -> Recommendation:
    if best is before:
        return _made(best, f"Keep {best.mode}: no other mode that was measured takes less with the same outputs.")
    same = ", with the same outputs" if before else ""
    return _made(best, f"Use {best.mode}: {_takes(best, before)}{same}.")


def _least_of_all(least: Choice, before: Choice | None) -> Recommendation:
    differ = f" Its outputs differ from those of {before.mode}." if before and not least.same_outputs else ""
    return _made(least, f"{least.mode} takes the least memory: {_takes(least, before)}.{differ}")


def _takes(choice: Choice, before: Choice | None) -> str:
    who = "1 worker takes" if choice.workers == 1 else f"{choice.workers} workers together take"
    takes = f"{who} {format_bytes(choice.total)}"
    if before is None or before.total <= choice.total:
        return takes
    saved = before.total - choice.total
    return f"{takes}, {format_bytes(saved)} ({format_percent(saved / before.total)}) less than {before.mode}"


def _made(choice: Choice, text: str) -> Recommendation:
    mode = find_mode(choice.mode)
    return Recommendation(mode=choice.mode, text=text, trade_off=mode.costs, avoid_if=mode.avoid)
