"""The sections on a package, what was packed, for which CPU, and how to load it; and on models that were written."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from onnxmem.commands import path_word
from onnxmem.report.cells import Document, known, name, number, sentence, size, words
from onnxmem.report.report import Action, Cell, Fact, Section, Table
from onnxmem.report.sections.common import model, session_line, shapes_text
from onnxmem.session.modes import find_mode
from onnxmem.units import format_bytes, format_count, format_percent, format_times


def section(document: Document) -> Section:
    """`onnxmem.package/1`: the manifest, its `folder`, and its size in `bytes`."""
    folder, mode = words(document.get("folder") or "package", 120), find_mode(str(document["mode"]))
    done = f", {words(document['done'], 30)}" if document.get("done") else ""
    weights, verified = document["weights"], document["verified"]
    shared = "one copy for all processes" if mode.shared else "those that kernels pack are copied by each process"
    outputs = f"equal to {words(verified['reference'], 80)}, bit for bit, on {shapes_text(verified['inputs'])}"
    facts = [
        Fact("files", size(document, "bytes"), ", ".join(words(file["name"], 60) for file in document["files"])),
        Fact("weights", size(weights, "raw_bytes"), f"mapped: {shared}"),
        Fact("packed weights", size(weights, "packed_bytes"), "mapped, and used in place of their unpacked forms"),
        Fact("in the graph", size(weights, "inline_bytes"), "small weights, a copy in each process"),
    ]
    facts[:0] = _run_facts(document)
    path = words(document.get("folder") or "package", 400)
    load = Action("Load it", command=session_line(path))
    together = shlex.join(["onnxmem", "share", path_word(path)])
    share = Action("See what several processes take together", command=together)
    return Section(
        f"Package {folder}{done}",
        f"{known(document, 'bytes')} in mode {mode.name}: {mode.about}. Its outputs are {outputs}.",
        facts=tuple(fact for fact in facts if fact.cell.value),
        actions=(load, share),
        tables=(*_reduced(document), _plans(document)),
        notes=_notes(document),
    )


def _run_facts(document: Document) -> list[Fact]:
    """What runs need, where that was made less."""
    facts = []
    for reduced in document.get("reduced") or ():
        before, after = number(reduced, "before_bytes") or 0, number(reduced, "after_bytes") or 0
        if after < before:
            times, on = format_times(after / before), shapes_text(reduced["inputs"])
            detail = f"instead of {format_bytes(before)}, {times}, on {on}"
            facts.append(Fact("runs need", size(reduced, "after_bytes"), detail))
    return facts


def _reduced(document: Document) -> list[Table]:
    """What was done so that runs need less: what each part gave, and what it costs."""
    tables = []
    for reduced in document.get("reduced") or ():
        if not reduced["parts"]:
            continue
        rows = [(Cell("as ONNX Runtime runs it"), size(reduced, "before_bytes"), Cell(""))]
        rows += [(Cell(words(part["part"], 60)), _less(part), Cell(_cost(part))) for part in reduced["parts"]]
        rows.append((Cell("together, in its plan"), size(reduced, "after_bytes"), Cell("")))
        title = f"What runs need on {shapes_text(reduced['inputs'])}"
        tables.append(Table(title, ("part", "gave", "cost"), tuple(rows)))
    return tables


def _less(part: Document) -> Cell:
    gave = number(part, "gave_bytes") or 0
    return Cell(f"{format_bytes(gave)} less" if gave > 0 else "nothing", gave)


def _cost(part: Document) -> str:
    nodes, work = number(part, "nodes") or 0, number(part, "extra_work") or 0.0
    costs = [format_count(int(nodes), "more node")] * bool(nodes) + [f"{format_percent(work)} more work"] * (work > 0)
    return ", ".join(costs) or "nothing"


def _plans(document: Document) -> Table:
    rows = []
    for plan in document.get("plans") or ():
        above = (number(plan, "peak_bytes") or 0) - (number(plan, "lower_bound_bytes") or 0)
        how = f"{format_bytes(above)} above the lower bound" if above > 0 else "provably minimal"
        rows.append((Cell(shapes_text(plan["inputs"])), size(plan, "peak_bytes"), Cell(how)))
    # A graph with tiles has a plan of its own, which the table of what runs need ends with.
    title = "Planned runs without tiles" if document.get("tiled") else "Planned runs"
    return Table(title, ("inputs", "peak", "how good"), tuple(rows))


def _notes(document: Document) -> list[str]:
    mode, order = find_mode(str(document["mode"])), document.get("order")
    cpu = words((document.get("cpu") or {}).get("machine", "these"), 40)
    notes = [
        f"Made for ONNX Runtime {words(document['onnxruntime'], 20)} and {cpu} CPUs with the features of this one."
    ]
    if order:
        bound, before = known(order, "bound_bytes"), known(order, "default_bound_bytes")
        instead = f", not {before}" * (bound != before)
        nodes = "Without tiles, its nodes" if document.get("tiled") else "Its nodes"
        notes.append(f"{nodes} run in the order '{words(order['name'], 40)}': a run needs at least {bound}{instead}.")
    notes.append(f"Trade-off: {mode.costs}. Avoid if {mode.avoid}.")
    source = document.get("source") or {}
    files = format_count(len(source.get("files") or ()), "file")
    notes.append(f"Packed from {words(source.get('path') or 'a model', 200)} ({files}).")
    return notes + [sentence(note) for note in document.get("notes") or ()]


def conversion_section(document: Document) -> Section:
    """`onnxmem.convert/1`."""
    files = document["files"]
    first = words(files[0]["path"], 200) if files else "nothing"
    measure = Action("Measure what it takes", command=shlex.join(["onnxmem", "measure", path_word(first)]))
    total = size({"bytes": sum(file["bytes"] for file in files)}, "bytes")
    return Section(
        f"{model(document)}, converted",
        f"{first} holds the model as {words(document['to'], 20)}: {total.text}.",
        facts=(Fact("written", total, ", ".join(words(PurePath(file["path"]).name, 60) for file in files)),),
        actions=(measure,) if files else (),
        tables=(Table("Files", ("file", "size"), tuple((name(f["path"], 200), size(f, "bytes")) for f in files)),),
    )


def zoo_section(document: Document) -> Section:
    """`onnxmem.zoo/1`: the networks there are, or the one that was written."""
    if "models" not in document:
        path = words(document["path"], 200)
        summary = f"{path} holds {words(document['model'], 40)} with random weights: {known(document, 'bytes')}."
        estimate = Action("Estimate what it takes", command=shlex.join(["onnxmem", "estimate", path_word(path)]))
        return Section(f"{model(document)}, from the zoo", summary, actions=(estimate,))
    rows = tuple((Cell(words(each["name"], 40)), Cell(words(each["about"], 120))) for each in document["models"])
    return Section(
        "The zoo",
        f"{format_count(len(rows), 'classic network')} with random weights; their batch, size or length is free.",
        actions=(Action("Write one of them", command="onnxmem zoo NAME -o MODEL.onnx"),),
        tables=(Table("Networks", ("name", "what it is"), rows),),
    )
