"""`onnxmem share`: what N processes of a model take together, mode by mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text


def share(
    model: Annotated[Path, typer.Argument(metavar="MODEL|PACKAGE", help="An .onnx or .ort file, or a package.")],
    workers: Annotated[
        str, typer.Option(metavar="1,2,4", help="How many processes at once, one group each.")
    ] = "1,2,4",
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="MODE,MODE",
            help="Which modes; by default stock, external, mapped, prepacked, or for .ort files all that read them.",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, help="Make every group this often.")] = 1,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds in which the modes take turns to run.")] = 10,
    threads: Annotated[int | None, typer.Option(metavar="N", min=1, help="Threads inside an operator.")] = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    inputs: Annotated[Path | None, typer.Option("--inputs", metavar="FEEDS.npz", help="Feed these arrays.")] = None,
    cold: Annotated[bool, typer.Option("--cold/--no-cold", help="Load with a cold page cache, too.")] = True,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep each group alive until Enter is pressed, for a look at it.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="SHARE.svg|.png|.html", help="Draw workers against total PSS.")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Share a model between processes: total PSS, private memory, loading and latency of each mode, and the floor."""
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.model.bindings import parse_dim, parse_shape  # noqa: PLC0415
    from onnxmem.report.charts.picture import picture_kind, save_chart  # noqa: PLC0415
    from onnxmem.report.charts.workers import share_chart  # noqa: PLC0415
    from onnxmem.report.share_text import share_text  # noqa: PLC0415
    from onnxmem.sharing.share import share as run  # noqa: PLC0415

    try:
        counts = [int(count) for count in workers.split(",")]
    except ValueError as error:
        raise UsageError(f"'{workers}' is no list of numbers", hint="for example --workers 1,2,4") from error
    if picture is not None:
        picture_kind(picture)
    options.check_html(html)
    result = run(
        model,
        counts,
        modes.split(",") if modes else None,
        iterations=iterations,
        cold=cold,
        on_hold=_wait if hold else None,
        on_progress=lambda progress: _say(progress.stage),
        shapes=dict(parse_shape(text) for text in shape or []),
        dims=dict(parse_dim(text) for text in dim or []),
        inputs=inputs,
        runs=runs,
        threads=threads,
    )
    if picture is not None:
        save_chart(share_chart(result.document()), picture)
    options.write_html(html, result.document())
    if json:
        print_json(result.document())
    else:
        print_text(share_text(result))
    if any(group.failures for group in result.groups):
        raise typer.Exit(3)


def _say(stage: str) -> None:
    print(f"onnxmem: {stage} …", file=sys.stderr)  # noqa: T201


def _wait(pids: tuple[int, ...]) -> None:
    listed = " ".join(map(str, pids))
    print(f"onnxmem: alive: {listed}; Enter lets them go", file=sys.stderr)  # noqa: T201
    sys.stdin.readline()
