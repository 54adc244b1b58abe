"""What does a session take to run, and was it planned? `session.memory`, also where the answer is no and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxmem.session.planned.plan_book import Deviation


@dataclass(frozen=True)
class ShapeMemory:
    """One combination of input shapes: what its plan takes, and how it went."""

    inputs: dict[str, tuple[int, ...]]
    arena_bytes: int
    bound_bytes: int
    optimal: bool
    replayed: int
    deviated: int
    reason: str
    """Why it is not, or only partly, planned; empty if it is."""
    last_deviation: Deviation | None


@dataclass(frozen=True)
class SessionMemory:
    """What a planned session takes to run, and how its runs were served; nothing but a reason, if it is not planned."""

    reason: str
    """Why nothing is planned at all; empty if it is."""
    arena_bytes: int = 0
    """The memory of its arena: all regions, for all sessions that share it."""
    plan_bytes: int = 0
    """What the largest of its plans takes."""
    bound_bytes: int = 0
    """The proven least for the largest of its plans."""
    regions: int = 0
    runs_recorded: int = 0
    runs_replayed: int = 0
    runs_deviated: int = 0
    runs_from_heap: int = 0
    waits: int = 0
    """How often a run had to wait for a region."""
    overruns: int = 0
    """Writes behind the end of a buffer; only a session with debug=True looks."""
    shapes: tuple[ShapeMemory, ...] = ()
