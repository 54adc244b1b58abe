"""`onnxmem trace`: what a model really asks its allocator for, as a placement problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import options
from onnxmem.cli.console import progress
from onnxmem.cli.output import Output

if TYPE_CHECKING:
    from onnxmem.session.planned.trace import Trace


@dataclass(frozen=True, kw_only=True)
class TraceOutput(Output):
    """What to do with a trace besides printing it."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the trace: .csv id,lower,upper,size; .json, .html …"
        ),
    ] = None


def trace(
    model: options.ModelPath,
    feed: options.Feed,
    output: TraceOutput,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="In the CSV, also buffers that outlive the run: the model's outputs.")
    ] = False,
) -> None:
    """Trace one run: every buffer that the model allocates.

    With the scratch memory of kernels: the problem that a plan for this model has to solve.
    """
    from onnxmem.measurement.feeds import make_feeds  # noqa: PLC0415
    from onnxmem.measurement.scenario import Scenario  # noqa: PLC0415
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415
    from onnxmem.model.load import refuse_package  # noqa: PLC0415
    from onnxmem.placement.table import write_problem  # noqa: PLC0415
    from onnxmem.session.planned.trace import record  # noqa: PLC0415

    output.check(model, feed.inputs, table=True)
    refuse_package(model, ort=True)
    feeds = make_feeds(read_signature(model), Scenario(model, **feed.keywords(model))).arrays
    with progress(f"running {model.name}"):
        found = record(str(model), feeds)
    output.show(
        _document(found, model.name, feeds),
        _text(found, model.name, feeds),
        table=lambda path: write_problem(found.problem(outputs=outputs), path),
    )


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
