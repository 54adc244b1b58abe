"""At which input sizes is it compared, and what is fed? Every candidate gets the same arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.measurement.feeds import Array, Feeds, make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Input, Signature
from onnxmem.model.bindings import bind, default_dimensions, parse_shape
from onnxmem.model.feeds_file import read_feed_shapes
from onnxmem.units import format_count

OpenShape = tuple[int | str, ...]
"""A shape in which a letter stands for the size."""


@dataclass(frozen=True)
class Request:
    """What the caller says about inputs."""

    shapes: Mapping[str, Sequence[OpenShape]] = field(default_factory=dict)
    """One shape for each input, or several: then each is a size of its own."""
    dims: Mapping[str, int] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    inputs: Path | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Types of a PyTorch model's inputs, which its code does not tell; float32 where nothing is said."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class InputSize(Record):
    """One input size, without its arrays."""

    label: str = stored("size")
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    assumed: Mapping[str, int]
    """Dimensions the caller left open, and the numbers used for them."""

    @property
    def elements(self) -> int:
        """Numbers in all inputs together: what memory is a function of."""
        return sum(map(prod, self.shapes.values()))

    def derived(self) -> Mapping[str, Any]:
        """The number of elements."""
        return {"elements": self.elements}


@dataclass(frozen=True)
class Size:
    """One input size and its arrays."""

    label: str
    arrays: Mapping[str, Array]
    assumed: Mapping[str, int]

    def described(self) -> InputSize:
        """The same without the arrays."""
        dtypes = {name: str(array.dtype) for name, array in self.arrays.items()}
        return InputSize(label=self.label, shapes=self.shapes, dtypes=dtypes, assumed=self.assumed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input."""
        return {name: array.shape for name, array in self.arrays.items()}

    @property
    def elements(self) -> int:
        """Numbers in all inputs together: what memory is a function of."""
        return sum(int(array.size) for array in self.arrays.values())


def parse_open_shape(text: str) -> tuple[str, OpenShape]:
    """Read `x=1x3xNxN`: N stands for the numbers of --sizes. Without a letter it is a shape like any other."""
    name, equals, dims = text.rpartition("=")
    parts = re.split(r"[x×,]", dims.strip())
    if equals and name and any(re.fullmatch(r"[A-WYZ]", part) for part in parts):
        if not all(re.fullmatch(r"\d{1,9}|[A-WYZ]", part) for part in parts):
            raise UsageError(f"'{text}' is not a shape", hint="write it as input=1x3xNxN")
        return name, tuple(int(part) if part.isdigit() else part for part in parts)
    return parse_shape(text)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read `256,512`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,8}", part) for part in parts):
        raise UsageError(f"'{text}' is not a list of sizes", hint="write it as 256,512")
    return tuple(dict.fromkeys(int(part) for part in parts))


def make_sizes(request: Request, lead: Signature | None) -> tuple[Size, ...]:
    """All sizes, smallest first. `lead` is the signature of an ONNX candidate, if there is one."""
    made: list[Size] = []
    for label, scenario in _scenarios(request, lead):
        signature = lead or _declared(request, scenario)
        feeds: Feeds = make_feeds(signature, scenario)
        # Labels are shown in tables and are names of phases: no two may be the same.
        shape = next(iter(feeds.arrays.values())).shape if feeds.arrays else ()
        made.append(Size(label or "x".join(map(str, shape)) or "scalar", feeds.arrays, feeds.assumed))
    made.sort(key=lambda size: size.elements)
    if len({size.label for size in made}) < len(made):
        made = [Size(f"{size.label} #{k + 1}", size.arrays, size.assumed) for k, size in enumerate(made)]
    return tuple(made)


