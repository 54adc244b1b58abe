"""`onnxmem release`: what gives a model's memory back, step by step, in a fresh process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage


def release(
    model: options.RunnablePath,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    inputs: options.FeedArrays = None,
    mode: options.Mode = None,
    option: options.Settings = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs, after the first.")] = 3,
    timeout: options.Timeout = 600.0,
    picture: Annotated[
        Path | None, typer.Option(metavar="WATERFALL.svg|.png|.html", help="Write the waterfall as a picture.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Let go of a model step by step and measure what each step gives back, down to the end of the process."""
    from onnxmem.releasing.ladder import climb  # noqa: PLC0415
    from onnxmem.report.charts.picture import picture_kind, save_chart  # noqa: PLC0415
    from onnxmem.report.charts.waterfall import waterfall_chart  # noqa: PLC0415
    from onnxmem.report.release import release_document, release_text  # noqa: PLC0415

    # All that can be wrong with the request is found before any work is done.
    if picture is not None:
        picture_kind(picture)
    options.check_html(html)
    scenario = options.scenario(
        model, shape, dim, inputs, option, mode=options.mode_for(mode, model), runs=runs, timeout=timeout
    )
    with stage(f"letting go of {model.name}"):
        ladder = climb(scenario)
    if picture is not None:
        with stage("drawing"):
            save_chart(waterfall_chart(release_document(ladder)), picture)
    options.write_html(html, release_document(ladder))
    if json:
        print_json(release_document(ladder))
    else:
        print_text(release_text(ladder))
