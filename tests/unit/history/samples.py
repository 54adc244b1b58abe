"""Results of a history, small."""

from __future__ import annotations

from typing import Any

from onnxmem.history.entry import Entry, Key
from onnxmem.history.figures import Figures
from onnxmem.unknown import Unknown

MIB = 2**20


def key(**changes: Any) -> Key:
    """Of a model that is run stock."""
    given: dict[str, Any] = {"model": "net.onnx", "mode": "stock", "shapes": {"x": (1, 3, 8, 8)}, **changes}
    return Key(**given)


def figures(peak: int | None = 100 * MIB) -> Figures:
    """With this peak."""
    unknown = Unknown("it died")
    size = unknown if peak is None else peak
    return Figures(peak=size, load_peak=60 * MIB, loaded=50 * MIB, run_growth=unknown, steady=90 * MIB, latency=0.012)


def entry(peak: int | None = 100 * MIB, day: int = 1, **changes: Any) -> Entry:
    """A result of a day in November."""
    given: dict[str, Any] = {
        "key": key(),
        "figures": figures(peak),
        "date": f"2026-11-{day:02}T10:00:00+00:00",
        "sha256": "ab" * 32,
        "onnxmem": "0.1.0",
        "onnxruntime": "1.24.0",
        "machine": "a processor, 2 cores",
        "commit": "c" * 40,
        **changes,
    }
    return Entry(**given)