def feeds_for(signature: Signature, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The same arrays under another model's names: by name where they agree, else in their order."""
    names = [value.name for value in signature.inputs]
    if len(names) != len(arrays):
        inputs, are = format_count(len(names), "input"), "is" if len(arrays) == 1 else "are"
        raise UsageError(f"it has {inputs} ({', '.join(names)}), and {len(arrays)} {are} fed")
    known = set(names) == set(arrays)
    fed = {name: arrays[name] for name in names} if known else dict(zip(names, arrays.values(), strict=True))
    bind(signature.shapes, shapes={n: a.shape for n, a in fed.items() if signature.shapes[n] is not None})
    for value in signature.inputs:
        dtype = "string" if fed[value.name].dtype.kind in "US" else fed[value.name].dtype.name
        if value.dtype and value.dtype not in (dtype, "bfloat16"):
            raise UsageError(f"its input '{value.name}' is {value.dtype}, and {dtype} is fed")
    return fed


def _scenarios(request: Request, lead: Signature | None) -> list[tuple[str, Scenario]]:
    letters = {dim for shapes in request.shapes.values() for shape in shapes for dim in shape if isinstance(dim, str)}
    if letters and not request.sizes:
        raise UsageError(
            f"'{min(letters)}' in a shape stands for a size, and no size is given", hint="add --sizes 256,512"
        )
    if request.sizes:
        free = () if letters else _sized_dimensions(request, lead)
        return [
            (str(size), _scenario(request, _filled(request, size), dict.fromkeys(free, size))) for size in request.sizes
        ]
    count = max((len(shapes) for shapes in request.shapes.values()), default=1)
    for name, shapes in request.shapes.items():
        if len(shapes) not in (1, count):
            raise UsageError(f"input '{name}' has {len(shapes)} shapes, and another has {count}")
    picked = [{n: _numbers(s[k if len(s) > 1 else 0], 0) for n, s in request.shapes.items()} for k in range(count)]
    return [("", _scenario(request, shapes, {})) for shapes in picked]


def _filled(request: Request, size: int) -> dict[str, tuple[int, ...]]:
    for name, shapes in request.shapes.items():
        if len(shapes) > 1:
            raise UsageError(
                f"input '{name}' has {len(shapes)} shapes, and there are sizes too", hint="give one of them"
            )
    return {name: _numbers(shapes[0], size) for name, shapes in request.shapes.items()}


def _numbers(shape: OpenShape, size: int) -> tuple[int, ...]:
    return tuple(size if isinstance(dim, str) else dim for dim in shape)


def _sized_dimensions(request: Request, lead: Signature | None) -> tuple[str, ...]:
    """What `--sizes` means where no letter says so: the open dimensions; the batch only if nothing else is open."""
    if lead is None:
        raise UsageError("it is not known which dimensions have these sizes", hint="write --shape x=1x3xNxN")
    fixed = bind(lead.shapes, shapes=_filled(request, 0), dims=request.dims)
    open_ = {name: number for name, number in default_dimensions(lead.shapes).items() if name not in fixed}
    if not open_:
        raise UsageError("no dimension is open, so there is nothing for the sizes to set")
    return tuple(name for name, number in open_.items() if number > 1) or tuple(open_)


def _scenario(request: Request, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]) -> Scenario:
    return Scenario(
        Path("candidates"),
        shapes=shapes,
        dims={**request.dims, **dims},
        inputs=request.inputs,
        ranges=request.ranges,
        seed=request.seed,
    )


def _declared(request: Request, scenario: Scenario) -> Signature:
    """What PyTorch code does not say about its inputs, the caller has to."""
    shapes = dict(scenario.shapes) or (read_feed_shapes(request.inputs) if request.inputs else {})
    if not shapes:
        raise UsageError("nothing says what PyTorch models are fed", hint="give --shape x=1x3x256x256, or --inputs")
    for name in request.dtypes:
        if name not in shapes:
            raise UsageError(f"there is no input '{name}'", hint=f"there are: {', '.join(shapes)}")
    default = "" if request.inputs else "float32"
    return Signature(tuple(Input(n, request.dtypes.get(n, default), s) for n, s in shapes.items()), ())
