"""Names from models and files as they can be shown: printable, and no longer than there is room."""

from __future__ import annotations

# A character of the label font (10 px) is narrower than this on average; wide names are what the margin is for.
CHARACTER = 5.9
LINE = 12.0
# Sizes are digits, dots and spaces, narrower than names are.
DIGIT = 5.2


def shorten(name: str, room: int) -> str:
    """A name in at most `room` characters; the end tells more than the start, so it keeps two thirds."""
    if len(name) <= room:
        return name
    head = max((room - 1) // 3, 0)
    tail = max(room - 1 - head, 0)
    return f"{name[:head]}…{name[len(name) - tail :]}"


def shorten_path(name: str, room: int) -> str:
    """A name such as "/encoder/layer.0/MatMul" in at most `room` characters, by whole components if that will do."""
    parts = name.split("/")
    ends = ("…/" + "/".join(parts[k:]) for k in range(1, len(parts)))
    candidates = (end for end in (name, *ends, parts[-1]) if end and len(end) <= room)
    return next(candidates, shorten(parts[-1] or name, room))


def printable(name: str) -> str:
    """A name from a model without what could break a line, a file or the reading direction."""
    return "".join(c if c.isprintable() else "�" for c in name)
