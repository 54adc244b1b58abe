"""What is the peak of a measurement made of? Told from its document, so that a saved one answers as a fresh one does.

The parts, in the order of PARTS, add up to the peak RSS of the process; the heap is what no other part explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxmem.documents import Document

PARTS = ("libraries", "weights", "packed copies", "arena", "outputs", "heap")
_LIBRARIES, _MODEL = "libraries and other files", "model files"
# After these a model holds nothing that a run needs: how high they reach says nothing about it.
_BEFORE = ("start", "import", "inputs", "load")


def parts_of(document: Document) -> dict[str, int | None] | None:
    """The parts of the highest peak in bytes; None where the system does not tell what memory is.

    A part that is not known is None, and the heap holds it.
    """
    phases = [p for p in document["phases"] if _number(p, "peak_rss_bytes") is not None and p.get("made_of")]
    if not phases:
        return None
    top = max(phases, key=lambda phase: phase["peak_rss_bytes"])
    kinds = {kind["kind"]: kind["rss_bytes"] for kind in top["made_of"]}
    runtime, peak = document.get("runtime") or {}, int(top["peak_rss_bytes"])
    parts: dict[str, Any] = {"libraries": kinds.get(_LIBRARIES, 0)}
    parts["weights"] = kinds.get(_MODEL, 0) or _number(runtime, "weights_bytes")
    parts["packed copies"] = _number(runtime, "packed_bytes")
    outputs = int(_number(document, "output_bytes") or 0)
    parts["arena"] = max(_taken_by_runs(document, top) - outputs, 0)
    if outputs and top["name"] not in _BEFORE:
        parts["outputs"] = outputs
    # ONNX Runtime's figures come from another run: together they may be more than there was.
    room = peak
    for part in ("libraries", "arena", "outputs", "weights", "packed copies"):
        if parts.get(part) is not None:
            parts[part] = min(int(parts[part]), room)
            room -= parts[part]
    return {**parts, "heap": room}


def _taken_by_runs(document: Document, top: Mapping[str, Any]) -> int:
    """What the process had at its peak and not when the model was loaded, without pages of files."""
    loaded = next((phase for phase in document["phases"] if phase["name"] == "load"), None)
    if loaded is None or top["name"] in _BEFORE or _number(loaded, "rss_bytes") is None or not loaded.get("made_of"):
        return 0
    files = sum(
        sign * kind["rss_bytes"]
        for phase, sign in ((top, 1), (loaded, -1))
        for kind in phase["made_of"]
        if kind["kind"] in (_LIBRARIES, _MODEL)
    )
    return max(int(top["peak_rss_bytes"] - loaded["rss_bytes"] - files), 0)


def _number(document: Document, key: str) -> int | None:
    value = document.get(key)
    return None if value is None else int(value)
