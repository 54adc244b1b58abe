"""The result of sharing: immutable, and the same as versioned JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.environment import Environment
from onnxmem.measurement.feeds import Feeds
from onnxmem.measurement.probes import Reading
from onnxmem.result import Shown
from onnxmem.session.modes import find_mode
from onnxmem.unknown import Bytes, Unknown

SCHEMA = "onnxmem.share/1"


@dataclass(frozen=True)
class Worker:
    """One of the processes, while all of them were alive, idle, and had run the model."""

    reading: Reading
    model_pss: Bytes
    """Its part of the model's files in memory."""
    load_seconds: float
    load_peak: Bytes
    """Peak RSS while loading − RSS before it."""
    load_peak_anon: Bytes
    """The same without files: what was private at most. Sampled."""
    loaded_anon: Bytes
    """How much anonymous memory it had after loading − before it."""
    first_run: float
    latencies: tuple[float, ...]
    """Of its steady runs."""
    outputs: str


@dataclass(frozen=True)
class Cold:
    """One more process, that found none of the model's files in memory."""

    load_seconds: float | Unknown
    first_run: float | Unknown


@dataclass(frozen=True)
class Group:
    """All workers of one mode at once, perhaps several times over."""

    mode: str
    count: int
    rounds: tuple[tuple[Worker, ...], ...]
    """The workers of each repetition."""
    cold: Cold
    failures: tuple[str, ...] = ()

    @property
    def total_pss(self) -> Bytes:
        """What the workers take together: the sum of PSS, in the median repetition."""
        return self._over_rounds(lambda worker: worker.reading.pss, sum)

    @property
    def model_pss(self) -> Bytes:
        """What of the model's files is in memory, each page once."""
        return self._over_rounds(lambda worker: worker.model_pss, sum)

    @property
    def worker_uss(self) -> Bytes:
        """What one worker has for itself: what one more would cost."""
        return self._over_rounds(lambda worker: worker.reading.uss, statistics.median)

    @property
    def worker_anon(self) -> Bytes:
        """What one worker has in heap and arenas."""
        return self._over_rounds(lambda worker: worker.reading.anon, statistics.median)

    @property
    def load_peak(self) -> Bytes:
        """The most that loading took on top, in any worker."""
        return self._over_rounds(lambda worker: worker.load_peak, max)

    @property
    def load_peak_anon(self) -> Bytes:
        """The same without files."""
        return self._over_rounds(lambda worker: worker.load_peak_anon, max)

    @property
    def loaded_anon(self) -> Bytes:
        """What loading has left in heap and arenas of one worker."""
        return self._over_rounds(lambda worker: worker.loaded_anon, statistics.median)

    @property
    def load_seconds(self) -> float | None:
        """The median, with the files in memory."""
        return self._median([worker.load_seconds for worker in self.workers])

    @property
    def first_run(self) -> float | None:
        """The median of first runs, in which mapped weights are touched."""
        return self._median([worker.first_run for worker in self.workers])

    @property
    def outputs(self) -> str | Unknown:
        """The hash of the outputs, the same in all workers."""
        hashes = {worker.outputs for worker in self.workers}
        if len(hashes) == 1:
            return hashes.pop()
        return Unknown("the workers computed different outputs" if hashes else "no worker ran to the end")

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Those of all repetitions."""
        return tuple(worker for workers in self.rounds for worker in workers)

    def _over_rounds(self, take: Any, combine: Any) -> Bytes:
        if self.failures:
            return Unknown(self.failures[0])
        totals = []
        for workers in self.rounds:
            values = [take(worker) for worker in workers]
            unknown = next((value for value in values if isinstance(value, Unknown)), None)
            if unknown:
                return unknown
            totals.append(combine(values))
        return int(statistics.median(totals))

    @staticmethod
    def _median(values: Sequence[float]) -> float | None:
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Sharing(Shown):
    """Modes × numbers of workers, measured in one go."""

    model: str
    file_bytes: int
    weights_bytes: int
    threads: int | None
    runs: int
    feeds: Feeds
    groups: tuple[Group, ...]
    latencies: Mapping[str, tuple[float, ...] | Unknown]
    """Seconds of each run of one worker of each mode; round by round, the modes took turns."""
    environment: Environment

    def floor(self, count: int) -> Bytes:
        """The least that `count` workers could take: one copy of the weights + what the smallest has beside them.

        Workers whose weights are all in files tell it. What they have beside is the interpreter, the runtime and what
        the model computes; a page of a library that they share counts once, and so does one of the weights. Weights
        that no run has touched, as most rows of an embedding table, are not in memory and do not count.
        """
        files, beside = [self.weights_bytes], []
        for group in self.groups:
            if group.count == count and find_mode(group.mode).shared:
                total, resident = group.total_pss, group.model_pss
                if isinstance(total, int) and isinstance(resident, int):
                    files.append(resident)
                    beside.append(total - resident)
        if not beside:
            shared = "prepacked, mapped or ort-mapped"
            return Unknown(f"no mode that leaves all weights in files ({shared}) was measured with {count} workers")
        return min(files) + min(beside)

    def of_floor(self, group: Group) -> float | None:
        """How many times the floor a group takes."""
        floor, total = self.floor(group.count), group.total_pss
        return total / floor if isinstance(floor, int) and isinstance(total, int) else None

    def of_stock(self, group: Group) -> float | None:
        """A group's total PSS in terms of stock's with as many workers."""
        stock = next((g.total_pss for g in self.groups if g.count == group.count and g.mode == self.baseline), None)
        total = group.total_pss
        return total / stock if isinstance(total, int) and isinstance(stock, int) else None

    @property
    def baseline(self) -> str | None:
        """The mode that others are compared with: the way ONNX Runtime loads if nobody says otherwise."""
        return next((group.mode for group in self.groups if group.mode in ("stock", "ort")), None)

    def latency(self, mode: str) -> float | Unknown:
        """The median run of a mode."""
        found = self.latencies[mode]
        return found if isinstance(found, Unknown) else statistics.median(found)

    def latency_of_stock(self, mode: str) -> float | None:
        """A mode's latency in terms of stock's: the median of the ratios of runs that followed each other."""
        ours, theirs = self.latencies[mode], self.latencies.get(self.baseline or "")
        if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
            return None
        return statistics.median(own / stock for own, stock in zip(ours, theirs, strict=True))

    def same_outputs(self, group: Group) -> bool | None:
        """Whether its outputs are stock's, bit for bit."""
        stock = next((g.outputs for g in self.groups if g.mode == self.baseline), None)
        return None if not isinstance(stock, str) or not isinstance(group.outputs, str) else group.outputs == stock

    def document(self) -> dict[str, Any]:
        """`onnxmem.share/1`: bytes as integers, seconds as floats, null with a reason where nothing is known."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "file_bytes": self.file_bytes,
            "weights_bytes": self.weights_bytes,
            "threads": self.threads,
            "runs": self.runs,
            "inputs": {
                name: {"dtype": str(array.dtype), "shape": list(array.shape)}
                for name, array in self.feeds.arrays.items()
            },
            "dims": {"given": dict(self.feeds.given), "assumed": dict(self.feeds.assumed)},
            "modes": [self._group(group) for group in self.groups],
            "environment": self.environment.document(),
        }

    def _group(self, group: Group) -> dict[str, Any]:
        values = {
            "total_pss_bytes": group.total_pss,
            "per_worker_uss_bytes": group.worker_uss,
            "per_worker_anon_bytes": group.worker_anon,
            "model_files_pss_bytes": group.model_pss,
            "floor_bytes": self.floor(group.count),
            "load_peak_bytes": group.load_peak,
            "load_peak_anon_bytes": group.load_peak_anon,
            "loaded_anon_bytes": group.loaded_anon,
            "load_seconds": group.load_seconds,
            "load_cold_seconds": group.cold.load_seconds,
            "first_run_seconds": group.first_run,
            "first_run_cold_seconds": group.cold.first_run,
            "latency_seconds": self.latency(group.mode),
            "outputs_sha256": group.outputs,
        }
        return {
            "mode": group.mode,
            "workers": group.count,
            **{name: None if isinstance(value, Unknown) else value for name, value in values.items()},
            "of_floor": self.of_floor(group),
            "of_stock": self.of_stock(group),
            "latency_of_stock": self.latency_of_stock(group.mode),
            "outputs_equal_stock": self.same_outputs(group),
            "iterations": len(group.rounds),
            "failures": list(group.failures),
            "unknown": {name: value.reason for name, value in values.items() if isinstance(value, Unknown)},
        }
