"""`onnxmem share`: what N processes of a model take together, mode by mode."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.groups import lift
from onnxmem.cli.output import DrawnOutput


def share(
    model: options.RunnablePath,
    feed: options.Feed,
    output: DrawnOutput,
    workers: Annotated[
        str, typer.Option(metavar="1,2,4", help="How many processes at once, one group each.")
    ] = "1,2,4",
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="MODE,MODE",
            autocompletion=options.complete_mode,
            help="Which modes; by default stock, external, mapped, prepacked, or for .ort files all that read them.",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, help="Make every group this often.")] = 1,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds in which the modes take turns to run.")] = 10,
    threads: options.Threads = None,
    device: options.Device = "cpu",
    time_limit: options.TimeLimit = 3600.0,
    cold: Annotated[bool, typer.Option("--cold/--no-cold", help="Load with a cold page cache, too.")] = True,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep each group alive until Enter is pressed, for a look at it.")
    ] = False,
) -> None:
    """Share a model between processes: what do N of them take?

    Total and private memory, loading and latency of each mode, beside the least that is possible.
    """
    from onnxmem.sharing.share import share as run  # noqa: PLC0415

    output.check(model, feed.inputs)
    counts, keywords = parse.parse_counts(workers), feed.keywords(model)
    with progress(f"sharing {model.name}") as step:
        result = run(
            model,
            counts,
            modes.split(",") if modes else None,
            iterations=iterations,
            cold=cold,
            on_hold=_wait if hold else None,
            on_progress=step,
            **keywords,
            runs=runs,
            threads=threads,
            device=device,
            time_limit=time_limit,
        )
    output.show(result)
    failed = [group for group in result.groups if group.failures]
    for group in failed:
        tell(f"{group.mode}, {group.count} worker{'s' * (group.count > 1)}: {group.failures[0]}")
    if failed:
        raise typer.Exit(3)


def _wait(pids: tuple[int, ...]) -> None:
    lift()
    tell(f"alive: {' '.join(map(str, pids))}; press Enter to end them")
    sys.stdin.readline()
