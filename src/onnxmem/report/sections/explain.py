"""The section on an explanation: what the peak is made of, and what would make it smaller."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.report.cells import Document, listed, number, percent, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_machine, model, shapes_text
from onnxmem.units import format_bytes, format_count

_SHOWN = 3
_WASTE = ("kept by the heap", "loading", "reuse", "pattern", "arena slack")
"""Parts that another mode does without."""


def section(document: Document) -> Section:
    """`onnxmem.explain/1`."""
    parts, mode = document["parts"], words(document["mode"], 30)
    bar = {"label": mode, "parts": parts, "budget_bytes": None}
    told = ", ".join(f"{words(part['name'], 30)} {format_bytes(part['bytes'])}" for part in parts)
    return Section(
        f"{model(document)} in mode {mode}, explained",
        _summary(document),
        facts=_facts(document),
        actions=next_steps(document["findings"]),
        charts=(Chart("peak parts", "What the peak is made of", f"One bar. {told}.", {"bars": [bar]}),),
        tables=(_parts(document), _findings(document["findings"])),
        notes=_notes(document),
    )


def next_steps(findings: Sequence[Document]) -> tuple[Action, ...]:
    """The first three things to do; findings that one command settles are one of them."""
    groups: dict[str, list[Document]] = {}
    for finding in findings:
        groups.setdefault(finding["command"], []).append(finding)
    return tuple(_action(group) for group in list(groups.values())[:_SHOWN])


def _action(group: Sequence[Document]) -> Action:
    certain = [finding for finding in group if finding["when"] == group[0]["when"]]
    first, saving = certain[0], sum(int(finding["saving_bytes"]) for finding in certain)
    causes = ", ".join(words(finding["what"], 60) for finding in certain)
    when = f" {words(first['when'], 60)}" if first["when"] else ""
    return Action(
        f"{words(first['advice'], 120)} ({causes})", f"{format_bytes(saving)}{when}", words(first["command"], 400)
    )


def _summary(document: Document) -> str:
    parts = sorted(document["parts"], key=lambda part: -part["bytes"])
    largest = listed([f"{words(part['name'], 30)} ({format_bytes(part['bytes'])})" for part in parts[:2]])
    found = format_count(len(document["findings"]), "finding")
    return f"Peak memory: {format_bytes(document['peak_bytes'])}; the largest parts are {largest}; {found}."


def _facts(document: Document) -> tuple[Fact, ...]:
    sizes = {part["name"]: int(part["bytes"]) for part in document["parts"]}
    wasted = sum(sizes.get(name, 0) for name in _WASTE)
    phase = "while loading" if document["load_peak_bytes"] >= document["run_peak_bytes"] else "in runs"
    unknown = {"unknown_bytes": sizes.get("unknown", 0), "wasted_bytes": wasted}
    return (
        Fact("peak RSS", size(document, "peak_bytes"), phase),
        Fact("avoidable", size(unknown, "wasted_bytes"), "freed or reserved memory, pattern, copies of loading"),
        Fact(
            "not explained", size(unknown, "unknown_bytes"), f"{percent(document, 'unknown_fraction').text} of the peak"
        ),
    )


def _parts(document: Document) -> Table:
    peak, about = number(document, "peak_bytes") or 1, document.get("about") or {}
    rows = tuple(
        (
            Cell(words(part["name"], 30)),
            size(part, "bytes"),
            percent({"share": part["bytes"] / peak}, "share"),
            Cell(words(about.get(part["name"], ""), 80)),
        )
        for part in document["parts"]
    )
    return Table("The parts of the peak", ("part", "size", "share", "what it is"), rows)


def _findings(findings: Sequence[Document]) -> Table:
    rows = tuple(
        (
            Cell(words(finding["what"], 60)),
            size(finding, "saving_bytes"),
            Cell(
                words(finding["evidence"], 300) + (f" Saved {words(finding['when'], 60)}." if finding["when"] else "")
            ),
        )
        for finding in findings
    )
    return Table("Findings", ("finding", "saves", "evidence"), rows)


def _notes(document: Document) -> list[str]:
    inputs = document.get("inputs") or {}
    notes = [*map(words, document.get("notes") or ()), f"Inputs: {shapes_text(inputs)}."]
    if document.get("measured"):
        notes.append(f"Measured by: {words(document['measured'], 300)}.")
    return [*notes, "The parts add up to the peak: measured where the system tells, predicted within that.",
            *about_machine(document)]  # fmt: skip
