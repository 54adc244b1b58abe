"""The section on a measurement: what a model really took, phase by phase."""

from __future__ import annotations

from onnxmem.report.cells import Document, format_seconds, known, name, number, reasons, seconds, size, words
from onnxmem.report.report import Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_inputs, about_machine, few, model
from onnxmem.units import format_bytes

_NODES = 10
_WORTH = 2**20 // 20
_COLUMNS = (
    ("RSS at its end", "rss_bytes"),
    ("peak RSS", "peak_rss_bytes"),
    ("anonymous", "anon_bytes"),
    ("file-backed", "file_bytes"),
    ("PSS", "pss_bytes"),
    ("USS", "uss_bytes"),
)
# The borders at which it is worth asking what the memory is: before the model, with it, in use, and after it.
_BORDERS = ("import", "load", "steady runs", "release", "trim")


# How runs were served.
_SERVED = (
    ("runs_recorded", "recorded"),
    ("runs_replayed", "inside it"),
    ("runs_deviated", "deviated"),
    ("runs_from_heap", "from the heap"),
)


def section(document: Document) -> Section:
    """`onnxmem.measure/1`."""
    failed = document["verdict"]["kind"] != "ok"
    return Section(
        f"{label(document)}, measured",
        _ending(document) if failed else _summary(document),
        facts=_facts(document),
        charts=_charts(document),
        tables=tuple(table for table in (_phases(document), _kinds(document), _nodes(document)) if table.rows),
        notes=few(_notes(document)),
        alarm=failed,
        source=document,
    )


def label(document: Document) -> str:
    """A measurement in two words: the model and how it was run."""
    return f"{model(document)} in mode {how_run(document)}"


def how_run(document: Document) -> str:
    """The mode; what it really was, if it could not be planned."""
    mode, planned = words(document["scenario"]["mode"], 30), document.get("planned")
    return f"{mode} (ran as {words(planned['loaded_mode'], 30)})" if planned and planned["reason"] else mode


def peak(document: Document) -> Document:
    """The phase with the highest peak; an empty one if no peak is known."""
    phases = [phase for phase in document["phases"] if number(phase, "peak_rss_bytes") is not None]
    return max(phases, key=lambda phase: phase["peak_rss_bytes"], default={})


def how_planned(planned: Document) -> str:
    """How good the plan was and how runs were served, or why there was none: the document's `planned` in words."""
    if planned["reason"]:
        return f"Not planned, it ran as {planned['loaded_mode']}: {planned['reason']}"
    plan, bound = planned["plan_bytes"], planned["lower_bound_bytes"]
    if plan is None or bound is None:
        return ", ".join(["no plan was made", *planned["notes"]])
    words = ["provably minimal" if plan <= bound else f"at least {format_bytes(bound)} are needed"]
    for key, what in _SERVED:
        words += [f"{planned[key]} {what}"] if planned[key] else []
    return ", ".join(words + list(planned["notes"]))


def _summary(document: Document) -> str:
    text = f"Loading took {known(document, 'load_growth_bytes')} and running {known(document, 'run_growth_bytes')} more"
    latency = number(document, "latency_seconds")
    return text + (f"; one run takes {format_seconds(latency)}." if latency is not None else ".")


def _ending(document: Document) -> str:
    verdict = document["verdict"]
    where = f" in phase '{words(verdict['phase'], 30)}'" if verdict.get("phase") else ""
    return f"It ended early, {words(verdict['kind'], 30)}{where}: {words(verdict.get('message') or 'no message')}"


def _facts(document: Document) -> tuple[Fact, ...]:
    highest = peak(document)
    facts = [
        Fact("loading took", size(document, "load_growth_bytes"), "peak RSS while loading − RSS before"),
        Fact("running took", size(document, "run_growth_bytes"), "peak RSS in all runs − RSS before the first"),
        Fact("peak RSS", size(highest, "peak_rss_bytes"), f"in phase '{words(highest.get('name', '?'), 30)}'"),
    ]
    planned = document.get("planned")
    if planned and not planned["reason"]:
        facts.append(Fact("its plan takes", size(planned, "plan_bytes"), words(how_planned(planned))))
    spread = document.get("latency_spread_seconds")
    if number(document, "latency_seconds") is not None:
        middle = f"median; {format_seconds(spread['min'])} to {format_seconds(spread['max'])}" if spread else "median"
        facts.append(Fact("latency", seconds(document, "latency_seconds"), middle))
    facts.append(Fact("model files", size(document, "file_bytes"), "external weights included, if there are any"))
    return tuple(facts)


