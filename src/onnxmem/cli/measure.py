"""`onnxmem measure`: how much memory a model really takes, phase by phase, in a fresh process."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.output import DrawnOutput


def measure(
    model: options.RunnablePath,
    feed: options.Feed,
    output: DrawnOutput,
    mode: options.Mode = None,
    option: options.Settings = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs, after the first.")] = 5,
    repeat: Annotated[int, typer.Option(metavar="K", min=1, help="Measure in so many processes.")] = 1,
    threads: options.Threads = None,
    device: options.Device = "cpu",
    time_limit: options.TimeLimit = 600.0,
    memory_limit: options.MemoryLimit = None,
    nodes: Annotated[
        bool, typer.Option("--nodes/--no-nodes", help="Run once more with the profiler, to tell nodes apart.")
    ] = True,
) -> None:
    """Measure a model's memory while it loads and runs.

    In a fresh process: exact peaks by phase, what they are made of, the largest nodes, and latency.
    """
    from onnxmem.explaining.explain import with_findings  # noqa: PLC0415
    from onnxmem.measurement.measure import measure as run  # noqa: PLC0415
    from onnxmem.report.sections.measure import ending  # noqa: PLC0415

    output.check(model, feed.inputs)
    keywords = {**feed.keywords(model), **parse.parse_options(option), "mode": mode}
    limit = parse.parse_size(memory_limit)
    with progress(f"measuring {model.name}") as step:
        result = run(
            model,
            **keywords,
            runs=runs,
            repeat=repeat,
            threads=threads,
            device=device,
            time_limit=time_limit,
            memory_limit=limit,
            nodes=nodes,
            on_progress=step,
        )
        document = with_findings(result.document())
    output.show(document)
    if not result.verdict.ok:
        tell(f"the process {ending(result.document())}", result.verdict.hint)
        raise typer.Exit(3)
