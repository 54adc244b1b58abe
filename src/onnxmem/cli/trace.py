"""`onnxmem trace`: what a model really asks its allocator for, as a placement problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage

if TYPE_CHECKING:
    from onnxmem.runtime.trace import Trace


def trace(
    model: options.ModelPath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="TRACE.csv", help="Write id,lower,upper,size.")
    ] = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    inputs: options.Inputs = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also the buffers that outlive the run: the model's outputs.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Trace one run: every allocation and free that the model makes, kernels' scratch included."""
    from onnxmem.plan.table import write_problem  # noqa: PLC0415
    from onnxmem.runtime.trace import record  # noqa: PLC0415

    feeds = _feeds(model, shape, dim, inputs)
    with stage(f"running {model.name}"):
        found = record(str(model), feeds)
    if output is not None:
        write_problem(found.problem(outputs=outputs), output)
    if json:
        print_json(_document(found, model.name, feeds))
    else:
        print_text(_text(found, model.name, feeds))


def _feeds(model: Path, shapes: list[str] | None, dims: list[str] | None, inputs: Path | None) -> dict[str, Any]:
    """Arrays to run with: the caller's, or made of zeros and ones in the shapes asked for."""
    import numpy as np  # noqa: PLC0415

    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.model.bindings import (  # noqa: PLC0415
        bind,
        default_dimensions,
        parse_dim,
        parse_shape,
        read_feed_shapes,
    )
    from onnxmem.model.dims import substitute  # noqa: PLC0415
    from onnxmem.model.load import load_proto  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415

    if inputs is not None:
        read_feed_shapes(inputs)  # says what is wrong with the file
        with np.load(inputs, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    opened = Model.open(model)
    given = bind(
        opened.inputs,
        shapes=dict(parse_shape(text) for text in shapes or []),
        dims=dict(parse_dim(text) for text in dims or []),
    )
    numbers = {**default_dimensions(opened.inputs), **given}
    types = {value.name: value.type.tensor_type.elem_type for value in load_proto(model).graph.input}
    made: dict[str, Any] = {}
    for name, declared in opened.inputs.items():
        if declared is None or not types.get(name):
            raise UsageError(f"nothing can be made up for input '{name}'", hint="give the arrays with --inputs")
        made[name] = _array(types[name], tuple(substitute(dim, numbers) for dim in declared))
    return made


def _array(element: int, shape: tuple[Any, ...]) -> Any:
    import numpy as np  # noqa: PLC0415
    from onnx import TensorProto, helper  # noqa: PLC0415

    if element == TensorProto.STRING:
        return np.full(shape, "text")
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if dtype.kind == "f":
        return np.random.default_rng(0).uniform(0, 1, shape).astype(dtype)
    return np.ones(shape, dtype)


def _document(found: Trace, name: str, feeds: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "onnxmem.trace/1",
        "model": name,
        "inputs": {key: list(value.shape) for key, value in feeds.items()},
        "buffers": len(found),
        "steps": found.steps,
        "outputs": len(found) - len(found.inside),
        "output_bytes": found.output_bytes,
        "total_bytes": int(found.padded().sum()),
        "lower_bound_bytes": found.bound(),
    }


def _text(found: Trace, name: str, feeds: dict[str, Any]) -> str:
    from onnxmem.units import format_bytes  # noqa: PLC0415

    fed = ", ".join(f"{key} {'×'.join(map(str, value.shape)) or 'scalar'}" for key, value in feeds.items())
    return (
        f"{name}: {len(found)} buffers in one run with {fed}\n"
        f"  all together                 {format_bytes(int(found.padded().sum())):>10}\n"
        f"  at most alive within the run {format_bytes(found.bound()):>10}   (the lower bound of any plan)\n"
        f"  outputs, which outlive it    {format_bytes(found.output_bytes):>10}"
    )
