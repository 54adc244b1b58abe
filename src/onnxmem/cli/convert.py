"""`onnxmem convert`: another file form, where packing is not wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import progress
from onnxmem.cli.output import check_writable, print_result


def convert(
    model: options.ModelPath,
    to: Annotated[str, typer.Option("--to", metavar="ort|onnx|external", help="The form to write.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Convert a model to another kind of file.

    One .onnx file, one with its weights in a file beside it, or ONNX Runtime's own format.
    """
    from onnxmem.packing.convert import convert as run  # noqa: PLC0415

    check_writable(output, (), (model,))
    with progress(f"converting {model.name}"):
        converted = run(model, to, output, force=force)
    print_result(converted, json=json)
