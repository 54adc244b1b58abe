"""The section on checks: which models are within their budgets, which are not, by how much, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from onnxmem.commands import path_word
from onnxmem.report.cells import Document, day, name, number, percent, reasons, seconds, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_machine, figures, shapes_text
from onnxmem.units import format_bytes, format_count

_ROOM = 900
_ANSWERS = {"ok": "ok", "exceeded": "over budget", "grown": "has grown", "failed": "failed"}
_FIGURES = (
    ("peak RSS", "peak_bytes", "the most that the process took"),
    ("peak RSS while loading", "load_peak_bytes", "the most while loading"),
    ("RSS when loaded", "loaded_bytes", "before the first run"),
    ("growth by running", "run_growth_bytes", "peak RSS in all runs − RSS before"),
    ("RSS after its runs", "steady_bytes", "what it keeps between runs"),
)


def section(document: Document) -> Section:
    """`onnxmem.check/1`."""
    checks = document["checks"]
    wrong = [check for check in checks if check["verdict"] != "ok"]
    alone = len(checks) == 1
    tables = (_alone(checks[0]), _parts(checks[0])) if alone else (_overview(checks),)
    return Section(
        f"{_title(checks[0])}, checked" if alone else f"{format_count(len(checks), 'check')} of memory",
        words(checks[0]["sentence"], _ROOM) if alone else _summary(checks, wrong),
        facts=_facts(checks[0]) if alone else (),
        actions=_actions(wrong),
        story=() if alone else tuple(words(check["sentence"], _ROOM) for check in wrong),
        charts=_charts(wrong),
        tables=tables,
        notes=tuple(_notes(document, checks)),
        alarm=bool(wrong),
    )


def _title(check: Document) -> str:
    title = words(check["case"].get("name") or check["model"], 80)
    return f"{title} in mode {words(check['mode'], 30)}"


def _summary(checks: list[Document], wrong: list[Document]) -> str:
    if not wrong:
        return f"All {len(checks)} are within their budgets." if _budgeted(checks) else f"None of {len(checks)} grew."
    counts = {answer: sum(each["verdict"] == verdict for each in wrong) for verdict, answer in _ANSWERS.items()}
    listed = ", ".join(f"{count} {answer}" for answer, count in counts.items() if count)
    return f"{len(wrong)} of {format_count(len(checks), 'check')} did not pass: {listed}."


def _budgeted(checks: list[Document]) -> bool:
    return any(number(check, "budget_bytes") is not None for check in checks)


def _label(check: Document) -> str:
    """What the figure of a check is called."""
    label = words(check["label"], 60)
    return f"{label}, estimated" if check["case"]["by"] == "estimate" else label


def _facts(check: Document) -> tuple[Fact, ...]:
    taken, budget, before = number(check, "bytes"), number(check, "budget_bytes"), check.get("baseline")
    facts = [Fact(_label(check), size(check, "bytes"), _spread(check))] if taken is not None else []
    if budget is not None:
        excess = number(check, "excess_bytes")
        left = "" if excess is None else f"{format_bytes(abs(excess))} {'too much' if excess > 0 else 'are left'}"
        part = f", {percent({'part': taken / budget}, 'part').text} of it is taken" if taken and budget else ""
        facts.append(Fact("budget", size(check, "budget_bytes"), f"{left}{part}"))
    if before:
        grown = number(check, "growth_bytes")
        about = f"{_signed(grown)} since {day(before['date'])}" if grown is not None else ""
        facts.append(Fact("before", size(before, "bytes"), f"{about}; {words(before['origin'], 60)}"))
        facts.append(Fact("allowed growth", Cell(format_bytes(before["allowed_bytes"] - before["bytes"]))))
    if number(check["figures"], "latency_seconds") is not None:
        facts.append(Fact("latency", seconds(check["figures"], "latency_seconds"), "median of its steady runs"))
    return tuple(facts)


def _spread(check: Document) -> str:
    spread = check.get("spread_bytes")
    return f"the highest of several processes; the lowest took {format_bytes(spread[0])}" if spread else ""


def _signed(change: int | float | None) -> str:
    return "" if change is None else f"{'+' if change > 0 else ''}{format_bytes(change)}"


def _actions(wrong: Iterable[Document]) -> tuple[Action, ...]:
    """For each check that did not pass what would help, if anything is known to."""
    actions = []
    for check in wrong:
        fitting = next((each for each in check.get("remedies") or () if each["fits"]), None)
        if fitting:
            saved, mode = number(check, "bytes"), words(fitting["mode"], 30)
            saving = format_bytes(saved - fitting["bytes"]) if saved is not None else ""
            text = f"Run {words(check['model'], 60)} in mode {mode}, in which it fits"
            actions.append(Action(text, saving, _command(check, "measure", mode)))
        elif check["verdict"] in ("exceeded", "grown"):
            text = f"See what takes the memory of {words(check['model'], 60)}"
            actions.append(Action(text, command=_command(check, "measure", words(check["mode"], 30))))
    return tuple(actions[:3])


def _command(check: Document, verb: str, mode: str) -> str:
    scenario = check["case"]["scenario"]
    given = [f"--shape={key}={'x'.join(map(str, dims))}" for key, dims in (scenario.get("shapes") or {}).items()]
    given += [f"--dim={key}={value}" for key, value in (scenario.get("dims") or {}).items()]
    given += [f"--threads={scenario['threads']}"] if scenario.get("threads") else []
    given += [f"--inputs={scenario['inputs']}"] if scenario.get("inputs") else []
    return words(shlex.join(["onnxmem", verb, path_word(scenario["model"]), *given, "--mode", mode]), 400)


def _charts(wrong: Iterable[Document]) -> tuple[Chart, ...]:
    """What those that are over their budgets are made of."""
    over = [check for check in wrong if check.get("parts")]
    # One line across all bars: only if it is about whole bars, and about all of them.
    budgets = {check["budget_bytes"] if check["case"]["figure"] == "peak" else None for check in over}
    budget = budgets.pop() if len(budgets) == 1 else None
    bars: list[dict[str, Any]] = [
        {
            "label": _title(check),
            "parts": [{"name": words(part, 40), "bytes": bytes_} for part, bytes_ in check["parts"].items()],
            "budget_bytes": budget,
        }
        for check in over
    ]
    if not bars:
        return ()
    told = "; ".join(f"{bar['label']}: {', '.join(map(_part, bar['parts']))}" for bar in bars)
    return (Chart("peak parts", "What the peak is made of", f"One bar each. {told}.", {"bars": bars}),)


def _part(part: Document) -> str:
    return f"{part['name']} {format_bytes(part['bytes'])}"


def _overview(checks: list[Document]) -> Table:
    titles = {_label(check) for check in checks}
    columns = ["check", "mode", titles.pop() if len(titles) == 1 else "figure", "budget", "left", "before", "answer"]
    rows = []
    for check in checks:
        excess = number(check, "excess_bytes")
        left = {"left": None if excess is None else -excess}
        shapes = f" ({shapes_text(check['key']['shapes'])})" if check["key"].get("shapes") else ""
        title = words(check["case"].get("name") or check["model"], 60)
        rows.append((
            name(f"{title}{shapes}", 80),
            Cell(words(check["mode"], 30)),
            size(check, "bytes"),
            size(check, "budget_bytes"),
            size(left, "left"),
            size(check.get("baseline") or {}, "bytes"),
            Cell(_ANSWERS.get(check["verdict"], words(check["verdict"], 30))),
        ))  # fmt: skip
    return Table("Checks", tuple(columns), tuple(rows)).without_empty_columns()


def _alone(check: Document) -> Table:
    rows = [{**check["figures"], "figure": label, "bytes": number(check["figures"], key), "about": about}
            for label, key, about in _FIGURES]  # fmt: skip
    known_rows = [row for row in rows if row["bytes"] is not None]
    columns = (("size", "bytes", size), ("what it is", "about", lambda row, key: Cell(row[key])))
    return figures("All figures", "figure", columns, known_rows)


def _parts(check: Document) -> Table:
    rows = [{"part": part, "bytes": bytes_} for part, bytes_ in (check.get("parts") or {}).items()]
    return figures("The parts of the peak", "part", (("size", "bytes", size),), rows)


def _notes(document: Document, checks: list[Document]) -> list[str]:
    notes = []
    if len(checks) == 1 and checks[0]["key"].get("shapes"):
        notes.append(f"Inputs: {shapes_text(checks[0]['key']['shapes'])}.")
    for check in checks:
        notes += [words(note) for note in check.get("notes") or ()]
        if check.get("hint"):
            notes.append(f"{_title(check)}: {words(check['hint'], 600)}.")
        before = check.get("baseline") or {}
        if before.get("since"):
            since = "; ".join(words(each, 120) for each in before["since"])
            notes.append(f"Changed since {day(before['date'])}: {since}.")
        unknown = list(reasons(check, "bytes")) if check["verdict"] != "failed" else []
        notes += [f"Not known: {reason}." for reason in unknown]
    if document.get("commit"):
        notes.append(f"Commit {words(document['commit'], 60)}.")
    machine = about_machine(document)
    if all(check["case"]["by"] == "estimate" for check in checks):
        machine = [note.replace("Measured with", "Estimated for") for note in machine]
    return [*notes, *machine]
