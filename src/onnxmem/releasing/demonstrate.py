"""Does ONNX Runtime give memory back at all? Shown in separate processes: step by step, and by ending one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

from onnxmem.documents import Record
from onnxmem.measurement import probes
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.probes import Reading, System, read_system
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.releasing.ladder import Ladder, explain_release, release_ladder
from onnxmem.releasing.release import amount
from onnxmem.result import Result
from onnxmem.session.isolated.session import IsolatedSession
from onnxmem.units import format_percent
from onnxmem.unknown import Unknown, combine, subtract


@dataclass(frozen=True, kw_only=True)
class Isolation(Record):
    """An isolated session from its start to its end, seen from outside: this process, its child, the whole system."""

    here_before: Reading
    here_after: Reading
    child: Reading
    """The child after the runs; after `close()` there is none."""
    system_before: System
    system_full: System
    system_after: System
    """System-wide: other programs are in it, too."""

    @property
    def returned_fraction(self) -> float | Unknown:
        """The part of the child's anonymous memory that is back: all, but for what this process itself has kept."""
        kept = subtract(self.here_after.anon, self.here_before.anon)
        missing = Unknown("the child took no memory")
        return combine(lambda child, more: 1.0 - max(more, 0) / child if child else missing, self.child.anon, kept)

    def derived(self) -> Mapping[str, Any]:
        """The part that is back."""
        return {"returned_fraction": self.returned_fraction}


@dataclass(frozen=True, kw_only=True)
class Demonstration(Result):
    """The same model, released in two ways."""

    SCHEMA: ClassVar[str] = "onnxmem.demonstrate/1"

    ladder: Ladder
    """In one process, step by step."""
    isolation: Isolation
    """In a child that ends."""

    @property
    def verdict(self) -> str:
        """Both ways in one sentence."""
        inside = f"{_part(self.ladder.released_fraction)} of the {amount(self.ladder.brought)} that the model brought"
        outside = f"{_part(self.isolation.returned_fraction)} of the {amount(self.isolation.child.anon)} of the child"
        return f"In one process {inside} came back; with a session in a process of its own, {outside}."

    def derived(self) -> Mapping[str, Any]:
        """The verdict."""
        return {"model": self.ladder.model, "verdict": self.verdict}

    def __repr__(self) -> str:
        inside, outside = _part(self.ladder.released_fraction), _part(self.isolation.returned_fraction)
        return f"<Demonstration of {self.ladder.model}: {inside} back in one process, {outside} by ending one>"

    def __str__(self) -> str:
        seen = self.isolation
        full, after = amount(seen.system_full.anon), amount(seen.system_after.anon)
        return "\n".join(
            (
                *explain_release(self.ladder),
                f"An isolated session took {amount(seen.child.rss)} in a process of its own, nothing after close(); "
                f"anonymous memory system-wide, other programs included, went from {full} to {after}.",
                self.verdict,
            )
        )


def demonstrate_actual_onnx_memory_release(
    model: str | PathLike[str],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    runs: int = 3,
    verbose: bool = False,
) -> Demonstration:
    """Load, run and release a model in processes of their own, and say what came back. `verbose` prints it, too."""
    ladder = release_ladder(model, shapes=shapes, dims=dims, runs=runs)
    result = Demonstration(ladder=ladder, isolation=_isolated(ladder.scenario))
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
    return Isolation(
        here_before=here_before,
        here_after=probes.read(),
        child=child,
        system_before=system_before,
        system_full=system_full,
        system_after=read_system(),
    )


def _part(fraction: float | Unknown) -> str:
    return "an unknown part" if isinstance(fraction, Unknown) else format_percent(fraction)
