"""The same constant stored under several names is in memory as often."""

from __future__ import annotations

import shlex

from onnxmem.commands import path_word
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes


def find(explained: Explained) -> Finding | None:
    """What one copy for all would save."""
    groups = explained.subject.model.duplicates() if explained.subject else ()
    if not groups:
        return None
    wasted, first = sum(group.wasted for group in groups), groups[0]
    return Finding(
        rule="duplicates",
        what="constants stored more than once",
        evidence=f"{format_bytes(wasted)} of constants are there already under another name: '{first.names[1]}' equals "
        f"'{first.names[0]}', {format_bytes(first.size)}.",
        advice="Merge equal initializers, as onnxsim does, or export the layers as shared",
        saving=wasted,
        command=shlex.join(["onnxsim", path_word(explained.scenario.model), "merged.onnx"]),
    )
