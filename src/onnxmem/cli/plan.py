"""`onnxmem plan`: offsets for every buffer, how far from the bound, and the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage


def plan(
    source: Annotated[
        Path, typer.Argument(metavar="MODEL|PROBLEM.csv", help="An .onnx file, or a CSV id,lower,upper,size.")
    ],
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="naive, greedy_by_size, greedy_by_breadth, first_fit, best_fit, best, cp-sat, or your own as "
            "package.module:function.",
        ),
    ] = "best",
    capacity: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Fit into this (512MiB, 1048576 …); exit 1 if it does not.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PLAN.csv", help="Write id,lower,upper,size,offset.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="MAP.svg|.png|.html", help="Write the memory map as a picture.")
    ] = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    inputs: options.Inputs = None,
    view: options.View = None,
    level: options.Level = "all",
    fix_dims: options.FixDims = False,
    order: options.Order = "ort-default",
    alias: options.Alias = True,
    in_place: options.InPlace = True,
    count_inputs: options.CountInputs = False,
    alignment: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Offsets are multiples of this: 64 for models, 1 for a CSV.")
    ] = None,
    time_limit: options.TimeLimit = 10.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Where searches choose at random, begin here.")] = 0,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Plan where every buffer lies, prove how good the plan is, and draw it."""
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.placement.strategies import find, solve  # noqa: PLC0415
    from onnxmem.placement.table import is_table, read_problem, write_plan  # noqa: PLC0415
    from onnxmem.report.charts.memory_map import memory_map  # noqa: PLC0415
    from onnxmem.report.charts.picture import picture_kind, save_chart  # noqa: PLC0415
    from onnxmem.report.documents import plan_document  # noqa: PLC0415
    from onnxmem.report.text import plan_text  # noqa: PLC0415
    from onnxmem.schedule.scheduled import schedule  # noqa: PLC0415
    from onnxmem.units import parse_bytes  # noqa: PLC0415

    # All that can be wrong with the request is found before any work is done.
    find(strategy)
    limit = parse_bytes(capacity) if capacity is not None else None
    if picture is not None:
        picture_kind(picture)
    options.check_html(html)
    asked = options.question(
        shape,
        dim,
        inputs,
        view=view,
        level=level,
        fix_dims=fix_dims,
        order=order,
        alias=alias,
        in_place=in_place,
        count_inputs=count_inputs,
        alignment=alignment,
        time_limit=time_limit,
    )
    scheduled = None
    if is_table(source):
        problem = read_problem(source, alignment=alignment or 1)
    else:
        with stage(f"reading {source.name}"):
            scheduled = schedule(Model.open(source), asked)
        problem = scheduled.problem
    problem = problem.with_capacity(limit)
    with stage(f"planning {len(problem)} buffers"):
        result = solve(problem, strategy, time_limit=time_limit, seed=seed)
    if output is not None:
        write_plan(result, output)
    document = plan_document(result, scheduled, source.name)
    if picture is not None:
        title = scheduled.title if scheduled else source.name
        with stage("drawing"):
            save_chart(memory_map(result, title=title, placement=document["placement"]), picture)
    options.write_html(html, document)
    if json:
        print_json(document)
    else:
        print_text(plan_text(result, scheduled, source.name))
    if not result.fits:
        raise typer.Exit(1)
