"""The section on letting go: which step gave the memory back, and what stayed."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, number, percent, reasons, size, words
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_inputs, about_machine, few, model

_COLUMNS = (
    ("RSS", "rss_bytes"),
    ("anonymous", "anon_bytes"),
    ("file-backed", "file_bytes"),
    ("virtual", "virtual_bytes"),
    ("freed (RSS)", "freed_bytes"),
)


def section(document: Document) -> Section:
    """`onnxmem.release/1`."""
    fraction = number(document, "released_fraction")
    text = "What the model took cannot be told here."
    if fraction is not None:
        part = percent(document, "released_fraction").text
        text = f"{part} of the memory of {model(document)} came back without ending the process."
    return Section(
        f"Letting go of {model(document)}",
        text,
        story=tuple(words(sentence, 800) for sentence in document.get("explanation") or ()),
        facts=_facts(document),
        charts=_charts(document),
        tables=(_table(document),),
        notes=few(_notes(document)),
        source=document,
    )


def _facts(document: Document) -> tuple[Fact, ...]:
    facts = (
        Fact("given back", percent(document, "released_fraction"), "of the model's own memory, process alive"),
        Fact("the model brought", size(document, "growth_bytes"), "RSS after its runs − RSS before loading"),
        Fact("stayed", size(document, "left_bytes"), "RSS after all steps − RSS before loading"),
    )
    return tuple(fact for fact in facts if fact.label == "given back" or fact.cell.value is not None)


def _charts(document: Document) -> tuple[Chart, ...]:
    if not document["steps"] or not document.get("before") or not document.get("full"):
        return ()
    freed = ", ".join(f"{words(s['name'], 40)} {known(s, 'freed_bytes', 'unknown')}" for s in document["steps"])
    alt = f"One bar per step, with what is still resident and what the step gave back: {freed}."
    return (Chart("waterfall", "What each step gave back", alt, document),)


def _table(document: Document) -> Table:
    states = (("before the model", "before"), ("loaded", "loaded"), ("after runs", "full"))
    rows = []
    for title, key in states:
        if document.get(key):
            rows.append((Cell(title), *(size(document[key], column) for _, column in _COLUMNS[:-1]), Cell("")))
    for step in document["steps"]:
        rows.append((Cell(words(step["name"], 40)), *(size(step, column) for _, column in _COLUMNS)))
    return Table("The steps, in order", ("after", *(title for title, _ in _COLUMNS)), tuple(rows))


def _notes(document: Document) -> list[str]:
    notes = about_inputs(document) + about_machine(document)
    return notes + [f"Not known: {reason}." for reason in reasons(document)]
