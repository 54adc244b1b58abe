"""`onnxmem estimate`: how much memory a model will take, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage


def estimate(
    model: options.ModelPath,
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
    alignment: Annotated[int, typer.Option(metavar="BYTES", help="Offsets are multiples of this.")] = 64,
    strategy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these strategies; package.module:function for your own."),
    ] = None,
    time_limit: options.TimeLimit = 20.0,
    tensors: Annotated[
        Path | None, typer.Option(metavar="OUT.csv", help="Write every tensor: type, size, lifetime, offset.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Estimate a model's memory: weights, activations by strategy, the formula, and what is alive at the peak."""
    from onnxmem.estimation.estimate import compute_estimate  # noqa: PLC0415
    from onnxmem.estimation.tensors import write_tensors  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.placement.strategies import STRATEGIES, find  # noqa: PLC0415
    from onnxmem.report.text import estimate_text  # noqa: PLC0415

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
    for name in strategy or []:
        find(name)
    with stage(f"estimating {model.name}"):
        result, scheduled, best = compute_estimate(Model.open(model), asked, strategy or STRATEGIES)
    if tensors is not None:
        write_tensors(scheduled, best, tensors)
    options.write_html(html, result.document())
    if json:
        print_json(result.document())
    else:
        print_text(estimate_text(result))
