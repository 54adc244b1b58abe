"""What the whole process will take, per mode: the figures, the table and the bars that an estimate begins with."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.fitting.changes import PACKED, WORK
from onnxmem.report.cells import Document, listed, number, size, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Table
from onnxmem.report.sections.common import MEASURED, Columns, ask_for_sizes, command, figures
from onnxmem.report.sections.peak_parts import bars_of_parts
from onnxmem.units import format_bytes

_WORKERS = "4"
_MODES: Columns = (
    ("while loading", "load_peak_bytes", size),
    ("loaded", "loaded_bytes", size),
    ("after runs", "steady_bytes", size),
    ("peak", "peak_bytes", size),
    (f"{_WORKERS} workers", "total_pss_bytes", lambda row, key: size(row[key], _WORKERS)),
)
_WORTH_SAYING = 4 << 20
_WORTH_DOING = 1 << 20
_PLANNED = "Run it inside this plan, and measure what that takes"
# The parts of a forecast as those of a measured peak, so that both are drawn alike.
_DRAWN_AS = {
    **dict.fromkeys(("interpreter", "inputs", "session", "kept by the heap"), "heap"),
    **dict.fromkeys(("activations", "scratch", "reuse", "pattern", "arena slack"), "arena"),
}


def forecasts(document: Document) -> Sequence[Document]:
    """Those of an estimate; none if the process could not be predicted."""
    return document.get("processes") or ()


def forecast_of(document: Document, mode: str) -> Document | None:
    """That of one mode."""
    return next((row for row in forecasts(document) if row["mode"] == mode), None)


def smallest(document: Document) -> Document | None:
    """The mode that takes least; of several that read the same, the one that asks for the least work."""
    rows = forecasts(document)
    least = format_bytes(min((row["peak_bytes"] for row in rows), default=0))
    same = (row for row in rows if format_bytes(row["peak_bytes"]) == least)
    return min(same, key=lambda row: [*WORK, row["mode"]].index(row["mode"]), default=None)


def forecast_summary(document: Document) -> str:
    """The answer in a sentence; empty if there is none."""
    stock, planned, least = forecast_of(document, "stock"), forecast_of(document, "planned"), smallest(document)
    if stock is None or planned is None or least is None:
        return ""
    peaks = [format_bytes(int(number(row, "peak_bytes") or 0)) for row in (stock, planned, least)]
    more = "" if least in (stock, planned) else f", {peaks[2]} {words(least['mode'], 30)} (the least)"
    at = "at least" if document["activations"]["unknown"] else "at"
    return f"The process will peak {at} {peaks[0]} as ONNX Runtime comes, {peaks[1]} planned{more}."


def forecast_facts(document: Document) -> list[Fact]:
    """Peaks before anything else: stock's, the planned one, and the smallest."""
    least = smallest(document)
    if least is None:
        return []
    shown = dict.fromkeys(("stock", "planned", least["mode"]))
    notes = {"stock": "the whole process, as ONNX Runtime comes", least["mode"]: "the smallest of all modes"}
    return [
        Fact(f"peak, {mode}", size(row, "peak_bytes"), notes.get(mode, "the whole process"))
        for mode in shown
        if (row := forecast_of(document, mode))
    ]


def forecast_actions(document: Document) -> list[Action]:
    """Run it in the mode that takes least, or planned: what saves nothing is no advice."""
    assumed = (document.get("dims") or {}).get("assumed")
    if document["activations"]["unknown"] and assumed:
        return [ask_for_sizes(assumed)]
    stock, least = forecast_of(document, "stock"), smallest(document)
    if stock is None or least is None:
        return [Action(_PLANNED, command=command(document, "measure", "--mode", "planned", kept=MEASURED))]
    saved = {
        mode: stock["peak_bytes"] - row["peak_bytes"]
        for mode in dict.fromkeys((least["mode"], "planned"))
        if (row := forecast_of(document, mode))
    }
    return [_run_it(document, mode, saving) for mode, saving in saved.items() if saving >= _WORTH_DOING]


