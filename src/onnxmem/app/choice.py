"""What is being looked at: a model, sizes for its free dimensions, a mode and a budget. The sidebar asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxmem.commands import path_word

Document = Mapping[str, Any]
MODES = ("stock", "tuned", "planned")
_FRIENDLY = {1: ("batch",), 2: ("batch", "length"), 3: ("batch", "length", "features")}
_IMAGE = ("batch", "channels", "height", "width")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One question, for every verb the same."""

    path: Path
    dims: Mapping[str, int] = field(default_factory=dict)
    """Those that differ from what onnxmem assumes."""
    mode: str = "stock"
    budget: int | None = None

    @property
    def name(self) -> str:
        """The model's, to people."""
        return self.path.name

    def words(self, verb: str, *more: str) -> tuple[str, ...]:
        """The command line that asks a verb about it."""
        given = (word for name, size in self.dims.items() for word in ("--dim", f"{name}={size}"))
        return (verb, path_word(self.path), *given, *more)


@dataclass(frozen=True)
class Dimension:
    """A free dimension of a model, with a name that people know and the sizes that a slider offers."""

    name: str
    label: str
    value: int
    first: int
    last: int
    step: int


def dimensions(estimate: Document) -> list[Dimension]:
    """Those that the caller may choose, as an estimate found them."""
    known = {**estimate["dims"]["assumed"], **estimate["dims"]["given"]}
    multiples = (estimate.get("formula") or {}).get("multiples") or {}
    labels = _labels(estimate["inputs"])
    found = []
    for name, value in known.items():
        label = labels.get(name, name)
        step = max(int(multiples.get(name, 1)), 1)
        if value % step:
            step = 1
        last = 64 if label.startswith("batch") else max(value * 4, step)
        found.append(Dimension(name, label, value, step, -(-last // step) * step, step))
    return found


def _labels(inputs: Mapping[str, Document]) -> dict[str, str]:
    """A name for each dimension from its place in the inputs, with the model's own where that says more."""
    labels: dict[str, str] = {}
    for each in inputs.values():
        shape: list[int | str | None] = list(each.get("symbolic_shape") or ())
        image = len(shape) == 4
        # Channels last, if it is the last that is small and fixed.
        last = image and isinstance(final := shape[-1], int) and final <= 4
        places = (_IMAGE[0], *_IMAGE[2:], _IMAGE[1]) if last else _IMAGE if image else _FRIENDLY.get(len(shape), ())
        for place, name in zip(places, shape, strict=False):
            if isinstance(name, str) and name not in labels:
                own = name.lower().replace("_", " ")
                labels[name] = own if own.replace(" ", "").isalpha() and len(own) > 2 else f"{place} ({name})"
    return labels
