"""`onnxmem estimate`: how much memory a model will take, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress
from onnxmem.cli.output import Output, check_writable

_SECONDS, _SECONDS_ON_GPU = 20.0, 120.0


def estimate(
    model: options.ModelPath,
    graph: options.Graph,
    output: Output,
    tiles: options.Tiles,
    alignment: options.Alignment = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=options.complete_strategy,
            help="Only these strategies; package.module:function for your own.",
        ),
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "cpu",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|least",
            help="Say what it takes that a run needs no more than this (as pack --budget would do it), and what that "
            "costs; exit 1 if nothing does. least: all steps down to the least that is possible.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None, options.time_limit(show_default="20; 120 on a GPU; none for the search of a --budget")
    ] = None,
    tensors: Annotated[
        Path | None, typer.Option(metavar="OUT.csv", help="Write every tensor: type, size, lifetime, offset.")
    ] = None,
) -> None:
    """Estimate a model's memory before it runs.

    The whole process in each mode, weights, activations by strategy, the formula for any size, and what is alive at the
    peak.
    """
    from onnxmem.estimation.budgets import LEAST, BudgetFacts  # noqa: PLC0415
    from onnxmem.estimation.estimate import compute_estimate  # noqa: PLC0415
    from onnxmem.estimation.tensors import write_tensors  # noqa: PLC0415
    from onnxmem.measurement.device import check_device, device_number  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.placement.strategies import STRATEGIES, find  # noqa: PLC0415

    output.check(model, graph.inputs)
    if tensors is not None:
        check_writable(tensors, (".csv",), (model, graph.inputs))
    work = tiles.allowed()
    limit = budget if budget in (None, LEAST) else parse.parse_size(budget)
    check_device(device)
    number = device_number(device)
    fallback = _SECONDS if number is None else _SECONDS_ON_GPU
    question = replace(graph.question(model, alignment, fallback if time_limit is None else time_limit), device=number)
    with parse.modules_here():
        for name in strategy or ():
            find(name)
    with progress(f"estimating {model.name}") as step:
        result, scheduled, best = compute_estimate(
            Model.open(model),
            question,
            strategy or STRATEGIES,
            threads=threads,
            extra_work=work,
            budget=limit,
            on_progress=step,
        )
    if tensors is not None:
        write_tensors(scheduled, best, tensors)
    output.show(result)
    if isinstance(result.budget, BudgetFacts) and not result.budget.fits:
        raise typer.Exit(1)
