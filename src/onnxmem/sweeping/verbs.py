"""What can be asked of a model in a sweep: each verb, what its one figure is, and whether it runs the model."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmem.errors import UsageError


@dataclass(frozen=True)
class Verb:
    """One of the questions."""

    name: str
    label: str
    """What its figure is."""
    runs: bool
    """Whether the model runs: then nothing else may run on the same cores meanwhile."""
    seconds: float
    """The time limit of a cell, where none is given."""
    modes: str = "each"
    """`each` mode is a cell of its own; `none` matters; `all` are in one cell."""
    device_label: str = ""
    """What its figure is on a GPU; empty if it cannot be asked of one."""
    options: bool = False
    """Whether it can be asked with session options."""


VERBS = (
    Verb("estimate", "predicted peak RSS", False, 60.0, device_label="predicted memory of the GPU"),
    Verb("plan", "arena of the plan", False, 60.0, modes="none"),
    Verb("measure", "peak RSS", True, 600.0, device_label="peak memory of the GPU", options=True),
    Verb("release", "kept after releasing", True, 600.0, device_label="kept on the GPU after releasing", options=True),
    Verb("share", "PSS of all workers", True, 3600.0, device_label="memory of the GPU with all workers", options=True),
    Verb("compare", "least peak RSS of the modes", True, 3600.0, modes="all", device_label="least peak of the GPU"),
)
"""In the order of work: what runs nothing comes first."""


def find_verb(name: str) -> Verb:
    """The verb of that name."""
    for verb in VERBS:
        if verb.name == name:
            return verb
    raise UsageError(f"there is no verb '{name}' in a sweep", hint=f"known: {', '.join(each.name for each in VERBS)}")
