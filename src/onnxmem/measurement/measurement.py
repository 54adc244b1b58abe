"""The result of measuring: immutable, and the same as versioned JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxmem.environment import Environment
from onnxmem.measurement.feeds import Fed
from onnxmem.measurement.nodes import NodeMemory, RuntimeMemory
from onnxmem.measurement.probes import Sample
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.smaps import Kind
from onnxmem.measurement.trial import Phase, Trial
from onnxmem.measurement.verdict import Verdict
from onnxmem.result import Shown
from onnxmem.unknown import Bytes, Unknown

SCHEMA = "onnxmem.measure/1"
_POINTS = 1000


@dataclass(frozen=True)
class Measurement(Shown):
    """What a model took, phase by phase, in fresh processes."""

    scenario: Scenario
    file_bytes: int
    fed: Fed
    trials: tuple[Trial, ...]
    runtime: RuntimeMemory
    environment: Environment

    @property
    def trial(self) -> Trial:
        """The one that is shown: the first that did not end well, or else the one with the median peak."""
        for trial in self.trials:
            if not trial.verdict.ok:
                return trial
        return sorted(self.trials, key=_highest)[len(self.trials) // 2]

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
        return growth(self.trial, "load")

    @property
    def run_growth(self) -> Bytes:
        """Peak RSS in the first and all steady runs − RSS before the first."""
        return growth(self.trial, "first run", "steady runs")

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
    def planned(self) -> Mapping[str, Any] | None:
        """What the plan took, and how runs were served; None if it was not asked for or no run was completed."""
        found: Mapping[str, Any] | None = self.trial.facts.get("planned")
        return found

    def spread(self, name: str, quantity: str) -> tuple[int, int] | None:
        """The smallest and largest `rss` or `peak` of a phase over all repetitions; None for a single one."""
        found = [phase for trial in self.trials if (phase := trial.phase(name))]
        values = [phase.peak.rss if quantity == "peak" else phase.reading.rss for phase in found]
        numbers = [value for value in values if isinstance(value, int)]
        return (min(numbers), max(numbers)) if len(numbers) > 1 else None

    def document(self) -> dict[str, Any]:
        """`onnxmem.measure/1`: bytes as integers, seconds as floats, null with a reason where nothing is known."""
        trial = self.trial
        unknown: dict[str, str] = {}

        def known(name: str, value: Any) -> Any:
            if isinstance(value, Unknown):
                unknown[name] = value.reason
                return None
            return value

        return {
            "schema": SCHEMA,
            "model": self.scenario.model.name,
            "file_bytes": self.file_bytes,
            "scenario": self.scenario.document(),
            "inputs": {
                name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in self.fed.inputs.items()
            },
            "generated": dict(self.fed.generated),
            "dims": {"given": dict(self.fed.dims.given), "assumed": dict(self.fed.dims.assumed)},
            "outputs": {name: list(shape) for name, shape in trial.output_shapes.items()},
            "verdict": {"kind": trial.verdict.kind, "phase": trial.verdict.phase, "message": trial.verdict.message},
            "phases": [self._phase(phase) for phase in trial.phases],
            "load_growth_bytes": known("load_growth_bytes", self.load_growth),
            "run_growth_bytes": known("run_growth_bytes", self.run_growth),
            "latency_seconds": self.latency,
            "latency_spread_seconds": _latency_spread(self.latencies),
            "first_run_seconds": trial.first_run,
            "latencies_seconds": list(self.latencies),
            "outputs_sha256": known("outputs_sha256", self.outputs_sha256),
            "planned": self.planned,
            "runtime": _runtime(self.runtime),
            "repeats": [
                {
                    "verdict": each.verdict.kind,
                    "load_growth_bytes": known(f"repeats[{number}].load_growth_bytes", growth(each, "load")),
                    "run_growth_bytes": known(
                        f"repeats[{number}].run_growth_bytes", growth(each, "first run", "steady runs")
                    ),
                    "latency_seconds": statistics.median(each.latencies) if each.latencies else None,
                }
                for number, each in enumerate(self.trials)
            ],
            "memory_limit": {"bytes": self.scenario.memory_limit, "enforced_by": trial.limited_by},
            "overhead": {
                "child_bytes": known("overhead.child_bytes", trial.overhead.child_bytes),
                "readings": trial.overhead.readings,
                "reading_seconds": trial.overhead.reading_seconds,
                "samples": trial.overhead.samples,
                "sampler_seconds": trial.overhead.sampler_seconds,
            },
            "environment": self.environment.document(),
            "timeline": [
                {"seconds": round(s.at - trial.timeline[0].at, 4), "rss_bytes": s.rss, "file_bytes": s.file}
                for s in thinned(trial.timeline)
            ],
            "unknown": unknown,
        }

    def _phase(self, phase: Phase) -> dict[str, Any]:
        began = self.trial.timeline[0].at if self.trial.timeline else phase.began
        document = phase.reading.document()
        del document["at"], document["peak_rss_bytes"]
        unknown = {name: why for name, why in document.pop("unknown").items() if name != "peak_rss_bytes"}
        figures = {
            "peak_rss_bytes": phase.peak.rss,
            "growth_bytes": phase.growth,
            "cgroup_peak_bytes": phase.cgroup_peak,
        }
        unknown |= {name: value.reason for name, value in figures.items() if isinstance(value, Unknown)}
        spreads = {f"{q}_bytes": self.spread(phase.name, k) for q, k in (("rss", "rss"), ("peak_rss", "peak"))}
        return {
            "name": phase.name,
            "completed": phase.completed,
            **document,
            **{name: value if isinstance(value, int) else None for name, value in figures.items()},
            "peak_exact": phase.peak.exact,
            "peak_method": phase.peak.method,
            "seconds": phase.seconds,
            "began_seconds": round(phase.began - began, 4),
            "made_of": None if isinstance(phase.made_of, Unknown) else [_kind(kind) for kind in phase.made_of],
            "spread": {name: list(spread) for name, spread in spreads.items() if spread},
            "unknown": unknown,
        }


def thinned(samples: Sequence[Sample], points: int = _POINTS) -> list[Sample]:
    """At most so many samples, of every stretch the highest: a picture or a file needs no more, and no peak is lost."""
    if len(samples) <= points:
        return list(samples)
    width = -(-len(samples) // points)
    return [max(samples[k : k + width], key=lambda s: s.rss) for k in range(0, len(samples), width)]


def _highest(trial: Trial) -> int:
    return max((phase.peak.rss for phase in trial.phases if isinstance(phase.peak.rss, int)), default=0)


def growth(trial: Trial, first: str, *more: str) -> Bytes:
    """Peak RSS in these phases − RSS before the first of them."""
    start = trial.phase(first)
    if start is None:
        return Unknown(f"the phase '{first}' was not reached")
    if isinstance(start.before, Unknown):
        return start.before
    phases = [start, *(phase for name in more if (phase := trial.phase(name)))]
    if not trial.verdict.ok and (broken := next((phase for phase in phases if not phase.completed), None)):
        # What it had taken until then is in the phases; as a result it would look like little.
        return Unknown(f"the phase '{broken.name}' was not completed")
    peaks = [phase.peak.rss for phase in phases if isinstance(phase.peak.rss, int)]
    return max(0, max(peaks) - start.before) if peaks else Unknown("no peak is known")


def _latency_spread(latencies: Sequence[float]) -> dict[str, float] | None:
    if not latencies:
        return None
    quartiles = statistics.quantiles(latencies, n=4, method="inclusive") if len(latencies) > 1 else [latencies[0]] * 3
    low, high = quartiles[0], quartiles[2]
    return {"min": min(latencies), "quartile_1": low, "quartile_3": high, "max": max(latencies)}


def _kind(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "mappings": kind.mappings,
        "virtual_bytes": kind.virtual,
        "rss_bytes": kind.rss,
        "pss_bytes": kind.pss,
        "anon_bytes": kind.anon,
    }


def _runtime(runtime: RuntimeMemory) -> dict[str, Any]:
    figures = {
        "weights_bytes": runtime.weights,
        "packed_bytes": runtime.packed,
        "arena_held_bytes": runtime.arena_held,
        "arena_peak_bytes": runtime.arena_peak,
    }
    unknown = {name: value.reason for name, value in figures.items() if isinstance(value, Unknown)}
    nodes = runtime.nodes
    if isinstance(nodes, Unknown):
        unknown["nodes"] = nodes.reason
    return {
        **{name: None if isinstance(value, Unknown) else value for name, value in figures.items()},
        "nodes": None if isinstance(nodes, Unknown) else [_node(node) for node in nodes],
        "blamed": [node.name for node in runtime.blamed],
        "unknown": unknown,
    }


def _node(node: NodeMemory) -> dict[str, Any]:
    figures = {"dynamic_bytes": node.dynamic, "temporary_bytes": node.temporary, "in_use_bytes": node.in_use}
    return {
        "name": node.name,
        "op": node.op,
        "times": node.times,
        **{name: None if isinstance(value, Unknown) else value for name, value in figures.items()},
        "seconds": node.seconds,
        "unknown": {name: value.reason for name, value in figures.items() if isinstance(value, Unknown)},
    }
