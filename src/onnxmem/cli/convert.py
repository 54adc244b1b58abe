"""`onnxmem convert`: another file form, where packing is not wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, stage


def convert(
    model: options.ModelPath,
    to: Annotated[str, typer.Option("--to", metavar="ort|onnx|external", help="The form to write.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
    json: options.Json = False,
) -> None:
    """Convert a model: one file, weights in a file beside it, or ONNX Runtime's own format."""
    from onnxmem.packing.convert import convert as run  # noqa: PLC0415
    from onnxmem.units import format_bytes  # noqa: PLC0415

    with stage(f"converting {model.name}"):
        files = run(model, to, output, force=force)
    if json:
        listed = [{"path": str(file), "bytes": file.stat().st_size} for file in files]
        print_json({"schema": "onnxmem.convert/1", "model": model.name, "to": to, "files": listed})
    else:
        for file in files:
            typer.echo(f"{file}  {format_bytes(file.stat().st_size)}")
