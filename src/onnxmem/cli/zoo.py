"""`onnxmem zoo`: classic networks to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli.console import progress
from onnxmem.cli.output import check_writable, print_result
from onnxmem.errors import UsageError


def _complete(incomplete: str) -> list[tuple[str, str]]:
    from onnxmem.zoo import MODELS  # noqa: PLC0415

    return [(name, build.__doc__ or "") for name, build in MODELS.items() if name.startswith(incomplete)]


def zoo(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="The network to write; without it all are listed.", autocompletion=_complete
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where to write it.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The weights depend on this alone.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Write one of the built-in models, or list them.

    Classic networks with random weights, whose batch, height, width or sequence length is free.
    """
    import onnx  # noqa: PLC0415

    from onnxmem import files  # noqa: PLC0415
    from onnxmem.zoo import MODELS, build, check_name  # noqa: PLC0415

    if name is None:
        if output is not None or force:
            raise UsageError("say which network to write", hint="onnxmem zoo NAME -o MODEL.onnx")
        listed = [{"name": name, "about": (builder.__doc__ or "").strip()} for name, builder in MODELS.items()]
        print_result({"schema": "onnxmem.zoo/1", "models": listed}, json=json)
        return
    check_name(name)
    target = Path(f"{name}.onnx") if output is None else output
    check_writable(target, (".onnx",))
    if target.exists() and not force:
        raise UsageError(f"there is a file '{target}' already", hint="--force replaces it")
    with progress(f"building {name}"), files.replacing(target) as temporary:
        onnx.save(build(name, seed=seed), temporary)
    written = {"model": name, "path": str(target), "bytes": target.stat().st_size}
    print_result({"schema": "onnxmem.zoo/1", **written}, json=json)
