"""A ladder of letting go as a JSON document and as text for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxmem.releasing.explanation import explain_release
from onnxmem.releasing.ladder import Ladder, Step
from onnxmem.releasing.rungs import ABOUT
from onnxmem.report.charts.layout import printable
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown

SCHEMA = "onnxmem.release/1"
_MIB = 2**20


def release_document(ladder: Ladder) -> dict[str, Any]:
    """`onnxmem.release/1`: bytes as integers, null with a reason where nothing is known."""
    unknown: dict[str, str] = {}

    def known(name: str, value: Any) -> Any:
        if isinstance(value, Unknown):
            unknown[name] = value.reason
            return None
        return value

    feeds = ladder.feeds
    return {
        "schema": SCHEMA,
        "model": ladder.scenario.model.name,
        "file_bytes": ladder.file_bytes,
        "scenario": ladder.scenario.document(),
        "inputs": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in feeds.arrays.items()},
        "dims": {"given": dict(feeds.given), "assumed": dict(feeds.assumed)},
        "before": _step(ladder.before),
        "loaded": _step(ladder.loaded),
        "full": _step(ladder.full),
        "steps": [_step(step) for step in ladder.steps],
        "growth_bytes": known("growth_bytes", ladder.growth),
        "growth_anon_bytes": known("growth_anon_bytes", ladder.growth_anon),
        "left_bytes": known("left_bytes", ladder.left),
        "left_anon_bytes": known("left_anon_bytes", ladder.left_anon),
        "left_by_kind": ladder.left_by_kind,
        "released_fraction": known("released_fraction", ladder.released_fraction),
        "released_fraction_anon": known("released_fraction_anon", ladder.released_fraction_anon),
        "released_fraction_rss": known("released_fraction_rss", ladder.released_fraction_rss),
        "has_clear_cache": ladder.released.clear_cache,
        "explanation": list(explain_release(ladder)),
        "environment": ladder.environment.document(),
        "unknown": unknown,
    }


def release_text(ladder: Ladder) -> RenderableType:
    """What `onnxmem release` prints."""
    scenario, feeds = ladder.scenario, ladder.feeds
    what = f"  mode {scenario.mode}, 1 + {scenario.runs} runs, files {format_bytes(ladder.file_bytes)}"
    parts: list[RenderableType] = [Text.assemble((printable(scenario.model.name), "bold"), what)]
    if feeds.assumed:
        assumed = ", ".join(f"{printable(name)}={number}" for name, number in feeds.assumed.items())
        parts.append(Text(f"assumed {assumed}; set with --dim or --shape", style="yellow"))
    parts += ["", _table(ladder), ""]
    fraction = ladder.released_fraction
    if isinstance(fraction, float):
        share = f"{fraction:.1%} of the model's memory came back without ending the process."
        parts.append(Text(share, style="bold"))
    parts += [Text(printable(sentence)) for sentence in explain_release(ladder)]
    parts += ["", Text("What the steps are", style="bold"), _legend(ladder)]
    return Group(*parts)


def _table(ladder: Ladder) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("MiB after each step", no_wrap=True, min_width=20)
    for name in ("RSS", "anonymous", "file", "virtual", "freed (RSS)"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, step in (("before the model", ladder.before), ("loaded", ladder.loaded), ("after runs", ladder.full)):
        table.add_row(name, *_figures(step), "", style="dim")
    for step in ladder.steps:
        freed = _mib(step.freed)
        worth = isinstance(step.freed, int) and step.freed >= _MIB
        table.add_row(step.name, *_figures(step), freed, style="bold" if worth else "")
    return table


def _legend(ladder: Ladder) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=20)
    table.add_column(overflow="fold", style="dim")
    for step in ladder.steps:
        table.add_row(step.name, ABOUT[step.name])
    return table


def _figures(step: Step) -> list[str]:
    reading = step.reading
    return [_mib(value) for value in (reading.rss, reading.anon, reading.file, reading.virtual)]


def _mib(value: Bytes) -> str:
    # Less than half a tenth below nothing is nothing: adding zero takes the sign off.
    return "?" if isinstance(value, Unknown) else f"{round(value / _MIB, 1) + 0.0:.1f}"


def _step(step: Step) -> dict[str, Any]:
    document = step.reading.document()
    unknown = document.pop("unknown", {})
    del document["at_seconds"], document["peak_rss_bytes"]
    figures = {
        "freed_bytes": step.freed,
        "freed_anon_bytes": step.freed_anon,
        "freed_file_bytes": step.freed_file,
        "model_mappings": step.model_mappings,
        "model_mapped_bytes": step.model_mapped,
    }
    unknown |= {name: value.reason for name, value in figures.items() if isinstance(value, Unknown)}
    unknown.pop("peak_rss_bytes", None)
    return {
        "name": step.name,
        **document,
        **{name: None if isinstance(value, Unknown) else value for name, value in figures.items()},
        "seconds": step.seconds,
        "unknown": unknown,
    }
