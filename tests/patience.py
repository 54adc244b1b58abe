"""How long something may take on a machine that does other things, too."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """So many seconds where a processor is free; where several processes wait for each of them, as many times more."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
