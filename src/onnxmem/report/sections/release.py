"""The sections on releasing a model, step by step, in the reader's own process, or by ending another."""

from __future__ import annotations

from dataclasses import replace

from onnxmem.releasing.rungs import ABOUT
from onnxmem.report.cells import Document, known, number, percent, reasons, sentence, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import Columns, about_inputs, about_machine, figures, model
from onnxmem.units import format_bytes

_WORTH = 2**20
_COLUMNS: Columns = (
    ("RSS", "rss_bytes", size),
    ("anonymous", "anon_bytes", size),
    ("file", "file_bytes", size),
    ("virtual", "virtual_bytes", size),
)


def section(document: Document) -> Section:
    """`onnxmem.release/1`. Its sentences were written where it was measured: here they are only shown."""
    answer, *story = document.get("explanation") or ("What the model took cannot be told here.",)
    return Section(
        f"Releasing {model(document)}{f' on {_device(document)}' if _device(document) else ''}",
        words(answer, 800),
        facts=_facts(document),
        actions=_actions(document),
        story=tuple(words(text, 800) for text in story),
        charts=_charts(document),
        tables=(_table(document), _legend(document)),
        notes=_notes(document),
    )


def _device(document: Document) -> str:
    """The device that it ran on; nothing for the CPU."""
    device = words((document.get("scenario") or {}).get("device", "cpu"), 30)
    return "" if device == "cpu" else device


def _facts(document: Document) -> tuple[Fact, ...]:
    if _device(document):
        last = document["steps"][-2]
        return (
            Fact("taken on the device", size(document["full"], "device_bytes"), "after the runs"),
            Fact("left there", size(last, "device_bytes"), "after all steps, until the process ends"),
            Fact("on the host", size(document, "brought_bytes"), "brought by the model"),
            Fact("came back", percent(document, "released_fraction"), "of that"),
        )
    facts = (
        Fact("came back", percent(document, "released_fraction"), "of what the model brought, process still alive"),
        Fact("the model brought", size(document, "brought_bytes"), "anonymous memory, and pages of its mapped files"),
        Fact("returned", size(document, "returned_bytes"), "of it, after all steps"),
        Fact("remaining", size(document, "remaining_bytes"), "of it, until the process ends"),
    )
    return tuple(fact for fact in facts if fact is facts[0] or fact.cell.value is not None)


def _actions(document: Document) -> tuple[Action, ...]:
    """Calls, not commands: it is the program that holds the model that has to make them."""
    returned, remaining = (number(document, key) or 0 for key in ("returned_bytes", "remaining_bytes"))
    actions = []
    if returned >= _WORTH:
        text = "Close the session and trim the allocator with one call"
        actions.append(Action(text, format_bytes(returned), "onnxmem.release(session)"))
    if remaining >= _WORTH:
        text = "Run it in a process of its own, which gives everything back"
        call = f'onnxmem.IsolatedSession("{model(document)}")'
        actions.append(Action(text, f"another {format_bytes(remaining)}", call))
    return tuple(actions)


def _charts(document: Document) -> tuple[Chart, ...]:
    # A picture would show the host's memory.
    if _device(document) or not document["steps"] or not document.get("before") or not document.get("full"):
        return ()
    freed = ", ".join(f"{words(s['name'], 40)} {known(s, 'freed_bytes', 'unknown')}" for s in document["steps"])
    alt = f"One bar per step, with what is still resident and what the step gave back: {freed}."
    return (Chart("waterfall", "What each step gave back", alt, document),)


def _table(document: Document) -> Table:
    states = (("before the model", "before"), ("loaded", "loaded"), ("after runs", "full"))
    rows = [{**document[key], "after": title} for title, key in states if document.get(key)]
    rows += [{**step, "after": step["name"], "freed": step.get("freed_bytes")} for step in document["steps"]]
    freed = ("freed (RSS)", "freed", lambda row, key: size(row, key) if key in row else Cell(""))
    device = ("device", "device_bytes", size)
    return figures("The steps, in order", "after", (device, *_COLUMNS, freed), rows).without_empty_columns()


def _legend(document: Document) -> Table:
    named = [(step["name"], ABOUT[step["name"]]) for step in document["steps"] if step["name"] in ABOUT]
    return Table("What the steps are", ("step", "what it does"), tuple((Cell(a), Cell(b)) for a, b in named))


def _notes(document: Document) -> list[str]:
    scenario = document.get("scenario") or {}
    runs = f", 1 + {scenario['runs']} runs" if scenario.get("runs") else ""
    files = f", files {known(document, 'file_bytes')}" if number(document, "file_bytes") is not None else ""
    notes = [f"Mode {words(scenario.get('mode', 'stock'), 30)}{runs}{files}."]
    notes += about_inputs(document) + about_machine(document)
    return notes + [sentence(f"not known: {reason}") for reason in reasons(document)]


def track_section(document: Document) -> Section:
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
        tables=(figures("This process", "when", _COLUMNS, rows),),
        notes=[f"Anonymous memory system-wide, other programs included: {system}.", *about_machine(document)],
        alarm=kept,
    )


def demonstration_section(document: Document) -> Section:
    """`onnxmem.demonstrate/1`."""
    steps, isolation = section(document["ladder"]), document["isolation"]
    child = isolation["child"]
    system = f"{known(isolation['system_full'], 'anon_bytes')} to {known(isolation['system_after'], 'anon_bytes')}"
    return replace(
        steps,
        summary=words(document["verdict"], 600),
        facts=(
            *steps.facts[:3],
            Fact("isolated: came back", percent(isolation, "returned_fraction"), "of the child's anonymous memory"),
            Fact("isolated: took", size(child, "rss_bytes"), "RSS of a process of its own; nothing after close()"),
        ),
        notes=(
            f"On close(), anonymous memory system-wide, other programs included, went from {system}.",
            *steps.notes,
        ),
    )
