"""What cannot be known, and why: never 0, never a guess."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unknown:
    """A quantity that cannot be known here, and the reason."""

    reason: str
