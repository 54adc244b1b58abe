"""`onnxmem explain`: what a peak is made of, and what would make it smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import progress
from onnxmem.cli.output import DrawnOutput
from onnxmem.errors import UsageError


def explain(
    context: typer.Context,
    subject: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL|RESULT.json",
            help="A model or package, which is measured first, or what measure -o wrote.",
            show_default=False,
        ),
    ],
    feed: options.Feed,
    output: DrawnOutput,
    mode: options.Mode = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Steady runs, after the first.")] = 5,
    threads: options.Threads = None,
    time_limit: options.TimeLimit = 600.0,
) -> None:
    """Explain what a peak is made of, and what to change.

    Every MiB of a measurement by what it is, and findings: evidence, saving, and the command that gets it.
    """
    from onnxmem.explaining.explain import explain as run  # noqa: PLC0415
    from onnxmem.report.charts.picture import draw  # noqa: PLC0415
    from onnxmem.report.sections import section  # noqa: PLC0415

    output.check(subject, feed.inputs)
    if subject.suffix.lower() == ".json":
        asked = options.first_given(context, (*options.names(options.Feed), "mode", "runs", "threads"))
        if asked is not None:
            raise UsageError(
                f"{asked} is about measuring, and '{subject.name}' was measured already", hint="name the model instead"
            )
    with progress(f"explaining {subject.name}") as step:
        keywords = feed.keywords(subject)
        result = run(
            subject, **keywords, mode=mode, runs=runs, threads=threads, time_limit=time_limit, on_progress=step
        )
    output.show(result, chart=lambda: draw(section(result.document()).charts[0]))
