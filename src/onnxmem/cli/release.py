"""`onnxmem release`: what gives a model's memory back, step by step, in a fresh process."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress
from onnxmem.cli.output import DrawnOutput


def release(
    model: options.RunnablePath,
    feed: options.Feed,
    output: DrawnOutput,
    mode: options.Mode = None,
    option: options.Settings = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs, after the first.")] = 3,
    device: options.Device = "cpu",
    time_limit: options.TimeLimit = 600.0,
) -> None:
    """Release a model's memory step by step, and see what helps.

    In a fresh process, which at last ends: what each step gives back, what remains, and why.
    """
    from onnxmem.releasing.ladder import release_ladder  # noqa: PLC0415

    output.check(model, feed.inputs)
    keywords = {**feed.keywords(model), **parse.parse_options(option), "mode": mode}
    with progress(f"releasing {model.name}") as step:
        result = release_ladder(model, **keywords, runs=runs, device=device, time_limit=time_limit, on_progress=step)
    output.show(result)
