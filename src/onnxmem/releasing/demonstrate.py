"""Does ONNX Runtime give memory back at all? Shown in separate processes: step by step, and by ending one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxmem.measurement import probes
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.system import System, read_system
from onnxmem.releasing.explanation import explain_release
from onnxmem.releasing.ladder import Ladder, climb
from onnxmem.releasing.release import difference
from onnxmem.session.isolated.session import IsolatedSession
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown


@dataclass(frozen=True)
class Isolation:
    """An isolated session's life, seen from outside: this process, its child, and the whole system."""

    here_before: Reading
    here_after: Reading
    child: Reading
    """The child after the runs; after `close()` there is none."""
    system_before: System
    system_full: System
    system_after: System

    @property
    def returned_fraction(self) -> float | Unknown:
        """The part of the child's anonymous memory that is back: all, but for what this process itself has kept."""
        child, kept = self.child.anon, difference(self.here_after.anon, self.here_before.anon)
        if isinstance(child, Unknown) or isinstance(kept, Unknown):
            return child if isinstance(child, Unknown) else Unknown("it cannot be read")
        return 1.0 - max(kept, 0) / child if child else Unknown("the child took no memory")


@dataclass(frozen=True)
class Demonstration:
    """The same model, let go of in two ways."""

    ladder: Ladder
    """In one process, step by step."""
    isolation: Isolation
    """In a child that ends."""

    @property
    def verdict(self) -> str:
        """Both ways in one sentence."""
        inside, outside = self.ladder.released_fraction, self.isolation.returned_fraction
        return (
            f"In one process {_part(inside)} of the model's memory came back, with a session in a process of its own "
            f"{_part(outside)}."
        )

    def __str__(self) -> str:
        child = self.isolation.child
        system = difference(self.isolation.system_full.anon, self.isolation.system_after.anon)
        return "\n".join(
            (
                *explain_release(self.ladder),
                f"An isolated session took {_size(child.rss)} in a process of its own and nothing after close(); "
                f"all processes of the system together then had {_size(system)} of anonymous memory less.",
                self.verdict,
            )
        )


def demonstrate_actual_onnx_memory_release(
    model: str | Path,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    runs: int = 3,
    verbose: bool = False,
) -> Demonstration:
    """Load, run and release a model in processes of their own, and say what came back. `verbose` prints it, too."""
    scenario = Scenario(Path(model), shapes=shapes or {}, dims=dims or {}, runs=runs)
    result = Demonstration(climb(scenario), _isolated(scenario))
    if verbose:
        print(result)  # noqa: T201
    return result


def _isolated(scenario: Scenario) -> Isolation:
    feeds = dict(make_feeds(read_signature(scenario.model), scenario).arrays)
    here_before, system_before = probes.read(), read_system()
    with IsolatedSession(scenario.model, providers=["CPUExecutionProvider"]) as session:
        for _ in range(scenario.runs):
            session.run(None, feeds)
        child, system_full = probes.read(session.pid), read_system()
    return Isolation(here_before, probes.read(), child, system_before, system_full, read_system())


def _part(fraction: float | Unknown) -> str:
    return "an unknown part" if isinstance(fraction, Unknown) else f"{fraction:.1%}"


def _size(value: Bytes) -> str:
    return "an unknown amount" if isinstance(value, Unknown) else format_bytes(value)
