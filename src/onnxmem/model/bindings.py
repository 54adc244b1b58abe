"""Numbers for a model's free dimensions: from `--shape`, `--dim`, a feeds file, or defaults that are stated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onnx import ModelProto

from onnxmem.errors import ModelError, UsageError
from onnxmem.model.dims import Dim, Expr, symbol, symbols_of
from onnxmem.model.values import MOST_DIMENSIONS
from onnxmem.units import format_count

# What to assume where nothing is said: an image of 224 × 224, a text of 128 tokens, a second of speech.
_IMAGE, _SEQUENCE, _SAMPLES = 224, 128, 16000
_BATCH = re.compile(r"bs|batch.*|.*batch", re.IGNORECASE)
_SOUND = re.compile(r".*(wav|audio|signal|sample|speech|sound|pcm).*", re.IGNORECASE)


def input_shapes(model: ModelProto) -> dict[str, tuple[Dim, ...] | None]:
    """The shape of each input a caller feeds; open dimensions are symbols under the model's own names.

    A dimension without a usable name is called after its place: `x_2` is dimension 2 of input x.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    stored |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    found: dict[str, tuple[Dim, ...] | None] = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if value.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
            found[value.name] = None
            continue
        if (count := len(kind.shape.dim)) > MOST_DIMENSIONS:
            raise ModelError(f"input '{value.name}' has {count} dimensions, and at most {MOST_DIMENSIONS} are followed")
        dims: list[Dim] = []
        for position, dim in enumerate(kind.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            else:
                named = dim.HasField("dim_param") and re.search(r"\w", dim.dim_param)
                dims.append(symbol(dim.dim_param if named else f"{value.name}_{position}"))
        found[value.name] = tuple(dims)
    return found


def free_dimensions(inputs: Mapping[str, tuple[Dim, ...] | None]) -> tuple[str, ...]:
    """The names of the open dimensions, in the order the inputs mention them."""
    return tuple(dict.fromkeys(name for shape in inputs.values() for dim in shape or () for name in symbols_of(dim)))


def bind(
    inputs: Mapping[str, tuple[Dim, ...] | None],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """A number for each dimension that the caller's shapes and dims decide."""
    bound: dict[str, int] = {}
    known = free_dimensions(inputs)
    for name, number in (dims or {}).items():
        if name not in known:
            raise UsageError(f"the model has no free dimension '{name}'", hint=f"it has: {_listed(known)}")
        bound[name] = _checked(name, number)
    for name, shape in (shapes or {}).items():
        if name not in inputs:
            raise UsageError(f"the model has no input '{name}'", hint=f"it has: {_listed(inputs)}")
        declared = inputs[name]
        if declared is None:
            raise UsageError(f"input '{name}' has no declared rank, so its shape cannot be set")
        if len(shape) != len(declared):
            text, was = "x".join(map(str, declared)) or "it is a scalar", "was" if len(shape) == 1 else "were"
            rank = f"{format_count(len(declared), 'dimension')} ({text})"
            raise UsageError(f"input '{name}' has {rank}, but {len(shape)} {was} given")
        for position, (number, dim) in enumerate(zip(shape, declared, strict=True)):
            if not isinstance(dim, Expr):
                if dim != number:
                    raise UsageError(f"dimension {position} of input '{name}' is fixed at {dim}, not {number}")
                continue
            (free,) = dim.symbols
            if bound.setdefault(free, _checked(free, number)) != number:
                raise UsageError(f"dimension '{free}' is given as both {bound[free]} and {number}")
    return bound


def _checked(name: str, number: int) -> int:
    if number < 0:
        raise UsageError(f"dimension '{name}' cannot be {number}")
    return number


def default_dimensions(inputs: Mapping[str, tuple[Dim, ...] | None]) -> dict[str, int]:
    """What to assume where the caller says nothing: batch 1, 224 × 224 pixels, 128 tokens, 16000 sound samples."""
    chosen: dict[str, int] = {}
    for name, shape in inputs.items():
        for position, dim in enumerate(shape or ()):
            for free in symbols_of(dim):
                chosen.setdefault(free, _default(name, free, position, len(shape or ())))
    return chosen


def _default(name: str, dimension: str, position: int, rank: int) -> int:
    if _BATCH.fullmatch(dimension) or (position == 0 and rank > 1):
        return 1
    if rank >= 4:
        return _IMAGE
    return _SAMPLES if _SOUND.fullmatch(name) or _SOUND.fullmatch(dimension) else _SEQUENCE


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `x=1x3x640x640`. The last `=` separates, because input names may contain one; commas work too."""
    name, separator, dims = text.rpartition("=")
    if is_nameless(text):
        raise UsageError(
            f"'{text}' does not say which input it is the shape of", hint=f"write it as input={text.strip()}"
        )
    if not separator or not name or not re.fullmatch(r"(\d+([x×,]\d+)*)?", dims.strip()):
        raise UsageError(f"'{text}' is not a shape", hint="write it as input=1x3x640x640")
    return name, tuple(_number(dim) for dim in re.split(r"[x×,]", dims.strip()) if dim)


def is_nameless(text: str) -> bool:
    """Whether it is a shape without the name of an input; N stands for a size in it."""
    return re.fullmatch(r"[\dN]+([x×,][\dN]+)*", text.strip()) is not None


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read `a=1x3,b=1x4`: the shapes of several inputs."""
    # A comma may also stand between dimensions: it separates inputs only where a name and a `=` follow.
    parts = [parse_shape(part) for part in re.split(r",(?=[^,=]+=)", text)]
    shapes = dict(parts)
    if len(shapes) < len(parts):
        raise UsageError(f"'{text}' gives the shape of an input twice")
    return shapes


def parse_dim(text: str) -> tuple[str, int]:
    """Read `batch=8`."""
    name, separator, number = text.rpartition("=")
    if not separator or not name or not re.fullmatch(r"\d+", number.strip()):
        raise UsageError(f"'{text}' is not a dimension", hint="write it as name=8")
    return name, _number(number.strip())


def _number(text: str) -> int:
    number = int(text)
    if number >= 2**31:
        raise UsageError(f"{text} is too large for a dimension")
    return number


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
