"""The section on a session that was released in the reader's own process."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, percent, size, words
from onnxmem.report.report import Action, Fact, Section
from onnxmem.report.sections.common import about_machine, few, figures
from onnxmem.report.sections.release import COLUMNS


def section(document: Document) -> Section:
    """`onnxmem.track/1`."""
    session, released = document["session"], document["released"]
    facts = (
        Fact("came back", percent(document, "returned_fraction"), "of the anonymous memory that the model brought"),
        Fact("the model brought", size(document, "brought_bytes"), "anonymous memory, by loading and running"),
        Fact("freed (RSS)", size(document, "freed_bytes"), f"the model's files have {known(document, 'file_bytes')}"),
    )
    kept = bool(released.get("live_outputs") or released.get("held_by"))
    drop = "Drop what still refers to its outputs or to the session, and release it again"
    states = {
        "before loading": document.get("before_load"),
        "loaded": released["before"],
        "released": released["after"],
    }
    rows = [{**state, "when": name} for name, state in states.items() if state]
    system = f"{known(document['system_before'], 'anon_bytes')} → {known(document['system_after'], 'anon_bytes')}"
    return Section(
        f"{words(session['model'], 80)}, released",
        words(document["verdict"], 600),
        facts=tuple(fact for fact in facts if fact.cell.value is not None),
        actions=(Action(drop, command="onnxmem.release(session)"),) if kept else (),
        tables=(figures("This process", "when", COLUMNS, rows),),
        notes=few([f"Anonymous memory system-wide, other programs included: {system}.", *about_machine(document)]),
        alarm=kept,
        source=document,
    )
