"""`onnxmem report`: saved results as one page, or as Markdown, text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli.console import progress
from onnxmem.cli.output import Output, print_report


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json…", help="What verbs printed with --json; - is stdin.", show_default=False),
    ],
    output: Output,
    title: Annotated[str, typer.Option(metavar="TEXT", help="What stands above it.", show_default=False)] = "",
) -> None:
    """Report on saved results: one page of all of them.

    Of estimates, plans, traces, measurements, releases, shares and comparisons, saved as JSON.
    """
    from onnxmem.report.build import read_report  # noqa: PLC0415
    from onnxmem.report.render.to_json import render_json  # noqa: PLC0415
    from onnxmem.report.save import save_report  # noqa: PLC0415

    output.check(*results)
    made = read_report(results, title)
    written = [path for path in (output.output, output.html) if path is not None]
    with progress("writing the report"):
        for path in written:
            save_report(made, path)
    if output.json:
        typer.echo(render_json(made), nl=False)
    elif not written:
        print_report(made)
