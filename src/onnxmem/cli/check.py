"""`onnxmem check`: is it within its budget, and has it grown? For CI: with an exit code, JUnit XML and annotations."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.output import Output, check_writable
from onnxmem.errors import UsageError, readable

if TYPE_CHECKING:
    from onnxmem.checking.checking import Checking

_ANNOTATE = ("auto", "github", "none")


def check(
    feed: options.Feed,
    output: Output,
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="[MODEL]",
            help="An .onnx or .ort file, or a package; without one all that [tool.onnxmem] in pyproject.toml names.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="The most it may take (300MiB …).")] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="FIGURE",
            autocompletion=options.complete_figure,
            help="What the budget is about, of the whole process: peak, load (its peak while loading), loaded, "
            "run (growth by running) or steady (after its runs).  [default: peak]",
        ),
    ] = None,
    mode: options.Mode = None,
    option: options.Settings = None,
    threads: options.Threads = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="measurement|estimate", help="Run it, or predict what it will take.", show_default="measurement"
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Steady runs, after the first.", show_default="5")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Measure in so many processes; the highest counts.", show_default="1"),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RESULT.json|history",
            help="It must not have grown since this result of check or measure, or the last good one of --history.",
        ),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(metavar="5%|4MiB", help="How much more than its baseline it may take.", show_default="5%"),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE.sqlite", help="Add the results to this file; made if there is none.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Take the [tool.onnxmem] table of this file.",
            show_default="the nearest pyproject.toml",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE.xml", help="Write the answers as JUnit XML, for CI systems.")
    ] = None,
    annotate: Annotated[
        str,
        typer.Option(
            metavar="auto|github|none",
            help="Print what is wrong as annotations of a GitHub workflow; auto: where GITHUB_ACTIONS is set.",
        ),
    ] = "auto",
    advice: Annotated[
        bool, typer.Option("--advice/--no-advice", help="Over budget: run again for the reason, and in other modes.")
    ] = True,
    time_limit: options.TimeLimit = 3600.0,
) -> None:
    """Check models against budgets and earlier results.

    Exit code 1 if one takes too much or has grown, 3 if one could not be run.
    """
    from onnxmem.checking.check import check as check_one  # noqa: PLC0415
    from onnxmem.checking.check import check_project  # noqa: PLC0415

    if annotate not in _ANNOTATE:
        raise UsageError(f"there are no annotations for '{annotate}'", hint=f"known: {', '.join(_ANNOTATE)}")
    saved = Path(baseline) if baseline not in (None, "history") else None
    output.check(model, feed.inputs, saved, history, config)
    if junit is not None:
        check_writable(junit, (".xml",), (model, history, config))
    common: dict[str, Any] = {"baseline": baseline, "history": history, "advice": advice, "time_limit": time_limit}
    common |= {name: value for name, value in (("tolerance", tolerance), ("by", by)) if value is not None}
    plain = {"budget": budget, "figure": figure, "mode": mode, "threads": threads, "runs": runs, "repeat": repeat}
    lists = {"option": option, "shape": feed.shape, "dim": feed.dim, "inputs": feed.inputs, "range": feed.input_range}
    about_one = [name for name, value in {**plain, **lists}.items() if value]
    if config is not None and model is not None and about_one:
        hint = "leave one of them out, or write it into the table"
        raise UsageError(f"--{about_one[0]} is about one model, and --config about a table of them", hint=hint)
    with progress("checking" if model is None else f"checking {model.name}") as step:
        if model is not None and (about_one or (baseline is not None and config is None)):
            given: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
            given |= {**feed.keywords(model), **parse.parse_options(option)}
            result = check_one(model, **given, **common, on_progress=step)
        elif about_one:
            hint = "name it, or write it into the table"
            raise UsageError(f"--{about_one[0]} is about one model, and none is named", hint=hint)
        else:
            result = check_project(config, model=model, **common, on_progress=step)
    output.show(result)
    _tell(result, junit, annotate)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _tell(result: Checking, junit: Path | None, annotate: str) -> None:
    """What is for machines, and in a line each what is wrong."""
    from onnxmem import files  # noqa: PLC0415
    from onnxmem.checking.annotations import to_annotations  # noqa: PLC0415
    from onnxmem.checking.junit import to_junit  # noqa: PLC0415

    if junit is not None:
        files.write_text(junit, to_junit(result))
    if annotate == "github" or (annotate == "auto" and os.environ.get("GITHUB_ACTIONS") == "true"):
        # On stderr, which runners read as well: stdout may be a JSON document.
        for line in to_annotations(result):
            print(readable(line), file=sys.stderr, flush=True)  # noqa: T201
        return
    for each in result.checks:
        if each.verdict != "ok":
            tell(each.brief, each.hint)
