"""What is wanted of a package that is being made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxmem.deadline import Deadline
from onnxmem.measurement.feeds import Feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Signature
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import Mode
from onnxmem.session.packed_graphs import TileSettings


@dataclass(frozen=True, kw_only=True)
class PackRequest:
    """A package that is wanted."""

    source: Path
    folder: Path
    mode: Mode
    scenario: Scenario
    signature: Signature
    feeds: Feeds
    order: str | None
    plans: tuple[tuple[Feeds, ...], ...]
    """What is recorded for each plan."""
    tile: TileSettings | None
    """Whether graphs are sought that need less, and how far that may go."""
    deadline: Deadline
    on_progress: OnProgress

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done now."""
        self.on_progress(Progress(stage, done, total, "bytes"))
