"""`onnxmem measure`: how much memory a model really takes, phase by phase, in a fresh process."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage


def measure(
    model: options.RunnablePath,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    inputs: options.FeedArrays = None,
    input_range: options.Ranges = None,
    seed: options.Seed = 0,
    mode: options.Mode = None,
    option: options.Settings = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs, after the first.")] = 5,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, help="Measure in so many processes.")] = 1,
    threads: options.Threads = None,
    timeout: options.Timeout = 600.0,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Run with no more memory than this (512MiB …).")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes/--no-nodes", help="Run once more with the profiler, to tell nodes apart.")
    ] = True,
    output: options.ResultFile = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="TIMELINE.svg|.png|.html", help="Write the timeline as a picture.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Measure a model's memory: load and run it in a fresh process, with exact peaks, parts, nodes and latency."""
    from onnxmem import files  # noqa: PLC0415
    from onnxmem.measurement.measure import measure as run  # noqa: PLC0415
    from onnxmem.report.charts.picture import picture_kind, save_chart  # noqa: PLC0415
    from onnxmem.report.charts.timeline import timeline_chart  # noqa: PLC0415
    from onnxmem.report.measure_text import ending, measure_text  # noqa: PLC0415
    from onnxmem.units import parse_bytes  # noqa: PLC0415

    # All that can be wrong with the request is found before any work is done.
    if picture is not None:
        picture_kind(picture)
    options.check_html(html)
    scenario = options.scenario(
        model,
        shape,
        dim,
        inputs,
        option,
        ranges=dict(options.parse_range(text) for text in input_range or []),
        seed=seed,
        mode=options.mode_for(mode, model),
        runs=runs,
        threads=threads,
        timeout=timeout,
        memory_limit=parse_bytes(memory_limit) if memory_limit is not None else None,
    )
    with stage(f"measuring {model.name}"):
        result = run(scenario, repeat=repeat, nodes=nodes)
    if output is not None:
        files.write_text(output, jsonlib.dumps(result.document(), indent=2, ensure_ascii=False) + "\n")
    if picture is not None:
        with stage("drawing"):
            save_chart(timeline_chart(result.document()), picture)
    options.write_html(html, result.document())
    if json:
        print_json(result.document())
    else:
        print_text(measure_text(result))
    if not result.verdict.ok:
        typer.echo(f"onnxmem: the process {ending(result)}", err=True)
        raise typer.Exit(3)
