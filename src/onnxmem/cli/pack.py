"""`onnxmem pack`: a package whose weights all processes share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress
from onnxmem.cli.output import print_result
from onnxmem.errors import UsageError
from onnxmem.progress import Progress


def pack(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="An .onnx or .ort file; may be left out for --verify and --repack."),
    ] = None,
    *,
    feed: options.Feeds,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="The package.", show_default=False)
    ] = Path(),
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            autocompletion=options.complete_mode,
            help="prepacked, external, mapped, ort, ort-mapped or ort-mapped-packed: how it is loaded.",
        ),
    ] = "prepacked",
    order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            autocompletion=options.complete_order,
            help="Run the nodes in this order (best, greedy …), if it takes less memory than ONNX Runtime's own.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=1x3x640x640,…",
            help="Plan runs with these input shapes now: the first one is already planned. May be repeated.",
        ),
    ] = None,
    tiles: options.Tiles,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Do what it takes, and no more, so that a run needs no more than this; exit 1 if nothing does.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a package that is there already.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only read every byte of the package and compare with its hashes.")
    ] = False,
    repack: Annotated[
        bool, typer.Option("--repack", help="Make the package again, as it is, for this ONNX Runtime and CPU.")
    ] = False,
    time_limit: options.TimeLimit = 3600.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Pack a model so that all processes share its weights.

    Optimized, its weights ready to be mapped, and its outputs compared with the original's.
    """
    from onnxmem.model.bindings import parse_shapes  # noqa: PLC0415
    from onnxmem.packing.pack import pack as write  # noqa: PLC0415
    from onnxmem.packing.pack import repack as write_again  # noqa: PLC0415
    from onnxmem.packing.packed import Packed  # noqa: PLC0415
    from onnxmem.session.package import open_package, verify_package  # noqa: PLC0415

    if output == Path():
        raise UsageError("say where the package is: -o FOLDER")
    if model is None and not (verify or repack):
        raise UsageError("say which model to pack", hint="onnxmem pack MODEL -o FOLDER")
    if model is not None and os.path.realpath(output) in map(str, Path(os.path.realpath(model)).parents):
        raise UsageError(f"'{model}' lies in '{output}', which would be replaced", hint="choose another folder")
    keywords: dict[str, Any] = {
        **feed.keywords(model or output),
        "time_limit": time_limit,
        # What is not said is left to the manifest when a package is made again.
        **({"order": order} if order is not None else {}),
        **({"plans": [parse_shapes(parse.with_name(text, model or output)) for text in plan]} if plan else {}),
        **({"tile": True} if tiles.tile else {}),
        "extra_work": tiles.part(),
        "budget": parse.parse_size(budget),
    }
    with progress("packing" if not verify else "verifying") as step:
        if verify:
            total, done = open_package(output).size, 0

            def read(count: int) -> None:
                nonlocal done
                done += count
                step(Progress(output.name, done, total, "bytes"))

            packed, what = Packed(folder=output, manifest=verify_package(output, read).manifest), "verified"
        elif repack:
            packed, what = write_again(output, model, on_progress=step, **keywords), "packed again"
        else:
            assert model is not None
            packed, what = write(model, output, mode, force=force, on_progress=step, **keywords), "packed"
    print_result({**packed.document(), "done": what}, json=json)
