"""Where did this model's memory go when it was released? A ladder in a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxmem.releasing.rungs import CLOSE, COLLECT, DROP, SHRINK, TRIM, UNMAP
from onnxmem.units import format_bytes, format_count, format_percent
from onnxmem.unknown import Bytes, Unknown, subtract

if TYPE_CHECKING:
    from onnxmem.releasing.ladder import Ladder

# Less than this part of what the model brought is not worth a word.
_NOTHING = 0.005

_HOW = {
    DROP: "dropping its outputs",
    COLLECT: "collecting garbage",
    SHRINK: "shrinking the arena (the session still there)",
    CLOSE: "closing the session",
    TRIM: "trimming the allocator (the C library keeps what a session frees)",
    UNMAP: "dropping maps of its weights",
}
_ALONE = {DROP: "dropping references", COLLECT: "collecting garbage", SHRINK: "shrinking the arena"}
_PLACES = {
    "model files": "in the model's files, still mapped",
    "heap": "in the heap (which the next model uses again)",
    "arenas": "in anonymous mappings",
    "stacks": "in stacks of threads",
    "shared memory": "in shared memory",
}


def explain_release(ladder: Ladder) -> tuple[str, ...]:
    """What was freed by what, what remains and where, and what to do: sentences about this model."""
    brought, returned = ladder.brought, ladder.returned
    if isinstance(brought, Unknown) or isinstance(returned, Unknown):
        reason = brought.reason if isinstance(brought, Unknown) else getattr(returned, "reason", "")
        return (f"What {ladder.model} took cannot be told here: {reason}.",)
    if brought <= 0:
        return (f"{ladder.model} took no memory that could be measured.",)
    answer = (
        f"{format_percent(returned / brought)} of the {format_bytes(brought)} that {ladder.model} brought came back"
    )
    remains = f"; {format_bytes(brought - returned)} remain{_where(ladder)}" if returned < brought else ""
    return (
        f"{answer} without ending the process{remains}.",
        _freed(ladder, brought),
        *_remarks(ladder),
        *_libraries(ladder),
        _exit(ladder),
    )


def _freed(ladder: Ladder, brought: int) -> str:
    some, none = [], []
    for step in ladder.steps[:-1]:
        freed = ladder.freed_by(step)
        if isinstance(freed, int) and freed >= brought * _NOTHING:
            some.append(f"{_HOW[step.name]} freed {format_bytes(freed)}")
        elif step.name in _ALONE:
            none.append(_ALONE[step.name])
    sentences = [_listed(some)] if some else ["no step freed anything"]
    if some and none:
        sentences.append(f"{_listed(none)} freed nothing")
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _remarks(ladder: Ladder) -> list[str]:
    remarks = []
    closed = next(step for step in ladder.steps if step.name == CLOSE)
    before, after = ladder.full.model_mappings, closed.model_mappings
    if isinstance(before, int) and isinstance(after, int) and before > after:
        maps = format_count(before, "mapping")
        remarks.append(f"Closing the session removed its {maps} of the model's files: no process had to end for that.")
    elif before == 0:
        remarks.append("None of its files was mapped while it was in use: its weights were in anonymous memory.")
    if ladder.released.held_by:
        holders = ", ".join(ladder.released.held_by)
        remarks.append(f"The session could not be destroyed: it is held by {holders}.")
    if isinstance(ladder.released.trim, str):
        remarks.append(f"The allocator could not be trimmed: {ladder.released.trim}.")
    if ladder.released.shrinkage:
        remarks.append("The arena could not be shrunk: ONNX Runtime refused, as it does for a session without one.")
    return remarks


def _where(ladder: Ladder) -> str:
    kind = next((kind for kind in ladder.left_by_kind if kind in _PLACES), None)
    return f", mostly {_PLACES[kind]}" if kind else ""


def _libraries(ladder: Ladder) -> list[str]:
    """What RSS counts beside: pages of libraries, which no release brings back."""
    pages: Bytes = subtract(ladder.left, ladder.remaining)
    if isinstance(pages, Unknown) or pages < 2**18:
        return []
    return [f"RSS also counts {format_bytes(pages)} of library pages that were touched: a cache of the system's."]


def _exit(ladder: Ladder) -> str:
    rss = ladder.last.reading.rss
    of = "" if isinstance(rss, Unknown) else f": {format_bytes(rss)}, Python and ONNX Runtime included"
    return f"Ending the process frees everything{of}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
