"""`onnxmem report`: saved results as one page, or as Markdown, text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli import options
from onnxmem.cli.console import stage


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json…", help="What verbs printed with --json; - is stdin.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="REPORT.html|.md|.txt|.json", help="Write the report; else print text."),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="What stands above it.", show_default=False)] = "",
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Make one report of results that were saved as JSON: estimates, plans, measurements, ladders, comparisons."""
    from onnxmem.report.build import read_report  # noqa: PLC0415
    from onnxmem.report.render.to_json import render_json  # noqa: PLC0415
    from onnxmem.report.render.to_terminal import render_text  # noqa: PLC0415
    from onnxmem.report.save import report_kind, save_report  # noqa: PLC0415

    if output is not None:
        report_kind(output)
    options.check_html(html)
    made = read_report(results, title)
    with stage("writing the report"):
        for path in (output, html):
            if path is not None:
                save_report(made, path)
    if json:
        typer.echo(render_json(made), nl=False)
    elif output is None and html is None:
        typer.echo(render_text(made), nl=False)
