"""`onnxmem trace`: what a model really asks its allocator for, as a placement problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage

if TYPE_CHECKING:
    from onnxmem.session.planned.trace import Trace


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
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Trace one run: every allocation and free that the model makes, kernels' scratch included."""
    from onnxmem.measurement.feeds import make_feeds  # noqa: PLC0415
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415
    from onnxmem.model.load import refuse_package  # noqa: PLC0415
    from onnxmem.placement.table import write_problem  # noqa: PLC0415
    from onnxmem.session.planned.trace import record  # noqa: PLC0415

    options.check_html(html)
    refuse_package(model, ort=True)
    feeds = make_feeds(read_signature(model), options.scenario(model, shape, dim, inputs, None)).arrays
    with stage(f"running {model.name}"):
        found = record(str(model), feeds)
    if output is not None:
        write_problem(found.problem(outputs=outputs), output)
    document = _document(found, model.name, feeds)
    options.write_html(html, document)
    if json:
        print_json(document)
    else:
        print_text(_text(found, model.name, feeds))


def _document(found: Trace, name: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
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


def _text(found: Trace, name: str, feeds: Mapping[str, Any]) -> str:
    from onnxmem.units import format_bytes  # noqa: PLC0415

    fed = ", ".join(f"{key} {'×'.join(map(str, value.shape)) or 'scalar'}" for key, value in feeds.items())
    return (
        f"{name}: {len(found)} buffers in one run with {fed}\n"
        f"  all together                 {format_bytes(int(found.padded().sum())):>10}\n"
        f"  at most alive within the run {format_bytes(found.bound()):>10}   (the lower bound of any plan)\n"
        f"  outputs, which outlive it    {format_bytes(found.output_bytes):>10}"
    )
