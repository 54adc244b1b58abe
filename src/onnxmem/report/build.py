"""How do I make a report of these results? Result objects, their documents, or files of documents → Report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.report.cells import words
from onnxmem.report.charts.timeline import SCALE
from onnxmem.report.damaged import verb_of, whole
from onnxmem.report.render.to_json import SCHEMA
from onnxmem.report.report import Chart, Document, Report, Section
from onnxmem.report.sections import printable_texts, section
from onnxmem.report.sections.overview import overview


def make_report(results: Iterable[Any], title: str = "") -> Report:
    """One report of any results, in their order: `make_report([estimate, measurement])`.

    A result is what a verb or its function returned, or its JSON document. Where several measurements are among them,
    a section that compares them comes first.
    """
    documents = [document_of(result) for result in results]
    if not documents:
        raise UsageError("there is nothing to report", hint="give at least one result")
    sections = _on_one_scale([section(document) for document in documents])
    compared = overview(documents)
    if compared is not None:
        sections.insert(0, printable_texts(compared))
    return Report(words(title, 120) or _title(documents), tuple(sections))


def brief(report: Report) -> Report:
    """The first section whole; of the others only the answer, and the map of memory."""
    first, *others = report.sections
    maps = [tuple(chart for chart in each.charts if chart.kind == "memory map") for each in others]
    short = [Section(each.heading, each.summary, charts=drawn) for each, drawn in zip(others, maps, strict=True)]
    return Report(report.title, (first, *short))


def _on_one_scale(sections: list[Section]) -> list[Section]:
    """Timelines of one model reach equally far up: readers compare them by eye."""
    tops: dict[str, int] = {}
    for chart in (chart for each in sections for chart in each.charts if chart.kind == "timeline"):
        with whole(verb_of(chart.document)):
            sizes = [phase.get("peak_rss_bytes") or 0 for phase in chart.document["phases"]]
            sizes += [sample["rss_bytes"] for sample in chart.document["timeline"]]
            name = str(chart.document["model"])
            tops[name] = max([tops.get(name, 0), *sizes])

    def scaled(chart: Chart) -> Chart:
        if chart.kind != "timeline":
            return chart
        return replace(chart, document={**chart.document, SCALE: tops[str(chart.document["model"])]})

    return [replace(each, charts=tuple(map(scaled, each.charts))) for each in sections]


def document_of(result: Any) -> Document:
    """The JSON document of a result."""
    if isinstance(result, Mapping):
        return result
    if callable(getattr(result, "document", None)):
        document: Document = result.document()
        return document
    from onnxmem.estimation.planning import Planning  # noqa: PLC0415  what parses models is large
    from onnxmem.placement.plan import Plan  # noqa: PLC0415

    if isinstance(result, Plan):
        return Planning.of(result).document()
    raise UsageError(f"there is no report on a {type(result).__name__}")


def read_report(paths: Iterable[str | PathLike[str]], title: str = "") -> Report:
    """One report of saved results: files that verbs wrote with `--json`, or reports saved as JSON; `-` is stdin."""
    documents: list[Document] = []
    for path in paths:
        for document in _read(Path(path)):
            try:
                _on_one_scale([section(document)])
            except OnnxmemError as error:
                raise UsageError(f"'{path}': {error}", hint=error.hint) from error
            documents.append(document)
    return make_report(documents, title)


def _read(path: Path) -> list[Document]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        content = json.loads(text, parse_constant=_refuse)
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what is no text is a ValueError, too
        raise UsageError(f"'{path}' is not a JSON file", hint="results are what verbs print with --json") from error
    if not isinstance(content, dict):
        raise UsageError(f"'{path}' is no result of onnxmem", hint="results are what verbs print with --json")
    if content.get("schema") == SCHEMA and isinstance(content.get("documents"), list):
        return [document for document in content["documents"] if isinstance(document, dict)]
    return [content]


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON")


def _title(documents: list[Document]) -> str:
    models = list(dict.fromkeys(str(d["model"]) for d in documents if d.get("model")))
    # A file and the model in it are one: "U-Net" and "unet.onnx" would be two, and then no name is better than half.
    return f"Memory of {words(models[0], 80)}" if len(models) == 1 else "Memory report"
