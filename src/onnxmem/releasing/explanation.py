"""Where did this model's memory go when it was let go of? A ladder in a few sentences."""

from __future__ import annotations

from onnxmem.releasing.ladder import Ladder, Step
from onnxmem.releasing.rungs import CLOSE, COLLECT, DROP, SHRINK, TRIM, UNMAP
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown

# Less than this part of what the model brought is not worth a word.
_NOTHING = 0.005

_HOW = {
    DROP: "when its outputs were dropped",
    COLLECT: "when garbage was collected",
    SHRINK: "when a run shrank the arena (the session still there)",
    CLOSE: "when the session was closed",
    TRIM: "only when the allocator was trimmed (the C library keeps what a session frees)",
    UNMAP: "when maps of the weights were dropped",
}
_ALONE = {DROP: "dropping references", COLLECT: "garbage collection", SHRINK: "shrinking the arena"}
_PLACES = {
    "model files": "the model's files, still mapped",
    "libraries and other files": "touched pages of libraries (a cache of the system's)",
    "heap": "the heap (which the next model uses again)",
    "arenas": "anonymous mappings",
    "stacks": "stacks of threads",
    "shared memory": "shared memory",
    "other": "elsewhere",
}


def explain_release(ladder: Ladder) -> tuple[str, ...]:
    """What was freed by what, what is left and where, and what to do: sentences about this model."""
    growth = ladder.growth
    if isinstance(growth, Unknown):
        return (f"What the model took cannot be told here: {growth.reason}.",)
    name = ladder.scenario.model.name
    if growth <= 0:
        return (f"{name} took no memory that could be measured.",)
    return (_freed(ladder, growth, name), *_remarks(ladder), _left(ladder))


def _freed(ladder: Ladder, growth: int, name: str) -> str:
    told, silent = [], []
    for step in ladder.steps[:-1]:
        if isinstance(step.freed, int) and step.freed >= growth * _NOTHING:
            told.append(f"{format_bytes(step.freed)} {_HOW[step.name]}")
        elif step.name in _ALONE:
            silent.append(_ALONE[step.name])
    nothing = f" {_listed(silent).capitalize()} gave back nothing." if silent else ""
    back = f"these came back: {_listed(told)}" if told else "nothing came back"
    return f"Of the {format_bytes(growth)} that {name} brought, {back}.{nothing}"


def _remarks(ladder: Ladder) -> list[str]:
    said = []
    steps = {step.name: step for step in (ladder.full, *ladder.steps)}
    mapped, closed = ladder.full.model_mappings, steps[CLOSE].model_mappings
    if isinstance(mapped, int) and isinstance(closed, int) and mapped > closed:
        what = f"{mapped} mapping{'s' if mapped > 1 else ''} of its files"
        said.append(f"Closing the session removed its {what}: no process had to end for that.")
    elif mapped == 0:
        said.append("None of its files was mapped while it was in use: its weights were in anonymous memory.")
    released = ladder.released
    if released.held_by:
        said.append(f"The session could not be destroyed: it is held by {', '.join(released.held_by)}.")
    if isinstance(released.trim, str):
        said.append(f"The allocator could not be trimmed: {released.trim}.")
    if released.shrinkage:
        said.append("Its arena could not be shrunk: ONNX Runtime refused, as it does for a session without an arena.")
    return said


def _left(ladder: Ladder) -> str:
    left = ladder.left
    if isinstance(left, Unknown):
        return "Ending the process gives back the rest."
    if left <= 0:
        return "Nothing is left."
    places = [f"{format_bytes(size)} in {_PLACES[kind]}" for kind, size in ladder.left_by_kind.items() if size >= 2**18]
    where = f": {_listed(places)}" if places else ""
    exit_frees = _resident(ladder.last)
    return f"Left are {format_bytes(left)}{where}. Ending the process gives back everything{exit_frees}."


def _resident(step: Step) -> str:
    rss = step.reading.rss
    return f", the {format_bytes(rss)} of Python and ONNX Runtime themselves included" if isinstance(rss, int) else ""


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
