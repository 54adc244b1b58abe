"""`onnxmem plan`: offsets for every buffer, how far from the bound, and the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress
from onnxmem.cli.output import DrawnOutput
from onnxmem.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PlanOutput(DrawnOutput):
    """What to do with a plan besides printing it."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the plan: .csv id,lower,upper,size,offset; .json, .html …"
        ),
    ] = None


def plan(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="MODEL|PROBLEM.csv", help="An .onnx file, or a CSV id,lower,upper,size[,shares].")
    ],
    graph: options.Graph,
    output: PlanOutput,
    tiles: options.Tiles,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=options.complete_strategy,
            help="naive, greedy_by_size, greedy_by_breadth, first_fit, best_fit, best, cp-sat, model (order and "
            "placement together, for small models), or your own as package.module:function.",
        ),
    ] = "best",
    capacity: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Fit into this (512MiB, 1048576 …), with --tile in as few pieces as it takes; exit 1 if it does not.",
        ),
    ] = None,
    alignment: options.Alignment = None,
    time_limit: options.TimeLimit = 20.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Where searches choose at random, begin here.")] = 0,
) -> None:
    """Plan where every buffer lies, and prove how good that is.

    The buffers are those of a model, or of a CSV in the form that public placement problems have. A column `shares` in
    it names buffers, separated by spaces, over which this one may be written: where those are dead already when this
    one begins, although they are freed only later.
    """
    from onnxmem.estimation.planning import compute_plan  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.placement.strategies import JOINT, find  # noqa: PLC0415
    from onnxmem.placement.table import is_table, read_problem, write_plan  # noqa: PLC0415
    from onnxmem.report.charts.memory_map import memory_map  # noqa: PLC0415

    output.check(source, graph.inputs, table=True)
    table = is_table(source)
    if strategy != JOINT or table:
        with parse.modules_here():
            find(strategy)
    limit = parse.parse_size(capacity)
    if table:
        asked = options.first_given(context, options.names(options.Graph, options.Tiles))
        if asked is not None:
            raise UsageError(f"{asked} is about models, and '{source.name}' is a CSV", hint=f"leave {asked} out")
    work = tiles.allowed(limit)
    question = graph.question(source, alignment, time_limit, seed)
    with progress(f"planning {source.name}"):
        opened = read_problem(source, alignment=1 if alignment is None else alignment) if table else Model.open(source)
        name = source.name if table else ""
        result, placed, _ = compute_plan(opened, question, strategy, limit, name, extra_work=work)
    output.show(
        result,
        table=lambda path: write_plan(placed, path),
        chart=lambda: memory_map(placed, title=result.title, placement=result.document()["placement"]),
    )
    if not result.fits:
        raise typer.Exit(1)
