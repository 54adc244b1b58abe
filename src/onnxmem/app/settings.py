"""What the dashboard was started with: the same for every tab that looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `onnxmem app` was told."""

    models: tuple[Path, ...] = ()
    """Models and packages, in the order in which they are offered."""
    results: tuple[Path, ...] = ()
    """Files of results to show under History."""
    history: Path | None = None
    """What `check --history` writes."""
    upload_limit: int = 128 * 2**20
    """No uploaded file may be larger, in bytes."""


# The page is a script that the server runs anew for every tab and click: it finds the settings here.
_current = Settings()


def configure(settings: Settings) -> None:
    """From now on pages show this."""
    global _current  # noqa: PLW0603
    _current = settings


def current() -> Settings:
    """What pages show."""
    return _current