def _run_it(document: Document, mode: str, saving: int) -> Action:
    text = _PLANNED if mode == "planned" else f"Run it in mode {words(mode, 30)} ({WORK.get(mode, '')})"
    do = command(document, "measure", "--mode", mode, kept=MEASURED)
    if mode in PACKED:
        do = command(document, "pack", "--mode", mode, "-o", "package")
    return Action(text, format_bytes(saving), do)


def forecast_tables(document: Document) -> list[Table]:
    """One row per mode, and the formulas of those that have one."""
    rows = forecasts(document)
    if not rows:
        return []
    tables = [figures("What the process will take", "mode", _MODES, rows)]
    if known := [row for row in rows if row.get("formula")]:
        cells = tuple((Cell(words(row["mode"], 30)), Cell(words(row["formula"]["text"], 400))) for row in known)
        where = _where(known[0]["formula"])
        tables.append(Table(f"Peak of the process, in bytes, for {where}", ("mode", "bytes"), cells))
    return tables


def _where(formula: Document) -> str:
    """The sizes that a formula is for."""
    parts = []
    for dim, (low, high) in formula["range"].items():
        step = formula["multiples"].get(dim, 1)
        parts.append(f"{words(dim, 30)} {low:,}–{high:,}" + (f" in steps of {step}" if step > 1 else ""))
    return ", ".join(parts)


def forecast_charts(document: Document) -> tuple[Chart, ...]:
    """One bar per mode: what is resident after the runs."""
    named = [(row["mode"], _drawn(row)) for row in forecasts(document)]
    return bars_of_parts("What the process will be made of, after its runs", named)


def forecast_workers(document: Document) -> tuple[Chart, ...]:
    """What several processes will take together, one line per mode: as `share` would measure it."""
    rows = forecasts(document)
    groups = [{"mode": row["mode"], "workers": int(count), "total_pss_bytes": total}
              for row in rows for count, total in row["total_pss_bytes"].items()]  # fmt: skip
    if not groups:
        return ()
    most = max(group["workers"] for group in groups)
    told = ", ".join(f"{g['mode']} {format_bytes(g['total_pss_bytes'])}" for g in groups if g["workers"] == most)
    alt = f"Predicted total PSS against the number of workers, one line per mode; with {most} workers: {told}."
    drawn = {"model": document["model"], "weights_bytes": document["weights_bytes"], "modes": groups}
    return (Chart("workers", "Workers against the memory they will take together, by prediction", alt, drawn),)


def forecast_notes(document: Document) -> list[str]:
    """What the figures stand for, or why there are none."""
    if reason := (document.get("unknown") or {}).get("processes"):
        return [f"The whole process was not predicted: {reason}."]
    if not forecasts(document):
        return []
    reasons: dict[str, list[str]] = {}
    for row in forecasts(document):
        if row.get("formula") is None and (reason := (row.get("unknown") or {}).get("formula")):
            reasons.setdefault(reason, []).append(words(row["mode"], 30))
    formulas = any(row.get("formula") for row in forecasts(document))
    return [
        *(
            f"{listed(modes)}: no formula of the peak; {words(reason)}."
            for reason, modes in reasons.items()
            if formulas
        ),
        "A process is Python, NumPy and ONNX Runtime with this model; external, mapped and prepacked are packages made "
        "by onnxmem pack. Workers are counted by PSS, each shared page once.",
        *_luck(document),
    ]


def _luck(document: Document) -> list[str]:
    """What nobody can say for sure: which of the free pieces that loading leaves are large enough for runs."""
    stock = forecast_of(document, "stock")
    if stock is None or stock["most_run_growth_bytes"] - stock["least_run_growth_bytes"] < _WORTH_SAYING:
        return []
    least, said, most = (
        format_bytes(int(stock[key])) for key in ("least_run_growth_bytes", "run_growth_bytes", "most_run_growth_bytes")
    )
    return [
        f"In mode stock, runs will add about {said}, but anything from {least} to {most} is possible: they may find "
        "room in what loading left free, and that differs from process to process."
    ]


def _drawn(row: Document) -> dict[str, int]:
    parts: dict[str, int] = {}
    for part in row["parts"]:
        name = _DRAWN_AS.get(part["name"], part["name"])
        parts[name] = parts.get(name, 0) + int(part["bytes"])
    return parts
