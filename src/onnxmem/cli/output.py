"""Where a result goes: checked before the work, written and printed after it, in one way for all verbs."""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli.console import progress, tell
from onnxmem.errors import OnnxmemError, UsageError, check_extra
from onnxmem.files import check_folder_of

if TYPE_CHECKING:
    import altair

    from onnxmem.report.report import Report

Document = Mapping[str, Any]

_REPORTS = (".json", ".html", ".md", ".txt")
_DRAWN = (".svg", ".png", ".html")
"""What holds pictures."""
_MAIN = ("fit", "memory map", "sizes", "timeline", "waterfall", "workers", "history", "size map")
"""The pictures that show a result; others explain a part of it."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """What to do with a result besides printing it."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the result: .json as data, .html, .md or .txt as a report."
        ),
    ] = None
    html: Annotated[
        Path | None, typer.Option("--html", metavar="REPORT.html", help="Write the result as a page, too: one file.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False

    def check(self, *reads: Path | None, table: bool = False) -> None:
        """Can all of it be written? Asked before any work is done; `reads` are files that must stay as they are.

        `table`: `-o` may also be a CSV.
        """
        wanted = self._wanted(table)
        for path, suffixes in wanted:
            check_writable(path, suffixes, reads)
            if path.suffix.lower() in _DRAWN:
                check_extra("report")
        if len({os.path.realpath(path) for path, _ in wanted}) < len(wanted):
            raise UsageError("two outputs have the same name", hint="choose another name for one of them")

    def _wanted(self, table: bool) -> list[tuple[Path, tuple[str, ...]]]:
        """The files to write, each with the endings it may have."""
        reports = (".csv", *_REPORTS) if table else _REPORTS
        named = ((self.output, reports), (self.html, (".html",)))
        return [(path, suffixes) for path, suffixes in named if path is not None]

    def show(self, result: Any, *, table: Callable[[Path], None] | None = None) -> Report:
        """Write and print a result; `table` writes it as CSV."""
        from onnxmem import files  # noqa: PLC0415
        from onnxmem.report.build import document_of, make_report  # noqa: PLC0415
        from onnxmem.report.save import save_report  # noqa: PLC0415

        document = document_of(result)
        report = make_report([document])
        for path in (each for each in (self.output, self.html) if each is not None):
            if path.suffix.lower() == ".csv" and table is not None:
                table(path)
            elif path.suffix.lower() == ".json":
                files.write_text(path, to_json(document))
            else:
                with progress("writing the report"):
                    save_report(report, path)
        if self.json:
            print_json(document)
        else:
            print_report(report)
        return report


@dataclass(frozen=True, kw_only=True)
class DrawnOutput(Output):
    """The same for results that have a picture."""

    picture: Annotated[
        Path | None, typer.Option(metavar="PICTURE.svg|.png|.html", help="Write the result's main picture.")
    ] = None

    def _wanted(self, table: bool) -> list[tuple[Path, tuple[str, ...]]]:
        return [*super()._wanted(table), *([(self.picture, _DRAWN)] if self.picture is not None else [])]

    def show(
        self,
        result: Any,
        *,
        table: Callable[[Path], None] | None = None,
        chart: Callable[[], altair.TopLevelMixin] | None = None,
    ) -> Report:
        """The same, and draw it: `chart`, or the main one of its report."""
        report = super().show(result, table=table)
        if self.picture is not None:
            from onnxmem.report.charts.picture import draw  # noqa: PLC0415
            from onnxmem.report.save import save_chart  # noqa: PLC0415

            main = [each for each in report.sections[-1].charts if each.kind in _MAIN]
            if chart is None and not main:
                tell(f"there is nothing to draw: '{self.picture}' was not written")
                return report
            with progress("drawing"):
                save_chart(chart() if chart else draw(main[0]), self.picture)
        return report


def check_writable(path: Path, suffixes: Iterable[str], reads: Iterable[Path | None] = ()) -> None:
    """Raise UsageError unless this file can be written, and is none of those that are read."""
    allowed = tuple(suffixes)
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': it is a folder", hint="name a file in it")
    if allowed and path.suffix.lower() not in allowed:
        raise UsageError(f"cannot write '{path}': there is no such format", hint=f"end it in {', '.join(allowed)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{path}': there is no folder '{path.parent}'")
    for read in reads:
        if read is not None and _is_of(path, read):
            raise UsageError(f"'{path}' is read by this command, and would be overwritten", hint="choose another name")
    check_folder_of(path)


def _is_of(path: Path, read: Path) -> bool:
    """Whether it is one of the files of what is read, or has the name of what will be made, as histories are."""
    if not path.exists():
        return os.path.realpath(path) == os.path.realpath(read)
    return any(file.exists() and path.samefile(file) for file in _files(read))


def _files(path: Path) -> Iterable[Path]:
    """All files that a model, a package or another file is made of."""
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415

    yield path
    if path.suffix in (".onnx", ".ort") or path.is_dir():
        with suppress(OnnxmemError):  # whoever reads it will say what is wrong
            yield from read_signature(path).files


def to_json(document: Document) -> str:
    """A document as text."""
    return jsonlib.dumps(document, indent=2, ensure_ascii=False) + "\n"


def print_json(document: Document) -> None:
    """One JSON document on stdout."""
    typer.echo(to_json(document), nl=False)


def print_result(result: Any, *, json: bool) -> None:
    """A result on stdout, for verbs whose output is not a file of it."""
    from onnxmem.report.build import document_of, make_report  # noqa: PLC0415

    if json:
        print_json(document_of(result))
    else:
        print_report(make_report([result]))


def print_report(report: Report) -> None:
    """A report on stdout: coloured on a terminal, plain elsewhere."""
    from rich.console import Console  # noqa: PLC0415

    from onnxmem.report.render.to_terminal import TEXT_WIDTH, render_terminal  # noqa: PLC0415

    console = Console()
    # Files and pipes have no width of their own: do not fold long names there.
    width = console.width if console.is_terminal else max(console.width, TEXT_WIDTH)
    colour = console.is_terminal and not console.no_color and not console.is_dumb_terminal
    typer.echo(render_terminal(report, width=width, colour=colour), nl=False)
