"""A ladder of releasing as a JSON document."""

from __future__ import annotations

from typing import Any

from onnxmem.releasing.explanation import explain_release
from onnxmem.releasing.ladder import Ladder, Step
from onnxmem.unknown import Unknown

SCHEMA = "onnxmem.release/1"


def release_document(ladder: Ladder) -> dict[str, Any]:
    """`onnxmem.release/1`: bytes as integers, null with a reason where nothing is known."""
    unknown: dict[str, str] = {}

    def known(name: str, value: Any) -> Any:
        if isinstance(value, Unknown):
            unknown[name] = value.reason
            return None
        return value

    feeds = ladder.feeds
    return {
        "schema": SCHEMA,
        "model": ladder.scenario.model.name,
        "file_bytes": ladder.file_bytes,
        "scenario": ladder.scenario.document(),
        "inputs": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in feeds.arrays.items()},
        "dims": {"given": dict(feeds.given), "assumed": dict(feeds.assumed)},
        "before": _step(ladder.before),
        "loaded": _step(ladder.loaded),
        "full": _step(ladder.full),
        "steps": [_step(step) for step in ladder.steps],
        "growth_bytes": known("growth_bytes", ladder.growth),
        "growth_anon_bytes": known("growth_anon_bytes", ladder.growth_anon),
        "left_bytes": known("left_bytes", ladder.left),
        "left_anon_bytes": known("left_anon_bytes", ladder.left_anon),
        "left_by_kind": ladder.left_by_kind,
        "released_fraction": known("released_fraction", ladder.released_fraction),
        "released_fraction_anon": known("released_fraction_anon", ladder.released_fraction_anon),
        "released_fraction_rss": known("released_fraction_rss", ladder.released_fraction_rss),
        "has_clear_cache": ladder.released.clear_cache,
        "explanation": list(explain_release(ladder)),
        "environment": ladder.environment.document(),
        "unknown": unknown,
    }


def _step(step: Step) -> dict[str, Any]:
    document = step.reading.document()
    unknown = document.pop("unknown", {})
    del document["at_seconds"], document["peak_rss_bytes"]
    figures = {
        "freed_bytes": step.freed,
        "freed_anon_bytes": step.freed_anon,
        "freed_file_bytes": step.freed_file,
        "model_mappings": step.model_mappings,
        "model_mapped_bytes": step.model_mapped,
    }
    unknown |= {name: value.reason for name, value in figures.items() if isinstance(value, Unknown)}
    unknown.pop("peak_rss_bytes", None)
    return {
        "name": step.name,
        **document,
        **{name: None if isinstance(value, Unknown) else value for name, value in figures.items()},
        "seconds": step.seconds,
        "unknown": unknown,
    }
