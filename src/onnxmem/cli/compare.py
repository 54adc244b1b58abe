"""`onnxmem compare`: which of these should I run, by how much, and with the same answers?"""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, progress


def compare(
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE…",
            help="An .onnx or .ort file, file+mode, a package, module:factory, a TorchScript file or a .pt2.",
            show_default=False,
        ),
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=1x3xNxN",
            help="The shape of an input; N stands for --sizes. Given again for one input, it is one more size.",
        ),
    ] = None,
    dim: options.Dims = None,
    sizes: Annotated[str | None, typer.Option(metavar="256,512", help="Compare at these sizes.")] = None,
    inputs: options.FeedArrays = None,
    input_range: options.Ranges = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT=int64", help="The type of a PyTorch model's input, if it is not float32."),
    ] = None,
    seed: options.Seed = 0,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Weights for module:factory: .pth, .pt or .safetensors.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Make the ONNX twin of each PyTorch model, and compare it too.")
    ] = False,
    export_to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The same, and keep the ONNX files here.")
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs in each process, after the first.")] = 5,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, help="Processes for each candidate and size.")] = 5,
    repeat_limit: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=1,
            help="At most so many where fewer decide nothing; twice --repeat if it is not given.",
            show_default=False,
        ),
    ] = None,
    threads: options.Threads = None,
    timeout: options.Timeout = 600.0,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Run each with no more memory than this (512MiB …).")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="How far answers may differ, as a part of the largest.")
    ] = 1e-4,
    headroom: Annotated[
        float, typer.Option(metavar="PERCENT", min=0.0, help="Head-room above the peak for a container.")
    ] = 50.0,
    advice: Annotated[bool, typer.Option("--advice/--no-advice", help="Try what would save more.")] = True,
    output: options.ResultFile = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="SCALING.svg|.png|.html", help="Draw peak memory against input size.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Compare models that do the same job: memory, load time and latency, in fresh processes, after checking that
    their answers are the same."""
    from onnxmem import files  # noqa: PLC0415
    from onnxmem.comparison.compare import compare as run  # noqa: PLC0415
    from onnxmem.comparison.sizes import parse_open_shape, parse_sizes  # noqa: PLC0415
    from onnxmem.model.bindings import parse_dim  # noqa: PLC0415
    from onnxmem.report.charts.picture import picture_kind, save_chart  # noqa: PLC0415
    from onnxmem.report.charts.scaling import scaling_chart  # noqa: PLC0415
    from onnxmem.report.compare_text import compare_text, has_figures  # noqa: PLC0415
    from onnxmem.units import parse_bytes  # noqa: PLC0415

    # All that can be wrong with the request is found before any work is done.
    if picture is not None:
        picture_kind(picture)
    options.check_html(html)
    shapes: dict[str, list[tuple[int | str, ...]]] = {}
    for name, dims in (parse_open_shape(text) for text in shape or []):
        shapes.setdefault(name, []).append(dims)
    with progress("comparing") as say:
        result = run(
            candidates,
            shapes=shapes,
            dims=dict(parse_dim(text) for text in dim or []),
            sizes=parse_sizes(sizes) if sizes is not None else (),
            inputs=inputs,
            ranges=dict(options.parse_range(text) for text in input_range or []),
            dtypes=dict(options.parse_dtype(text) for text in dtype or []),
            seed=seed,
            weights=weights,
            export=export_to or export,
            runs=runs,
            repeat=repeat,
            repeat_limit=repeat_limit,
            threads=threads,
            timeout=timeout,
            memory_limit=parse_bytes(memory_limit) if memory_limit is not None else None,
            tolerance=tolerance,
            headroom=headroom / 100,
            advice=advice,
            on_life=say,
        )
    if output is not None:
        files.write_text(output, jsonlib.dumps(result.document(), indent=2, ensure_ascii=False) + "\n")
    if picture is not None and has_figures(result):
        save_chart(scaling_chart(result.document()), picture)
    options.write_html(html, result.document())
    if json:
        print_json(result.document())
    else:
        print_text(compare_text(result))
    if not result.ok:
        raise typer.Exit(3)
