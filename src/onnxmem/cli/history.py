"""`onnxmem history`: what models took over time, and where they grew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.output import DrawnOutput


def history(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.sqlite", help="What check --history has written.", show_default=False)
    ],
    output: DrawnOutput,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Only this model, by its name.", show_default=False)
    ] = None,
    figure: Annotated[
        str,
        typer.Option(
            metavar="FIGURE",
            autocompletion=options.complete_figure,
            help="Which figure: peak, load, loaded, run or steady.",
        ),
    ] = "peak",
    tolerance: Annotated[
        str, typer.Option(metavar="5%|4MiB", help="More than this above the result before counts as grown.")
    ] = "5%",
) -> None:
    """History of what models took, from check --history.

    A table and a chart of every model, mode and size, and where it grew: with which commit, version or machine.
    """
    from onnxmem.history.history import read_history  # noqa: PLC0415

    output.check(file)
    output.show(read_history(file, model, figure=figure, tolerance=tolerance))
