"""The section on what fits: the largest size of each mode, what lets more in, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnxmem.fitting.changes import PACKED
from onnxmem.report.cells import Document, count, known, listed, number, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import about_assumed, about_machine, ask_for_sizes, command, model
from onnxmem.units import format_bytes, format_count, format_percent, typed_exactly

_KEPT = ("--range", "--threads")
_ASKED = ("--dim", "--shape", "--threads", "--mode")
_FEW = 4


def section(document: Document) -> Section:
    """`onnxmem.fit/1`."""
    if document["budget_bytes"] is None:
        return _curves(document)
    answers = document["answers"]
    shown = next((each for each in answers if each["recommended"]), answers[0])
    return Section(
        f"{model(document)}, {format_bytes(document['budget_bytes'])}"
        + (f", {format_count(document['workers'], 'worker')}" if document["workers"] > 1 else ""),
        " ".join(_summary(document, answer) for answer in answers),
        facts=_facts(document, shown),
        actions=_all_actions(document),
        charts=tuple(_chart(document, answer) for answer in answers if _is_curve(answer)),
        tables=tuple(table for answer in answers for table in _tables(answer)),
        notes=_notes(document),
        alarm=not document["fits"],
    )


def _curves(document: Document) -> Section:
    """What sizes take, without a budget to keep."""
    answers = document["answers"]
    ends = [_ends(mode) for mode in answers[0]["modes"]]
    return Section(
        f"{model(document)} by {_axis(answers[0]) or 'mode'}"
        + (f", {format_count(document['workers'], 'worker')}" if document["workers"] > 1 else ""),
        " ".join(_growth(answer, bool(document["unknown_tensors"])) for answer in answers),
        facts=tuple(Fact(name, size(last, "bytes"), f"at {last['size']:,}") for name, _, last in ends[:_FEW])
        if _axis(answers[0])
        else tuple(Fact(name, size(first, "bytes")) for name, first, _ in ends[:_FEW]),
        actions=(
            Action("See how much of it fits", command=command(document, "fit", "--budget", "512MiB", kept=_ASKED)),
        ),
        charts=tuple(_chart(document, answer) for answer in answers if _is_curve(answer)),
        tables=tuple(_by_size(answer) for answer in answers),
        notes=_notes(document),
    )


def _ends(mode: Document) -> tuple[str, Document, Document]:
    return words(mode["mode"], 30), mode["points"][0], mode["points"][-1]


def _growth(answer: Document, unknown: bool) -> str:
    axis = _axis(answer)
    parts = []
    for name, first, last in map(_ends, answer["modes"]):
        if name in ("stock", "planned") or len(answer["modes"]) == 1:
            at = f" at {first['size']:,} to {known(last, 'bytes')} at {last['size']:,}" if axis else ""
            parts.append(f"{name} {known(first, 'bytes')}{at}")
    doubt = ", without tensors of unknown size" if unknown else ""
    return f"Predicted memory{f' by {axis}' if axis else ''}{doubt}: {', '.join(parts)}." if parts else ""


def _axis(answer: Document) -> str:
    return words(" = ".join(answer["axis"]["names"]), 30)


def _summary(document: Document, answer: Document) -> str:
    budget, axis, modes = format_bytes(document["budget_bytes"]), _axis(answer), answer["modes"]
    best = next((mode for mode in modes if mode["mode"] == answer["recommended"]), None)
    stock = next((mode for mode in modes if mode["mode"] == "stock"), None)
    who = "" if document["workers"] == 1 else f" for {format_count(document['workers'], 'worker')}"
    if best is None:
        least = min(modes, key=lambda mode: int(mode["points"][0]["needed_bytes"]))
        at = f"{axis} {least['points'][0]['size']:,}" if axis else "the model"
        need = format_bytes(least["points"][0]["bytes"])
        sure = known(least["points"][0], "needed_bytes")
        tiles = answer.get("tiles")
        pieces = f" In pieces, {known(tiles, 'needed_bytes')} will do." if tiles else ""
        return (
            f"Nothing fits {budget}{who}: {at} takes {need} {words(least['mode'], 30)}, the least of all, and needs "
            f"{sure} to be sure.{pieces}"
        )
    if not axis:
        fitting = [words(mode["mode"], 30) for mode in modes if mode["holds"] is not None]
        where = "as it is" if stock is not None and stock["holds"] is not None else f"only {listed(fitting)}"
        takes = f"{known(held, 'peak_bytes')} measured" if (held := _held(best)) else known(best, "bytes")
        doubt = " by the tensors whose size is known" if _unsure(document, best) else ""
        return f"It fits {budget}{who}{doubt} {where}: {takes} {words(best['mode'], 30)}."
    parts = [] if stock is None else [_part(answer, stock)]
    if stock is None or best["mode"] != stock["mode"]:
        parts.append(_part(answer, best))
    # What is not counted can only make it smaller.
    doubt = " by the tensors whose size is known: at most" if _unsure(document, best) else ":"
    return f"Largest {axis} that fits {budget}{who}{doubt} {', '.join(parts)}."


def _unsure(document: Document, mode: Document) -> bool:
    """Whether tensors of unknown size are missing from what is said of a mode: a measurement has them all."""
    return bool(document["unknown_tensors"]) and not mode.get("verified")


def _held(mode: Document) -> Document | None:
    """The measurement of the size that held, if there is one."""
    verified = mode.get("verified") or {"attempts": ()}
    held = [each for each in verified["attempts"] if each["fits"] and each["size"] == verified["size"]]
    return held[-1] if held else None


def _part(answer: Document, mode: Document) -> str:
    called = "as it is" if mode["mode"] == "stock" else words(mode["mode"], 30)
    if mode["holds"] is None:
        return f"none {called}"
    gain = number(answer["gains"], mode["mode"])
    more = f" (+{gain:.0%})" if gain is not None and gain >= 0.005 else ""
    beyond = " and more" if mode["open_end"] else ""
    return f"{mode['holds']:,}{beyond} {called}{more}"


def _facts(document: Document, answer: Document) -> tuple[Fact, ...]:
    best = next((mode for mode in answer["modes"] if mode["mode"] == answer["recommended"]), None)
    free = "measured against it, without a margin"
    if best is None or not best.get("verified"):
        free = "room is kept for what predictions may be off"
    facts = [Fact("budget", size(document, "budget_bytes"), free)]
    if best is None:
        return tuple(facts)
    name, verified = words(best["mode"], 30), best.get("verified")
    if verified and (held := _held(best)):
        facts.append(Fact("measured", size(held, "peak_bytes"), _measured_how(document, name, verified)))
    elif best["bytes"] is not None:
        facts.append(Fact("predicted", size(best, "bytes"), f"{name}, at the largest that fits"))
    most = max(answer["modes"], key=lambda mode: int(mode["workers"]))
    at = f"at {_axis(answer)} {most['points'][0]['size']:,}" if _axis(answer) else "as it is"
    facts.append(
        Fact("workers that fit", count(most, "workers"), f"{words(most['mode'], 30)}, {at}, sharing what they can")
    )
    return tuple(facts)


def _measured_how(document: Document, name: str, verified: Document) -> str:
    if document["workers"] > 1:
        return f"{name}, sum of PSS of {format_count(document['workers'], 'worker')}"
    return f"{name}, peak RSS under {words(verified['limited_by'], 40)}"


def _all_actions(document: Document) -> tuple[Action, ...]:
    """Those of the modes, what fits in pieces, and the way to be sure."""
    answers = document["answers"]
    if document["unknown_tensors"] and document["assumed"] and not _measured_any(answers):
        return (ask_for_sizes(document["assumed"]),)
    tiles = [action for answer in answers if answer.get("tiles") for action in _tiles(document, answer)][:1]
    modes = [action for answer in answers for action in _actions(document, answer)][: 3 - len(tiles)]
    return (*modes, *tiles, *_to_be_sure(document))


def _measured_any(answers: Iterable[Document]) -> bool:
    return any(mode.get("verified") for answer in answers for mode in answer["modes"])


def _to_be_sure(document: Document) -> Iterable[Action]:
    """Predictions are of what is resident, and a limit may count what is only reserved: only running it shows."""
    if not document["fits"] or _measured_any(document["answers"]):
        return
    many = ("--workers", str(document["workers"])) if document["workers"] > 1 else ()
    given = ("--budget", typed_exactly(document["budget_bytes"]), *many, "--verify")
    yield Action(
        "Measure what holds" + ("" if many else " under a real limit, which counts reserved memory, too"),
        command=command(document, "fit", *given, kept=(*_ASKED, "--range")),
    )


def _tiles(document: Document, answer: Document) -> Iterable[Action]:
    tiles, axis = answer["tiles"], _axis(answer)
    gain = f"at least {axis} {tiles['size']:,}" if axis else "makes it fit"
    cost = f"{format_percent(tiles['extra_work'])} more work, {format_count(tiles['nodes'], 'more node')}"
    given = _given(document, answer, tiles["size"])
    do = command(document, "pack", *given, "-o", "tiled.pack", "--tile", kept=("--range",))
    yield Action(f"in pieces: {gain}, {known(tiles, 'bytes')}; a package with {cost}.", command=do)


def _given(document: Document, answer: Document, size: int) -> list[str]:
    dims = {**dict.fromkeys(answer["axis"]["names"], size), **_others(document, answer), **document["fixed"]}
    return [word for name, number in dims.items() for word in ("--dim", f"{name}={number}")]


def _others(document: Document, answer: Document) -> dict[str, int]:
    """The dimensions of the other ranges that were asked for, which stay at their beginning."""
    # Those that nobody asked for have the numbers that are assumed of them.
    axes = (each["axis"] for each in document["answers"] if each is not answer)
    return {name: axis["start"] for axis in axes for name in axis["names"] if name not in document["assumed"]}


def _actions(document: Document, answer: Document) -> Iterable[Action]:
    """Least work first; what is the same as it is, is nothing to do."""
    modes = {mode["mode"]: mode for mode in answer["modes"]}
    stock = modes["stock"]["holds"] if "stock" in modes else None
    for change in answer["changes"]:
        mode, axis = words(change["mode"], 30), _axis(answer)
        if mode == "stock":
            continue
        gain = f"{axis} {change['size']:,}" + (f" instead of {stock:,}" if stock else "") if axis else "makes it fit"
        given = _given(document, answer, change["size"])
        if mode in PACKED:
            do = command(document, "pack", "--mode", mode, *given, "-o", "package", kept=("--range",))
        else:
            held = document["workers"] == 1 and modes[change["mode"]].get("verified")
            limit = ("--memory-limit", typed_exactly(document["budget_bytes"])) if held else ()
            do = command(document, "measure", "--mode", mode, *given, *limit, kept=_KEPT)
        yield Action(f"{mode}: {gain}; {words(change['text'])}.", command=do)


def _is_curve(answer: Document) -> bool:
    return any(len(mode["points"]) > 1 for mode in answer["modes"])


def _chart(document: Document, answer: Document) -> Chart:
    axis = _axis(answer)
    if document["budget_bytes"] is None:
        ends = ", ".join(
            f"{name} {known(last, 'bytes')} at {last['size']:,}" for name, _, last in map(_ends, answer["modes"])
        )
        title, alt = f"Memory by {axis}", f"Predicted memory against {axis}, one line per mode: {ends}."
    else:
        ends = ", ".join(f"{words(m['mode'], 30)} up to {m['holds'] or 'none'}" for m in answer["modes"])
        title = f"Largest {axis} that fits, and the memory it takes"
        alt = f"Predicted memory against {axis}, one line per mode, and the budget across them: {ends}."
    return Chart("fit", title, alt, {**document, "answer": answer})


def _tables(answer: Document) -> Iterable[Table]:
    axis = _axis(answer)
    least = f"at {answer['modes'][0]['points'][0]['size']:,}" if axis else "predicted"
    rows = []
    for mode in answer["modes"]:
        first = mode["points"][0]
        cells = [Cell(words(mode["mode"], 30))]
        if axis:
            largest = (
                count(mode, "holds") if mode["holds"] is not None else Cell("none", why="the smallest does not fit")
            )
            cells += [largest, Cell("") if mode["bytes"] is None else size(mode, "bytes"), _gain(answer, mode)]
        else:
            cells.append(Cell("yes" if mode["holds"] is not None else "no"))
        cells += [size(first, "bytes"), count(mode, "workers"), Cell(_measured(mode))]
        rows.append(tuple(cells))
    heads = ("largest", "predicted", "gain") if axis else ("fits",)
    title = f"Largest {axis} by mode" if axis else "Does it fit?"
    columns = ("mode", *heads, least, f"workers {least}" if axis else "workers", "measured")
    used = [k for k in range(len(columns)) if columns[k] != "measured" or any(row[k].text for row in rows)]
    yield Table(title, tuple(columns[k] for k in used), tuple(tuple(row[k] for k in used) for row in rows))
    if _is_curve(answer):
        yield _by_size(answer)


def _gain(answer: Document, mode: Document) -> Cell:
    gain = number(answer["gains"], mode["mode"])
    return Cell("") if gain is None or abs(gain) < 0.0005 else Cell(f"{gain:+.0%}", gain, "fraction")


def _by_size(answer: Document) -> Table:
    """The picture in numbers."""
    sizes = sorted({point["size"] for mode in answer["modes"] for point in mode["points"]})
    rows = []
    for each in sizes:
        found = [next((p for p in mode["points"] if p["size"] == each), None) for mode in answer["modes"]]
        cells = (Cell("") if point is None else _point(point) for point in found)
        rows.append((Cell(f"{each:,}", each), *cells))
    names = (words(mode["mode"], 30) for mode in answer["modes"])
    return Table(f"Predicted memory by {_axis(answer)}", (_axis(answer), *names), tuple(rows))


def _point(point: Document) -> Cell:
    cell = size(point, "bytes")
    return cell if point.get("exact", True) else replace(cell, text=f"~{cell.text}")


def _measured(mode: Document) -> str:
    verified = mode.get("verified")
    if not verified:
        return ""
    tried = format_count(len(verified["attempts"]), "attempt")
    held = _held(mode)
    return f"{known(held, 'peak_bytes')}, {tried}" if held else f"does not hold, {tried}"


def _notes(document: Document) -> list[str]:
    notes = []
    unknown = document["unknown_tensors"]
    if unknown:
        one = f"{format_count(len(unknown), 'tensor')} (such as {words(unknown[0], 60)})"
        notes.append(
            f"Nothing can be promised: {one} of a size that depends on what is fed, in no figure. Use --verify."
        )
    for answer in document["answers"]:
        if others := _others(document, answer):
            at = listed([f"{words(name, 30)} {number:,}" for name, number in others.items()])
            notes.append(f"While {_axis(answer)} grows, the other ranges stay at their beginning: {at}.")
        notes += [note for mode in answer["modes"] for note in _about_mode(mode, _axis(answer))]
        if answer["impossible"]:
            few = listed([f"{each:,}" for each in answer["impossible"][:_FEW]])
            notes.append(f"The model cannot run with {_axis(answer)} {few}.")
    off = "Predictions are off by 2–3% in the mean"
    if document["budget_bytes"] is not None:
        above = {name: format_percent(part) for name, part in document["margins"].items()}
        off += (
            f"; {above['loading']} above loading, {above['stock']} above stock's runs and {above['runs']} above others "
            "are kept free, which 99 in 100 stay below. --verify measures under a real limit, and needs no margin"
        )
    notes.append(f"{off}.")
    if not unknown and not all(
        p.get("exact", True) for a in document["answers"] for m in a["modes"] for p in m["points"]
    ):
        notes.append("The time limit was over: sizes with a ~ lie on a line between those that were followed.")
    if document["workers"] > 1:
        notes.append("Workers share pages of files, and load one after another.")
    notes.append("All figures are of the whole process, with Python and libraries.")
    return [*notes, *about_assumed(document["assumed"]), *about_machine(document, "For")]


def _about_mode(mode: Document, axis: str) -> Iterable[str]:
    """Where it does not fit although larger sizes do, and what did not hold."""
    name = words(mode["mode"], 30)
    if mode["gaps"]:
        gaps = listed([f"{gap:,}" for gap in mode["gaps"][:_FEW]])
        yield f"{name}: {axis} {gaps} would not fit although larger ones do: the arena grows in powers of two."
    verified = mode.get("verified") or {}
    reserved = " (it counts reserved memory, too)" if verified.get("limited_by") == "RLIMIT_DATA" else ""
    for attempt in verified.get("attempts") or ():
        if not attempt["fits"]:
            died = words(attempt["verdict"].partition(":")[0], 120)
            died += reserved if died.startswith("out of memory") else ""
            why = f"{known(attempt, 'peak_bytes')} resident" if attempt["peak_bytes"] else died
            at = f", {axis} {attempt['size']:,}" if axis else ""
            yield f"{name}{at} did not hold: {why}."
