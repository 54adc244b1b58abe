"""The result of measuring: immutable, and the same as versioned JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.documents import Record, inlined, stored
from onnxmem.errors import UsageError
from onnxmem.measurement.feeds import Fed
from onnxmem.measurement.nodes import RuntimeMemory
from onnxmem.measurement.probes import Sample
from onnxmem.measurement.protocol import LOAD, RUNS, Planned
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.trial import Phase, Trial
from onnxmem.measurement.verdict import Verdict
from onnxmem.result import Result
from onnxmem.unknown import Bytes, Unknown, known

_POINTS = 1000


@dataclass(frozen=True, kw_only=True)
class DeviceMemory(Record):
    """What a process took on a GPU; its phases have the same, one by one."""

    name: str
    method: str
    """How it was measured."""
    peak: Bytes = stored("peak_bytes")
    load_growth: Bytes = stored("load_growth_bytes")
    """The most while loading − what there was before."""
    run_growth: Bytes = stored("run_growth_bytes")
    """The most in all runs − what there was before the first."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Result):
    """What a model took, phase by phase, in fresh processes."""

    SCHEMA = "onnxmem.measure/1"

    scenario: Scenario
    file_bytes: int
    fed: Fed = inlined()
    trials: tuple[Trial, ...]
    """Without their timelines."""
    timeline: tuple[Sample, ...]
    """Of the trial that is shown, thinned."""
    runtime: RuntimeMemory

    def __post_init__(self) -> None:
        if not self.trials:
            raise UsageError("a measurement has at least one trial")

    @property
    def trial(self) -> Trial:
        """The one that is shown: the first that did not end well, or else the one with the median peak."""
        return shown(self.trials)

    @property
    def verdict(self) -> Verdict:
        """How it ended."""
        return self.trial.verdict

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that were reached, in order."""
        return self.trial.phases

    @property
    def load_growth(self) -> Bytes:
        """Peak RSS while loading − RSS before it."""
        return self.trial.growth(LOAD)

    @property
    def run_growth(self) -> Bytes:
        """Peak RSS in the first and all steady runs − RSS before the first."""
        return self.trial.growth(*RUNS)

    @property
    def device(self) -> DeviceMemory | None:
        """What it took on the device that it ran on; None if that was the CPU."""
        trial = self.trial
        if trial.device is None:
            return None
        return DeviceMemory(
            name=trial.device,
            method=trial.device_method or "",
            peak=trial.device_highest,
            load_growth=trial.device_growth(LOAD),
            run_growth=trial.device_growth(*RUNS),
        )

    @property
    def latency(self) -> float | None:
        """The median of all steady runs, in seconds."""
        return statistics.median(self.latencies) if self.latencies else None

    @property
    def latencies(self) -> tuple[float, ...]:
        """All steady runs of all repetitions, in seconds."""
        return tuple(seconds for trial in self.trials for seconds in trial.latencies)

    @property
    def outputs_sha256(self) -> str | Unknown:
        """A hash of the outputs: equal for two measurements that computed the same, bit for bit."""
        hashes = {output for trial in self.trials for output in trial.outputs}
        if not hashes:
            return Unknown("no run was completed")
        return hashes.pop() if len(hashes) == 1 else Unknown("the outputs differ from run to run")

    @property
    def output_bytes(self) -> Bytes:
        """What the outputs of one run take together: they are the caller's for as long as it keeps them."""
        return self.trial.output_bytes

    @property
    def planned(self) -> Planned | None:
        """What the plan took, and how runs were served; None if it was not asked for or no run was completed."""
        return self.trial.planned

    def __repr__(self) -> str:
        return f"<Measurement of {self.scenario.model.name}, mode {self.scenario.mode}: {self.verdict}>"

    def spread(self, name: str, quantity: str) -> tuple[int, int] | None:
        """The smallest and largest `rss` or `peak` of a phase over all repetitions; None for a single one."""
        phases = [phase for trial in self.trials if (phase := trial.phase(name))]
        sizes = known(phase.peak.rss if quantity == "peak" else phase.reading.rss for phase in phases)
        return (min(sizes), max(sizes)) if len(sizes) > 1 else None

    def derived(self) -> Mapping[str, Any]:
        """What readers look for first: the trial that is shown, and what follows from all of them."""
        trial = self.trial
        return {
            "model": self.scenario.model.name,
            "outputs": trial.output_shapes,
            "output_bytes": self.output_bytes,
            "verdict": trial.verdict,
            "phases": [{**phase.document(), "spread": self._spreads(phase.name)} for phase in trial.phases],
            "load_growth_bytes": self.load_growth,
            "run_growth_bytes": self.run_growth,
            "device": self.device,
            "latency_seconds": self.latency,
            "latency_spread_seconds": _latency_spread(self.latencies),
            "first_run_seconds": trial.first_run,
            "latencies_seconds": self.latencies,
            "outputs_sha256": self.outputs_sha256,
            "planned": self.planned,
            "repeats": [
                {
                    "verdict": each.verdict.kind,
                    "load_growth_bytes": each.growth(LOAD),
                    "run_growth_bytes": each.growth(*RUNS),
                    "latency_seconds": each.latency,
                }
                for each in self.trials
            ],
            "memory_limit": {"bytes": self.scenario.memory_limit, "enforced_by": trial.limited_by},
            "overhead": trial.overhead,
        }

    def _spreads(self, name: str) -> dict[str, tuple[int, int]]:
        spreads = {"rss_bytes": self.spread(name, "rss"), "peak_rss_bytes": self.spread(name, "peak")}
        return {key: spread for key, spread in spreads.items() if spread}


def shown(trials: Sequence[Trial]) -> Trial:
    """The first that did not end well, or else the one with the median peak."""
    failed = next((trial for trial in trials if not trial.verdict.ok), None)
    return failed or sorted(trials, key=lambda trial: max(known([trial.highest]), default=0))[len(trials) // 2]


def thinned(samples: Sequence[Sample], points: int = _POINTS) -> tuple[Sample, ...]:
    """At most so many samples, of every stretch the highest: a picture or a file needs no more, and no peak is lost."""
    if len(samples) <= points:
        return tuple(samples)
    width = -(-len(samples) // points)
    return tuple(max(samples[k : k + width], key=lambda s: s.rss) for k in range(0, len(samples), width))


def _latency_spread(latencies: Sequence[float]) -> dict[str, float] | None:
    if not latencies:
        return None
    quartiles = statistics.quantiles(latencies, n=4, method="inclusive") if len(latencies) > 1 else [latencies[0]] * 3
    low, high = quartiles[0], quartiles[2]
    return {"min": min(latencies), "quartile_1": low, "quartile_3": high, "max": max(latencies)}
