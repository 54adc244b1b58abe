"""`onnxmem compare`: which of these should I run, by how much, and with the same answers?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.output import DrawnOutput
from onnxmem.errors import EXTRAS, missing_extra


def compare(
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE…",
            help="An .onnx or .ort file, file+mode, a package, module:factory, a TorchScript file or a .pt2.",
            show_default=False,
        ),
    ],
    output: DrawnOutput,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=1x3xNxN",
            help="The shape of an input; N stands for --sizes. Given again for one input, it is one more size.",
        ),
    ] = None,
    dim: options.Dims = None,
    sizes: Annotated[str | None, typer.Option(metavar="256,512", help="Compare at these sizes.")] = None,
    inputs: options.Arrays = None,
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
    device: options.Device = "cpu",
    time_limit: options.TimeLimit = 3600.0,
    memory_limit: options.MemoryLimit = None,
    tolerance: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="How far answers may differ, as a part of the largest.")
    ] = 1e-4,
    headroom: Annotated[
        float, typer.Option(metavar="PERCENT", min=0.0, help="Head-room above the peak for a container.")
    ] = 50.0,
    advice: Annotated[bool, typer.Option("--advice/--no-advice", help="Try what would save more.")] = True,
) -> None:
    """Compare models that do the same job, side by side.

    Memory, load time and latency in fresh processes, after checking that their answers are the same.
    """
    from onnxmem.comparison.compare import compare as run  # noqa: PLC0415
    from onnxmem.comparison.sizes import parse_open_shape, parse_sizes  # noqa: PLC0415

    files = [path for path in (Path(name.partition("+")[0]) for name in candidates) if path.exists()]
    output.check(*files, inputs, weights)
    # Those of PyTorch do not say what their inputs are called.
    onnx = next((path for path in files if path.suffix not in (".pt", ".pth", ".pt2", ".safetensors")), None)
    shapes: dict[str, list[tuple[int | str, ...]]] = {}
    for text in shape or ():
        name, dims = parse_open_shape(parse.with_name(text, onnx) if onnx else text)
        shapes.setdefault(name, []).append(dims)
    keywords: dict[str, Any] = {
        "dims": parse.parse_dims(dim),
        "sizes": parse_sizes(sizes) if sizes is not None else (),
        "ranges": parse.parse_ranges(input_range),
        "dtypes": parse.parse_dtypes(dtype),
        "memory_limit": parse.parse_size(memory_limit),
    }
    with progress("comparing") as step:
        result = run(
            candidates,
            shapes=shapes,
            **keywords,
            inputs=inputs,
            seed=seed,
            weights=weights,
            export=export_to or export,
            runs=runs,
            repeat=repeat,
            repeat_limit=repeat_limit,
            threads=threads,
            device=device,
            time_limit=time_limit,
            tolerance=tolerance,
            headroom=headroom / 100,
            advice=advice,
            on_progress=step,
        )
    output.show(result)
    for failed in result.candidates:
        if failed.failure is not None:
            # Many a reason names the model itself.
            named = f"'{failed.name}'" in failed.failure
            tell(failed.failure if named else f"{failed.name}: {failed.failure}", _install_hint(failed.failure))
    if not result.ok:
        raise typer.Exit(3)


def _install_hint(failure: str) -> str:
    """What to install, if that is what a candidate lacks: its process could only say so in words."""
    needs = ((extra, f"'{package}', which is not installed") for extra in EXTRAS for package in EXTRAS[extra].values())
    return next((missing_extra("", extra).hint for extra, words in needs if words in failure), "")
