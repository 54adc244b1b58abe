"""`onnxmem fit`: the largest batch, image or sequence that fits into a budget, and what lets more in."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.output import DrawnOutput
from onnxmem.units import format_bytes, parse_bytes


def fit(
    model: options.ModelPath,
    output: DrawnOutput,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The memory there is (512MiB …), for all workers together; without it only what sizes take is shown.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=1..64",
            help="The sizes of a dimension to try: 1..64, 256..1024:32, 1.. without an end; a number; or the name of "
            "another dimension that it is equal to. May be repeated.  [default: the batch grows]",
        ),
    ] = None,
    shape: options.Shapes = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            autocompletion=options.complete_mode,
            help="Only these modes; with --verify all of them are measured. May be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="So many processes have to fit together (sum of PSS).")
    ] = 1,
    threads: options.Threads = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run it under a real limit, and change the size until it holds.")
    ] = False,
    input_range: options.Ranges = None,
    seed: options.Seed = 0,
    time_limit: options.TimeLimit = 600.0,
) -> None:
    """Find the largest batch, image or sequence that fits.

    By prediction, for every mode, with the least change that lets more in; with --verify by measurement. Without a
    budget it shows what each size takes.
    """
    from onnxmem.fitting.axis import parse_dims  # noqa: PLC0415
    from onnxmem.fitting.fit import fit as find  # noqa: PLC0415

    output.check(model)
    limit, dims = None if budget is None else parse_bytes(budget), parse_dims(dim or ())
    shapes, ranges = parse.parse_shapes(shape, model), parse.parse_ranges(input_range)
    with progress(f"fitting {model.name}" + ("" if limit is None else f" into {format_bytes(limit)}")) as step:
        result = find(
            model,
            limit,
            dims=dims,
            shapes=shapes,
            modes=mode,
            workers=workers,
            threads=threads,
            verify=verify,
            ranges=ranges,
            seed=seed,
            time_limit=time_limit,
            on_progress=step,
        )
    output.show(result)
    if limit is not None and not result.fits:
        least = min((mode.smallest for answer in result.answers for mode in answer.modes), key=lambda each: each.needed)
        takes, more = format_bytes(least.bytes), format_bytes(least.needed)
        tiled = any(answer.tiles for answer in result.answers)
        tell(
            f"nothing fits into {format_bytes(limit)}: the least is {takes}, with the margin {more}",
            "computed in pieces it would: pack --tile" if tiled else "",
        )
        raise typer.Exit(1)
