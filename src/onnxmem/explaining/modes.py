"""Which mode to advise to somebody who runs stock."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained

_PLANNER_PAYS = 2 << 20
"""Planning takes about half a MiB itself, and its first run is slower."""


def leaner_mode(explained: Explained) -> str:
    """Planned where runs waste more than planning costs, otherwise tuned."""
    wasted = sum(map(explained.part, ("pattern", "reuse", "arena slack")))
    return "planned" if wasted >= _PLANNER_PAYS else "tuned"