def _charts(document: Document) -> tuple[Chart, ...]:
    if not document["phases"]:
        return ()
    listed = ", ".join(
        f"{words(phase['name'], 30)} {known(phase, 'peak_rss_bytes', 'unknown')}" for phase in document["phases"]
    )
    alt = f"Resident memory over time, split into anonymous and file-backed, and its peak in each phase: {listed}."
    return (Chart("timeline", "Resident memory over time and by phase", alt, document),)


def _phases(document: Document) -> Table:
    rows = []
    for phase in _seen(document):
        title = words(phase["name"], 30) + ("" if phase.get("completed", True) else " (not completed)")
        rows.append((Cell(title), *(size(phase, key) for _, key in _COLUMNS), seconds(phase, "seconds")))
    return Table("Phases", ("phase", *(title for title, _ in _COLUMNS), "time"), tuple(rows))


def _seen(document: Document) -> list[Document]:
    """Without the end of a process that ended well: it has no memory left, and nothing to tell."""
    return [phase for phase in document["phases"] if phase["name"] != "exit" or not phase.get("completed", True)]


def _kinds(document: Document) -> Table:
    """What is resident at the borders that matter."""
    found = {
        phase["name"]: {kind["kind"]: kind for kind in phase["made_of"]}
        for phase in document["phases"]
        if phase["name"] in _BORDERS and phase.get("made_of")
    }
    kinds = dict.fromkeys(kind for column in found.values() for kind in column)
    rows = []
    for kind in kinds:
        cells = [size(column.get(kind, {}), "rss_bytes") for column in found.values()]
        if any((cell.value or 0) >= _WORTH for cell in cells):
            rows.append((name(kind), *cells))
    return Table("What is resident (RSS) at the end of each phase", ("kind", *found), tuple(rows))


def _nodes(document: Document) -> Table:
    runtime = document.get("runtime") or {}
    blamed = {node: place for place, node in enumerate(runtime.get("blamed") or ())}
    nodes = [node for node in runtime.get("nodes") or () if node["name"] in blamed]
    rows = tuple(
        (
            name(node["name"]),
            Cell(words(node["op"], 40)),
            size(node, "dynamic_bytes"),
            size(node, "temporary_bytes"),
            size(node, "in_use_bytes"),
            seconds(node, "seconds"),
        )
        for node in sorted(nodes, key=lambda node: blamed[node["name"]])[:_NODES]
    )
    return Table("Nodes that take most", ("node", "operator", "outputs", "scratch", "in use after", "time"), rows)


def _notes(document: Document) -> list[str]:
    notes = about_inputs(document)
    if (planned := document.get("planned")) and planned["reason"]:
        notes.insert(0, words(how_planned(planned)) + ".")
    runs, repeats = document["scenario"].get("runs"), len(document.get("repeats") or ())
    if runs:
        processes = f"in {repeats} fresh processes" if repeats > 1 else "in a fresh process"
        notes.append(f"Run once and then {runs} times more, {processes}.")
    spreads = [
        f"{words(phase['name'], 30)} {format_bytes(spread[1] - spread[0])}"
        for phase in document["phases"]
        if (spread := (phase.get("spread") or {}).get("peak_rss_bytes"))
    ]
    if spreads:
        notes.append(f"Spread of peak RSS between repetitions: {', '.join(spreads)}.")
    notes += about_machine(document)
    missing = reasons(document)
    for phase in _seen(document):
        missing |= reasons(phase, *(key for _, key in _COLUMNS))
    return notes + [f"Not known: {reason}." for reason in missing]
