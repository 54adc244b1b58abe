"""`onnxmem trace`: what a model really asks its allocator for, as a placement problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import progress
from onnxmem.cli.output import Output


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
    device: options.Device = "cpu",
    time_limit: options.TimeLimit = 600.0,
) -> None:
    """Trace one run: every buffer that the model allocates.

    With the scratch memory of kernels: the problem that a plan for this model has to solve.
    """
    from onnxmem.measurement import tracing  # noqa: PLC0415
    from onnxmem.placement.table import write_problem  # noqa: PLC0415
    from onnxmem.unknown import Unknown  # noqa: PLC0415

    output.check(model, feed.inputs, table=True)
    with progress(f"running {model.name}"):
        result = tracing.trace(model, **feed.keywords(model), device=device, time_limit=time_limit)

    def table(path: Path) -> None:
        assert not isinstance(result.trace, Unknown)
        write_problem(result.trace.problem(outputs=outputs), path)

    output.show(result, table=table)
