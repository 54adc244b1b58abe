"""The section on sharing: what N workers take together, mode by mode."""

from __future__ import annotations

from onnxmem.measurement.device import HOST
from onnxmem.report.cells import Document, count, known, number, seconds, size, times, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import Columns, about_inputs, about_machine, command, figures, model
from onnxmem.units import format_bytes, format_count, format_percent, format_times

_THERE = "total_device_bytes"
PAIRED = "Latency is compared by the median of the ratios in each turn, not by the ratio of the medians."


def section(document: Document) -> Section:
    """`onnxmem.share/1`. What to use was decided where it was measured: here it is only shown."""
    groups = document["modes"]
    most = max((number(group, "workers") or 0 for group in groups), default=0)
    last = [group for group in groups if group["workers"] == most and number(group, "total_pss_bytes") is not None]
    chosen = next((each["mode"] for each in document.get("recommendations") or ()), None)
    best = next((group for group in last if group["mode"] == chosen), None)
    stock = next((group for group in last if group["mode"] == document.get("baseline")), None)
    tables = (*_memory(document), _loading(document), _latencies(document))
    return Section(
        f"{model(document)}, shared by workers",
        _summary(document, last, best, stock),
        facts=_facts(last, best, stock),
        actions=_actions(document, best, stock),
        charts=_charts(groups, document),
        tables=tuple(table.without_empty_columns() for table in tables),
        notes=_notes(document),
        alarm=not last,
    )


def _summary(document: Document, last: list[Document], best: Document | None, stock: Document | None) -> str:
    if not last:
        return f"No group of workers of {model(document)} ran to the end."
    shown = best or stock or last[0]
    workers = format_count(shown["workers"], "worker")
    take = "takes" if shown["workers"] == 1 else "together take"
    text = f"{workers} {take} {known(shown, 'total_pss_bytes')} {words(shown['mode'], 30)}"
    if stock is None or stock is shown:
        return f"{text} (sum of PSS)."
    if _on_gpu(document):
        ours, theirs = known(shown, _THERE), known(stock, _THERE)
        return f"{workers} {take} {ours} on the GPU {words(shown['mode'], 30)}, {theirs} stock."
    ours, theirs = shown["total_pss_bytes"], stock["total_pss_bytes"]
    less = f"{format_percent(1 - ours / theirs)} less" if ours <= theirs else f"{format_times(ours / theirs)} as much"
    return f"{text}, {format_bytes(theirs)} {words(stock['mode'], 30)} (sum of PSS, {less})."


def _facts(last: list[Document], best: Document | None, stock: Document | None) -> tuple[Fact, ...]:
    facts = []
    for group in dict.fromkeys(each["mode"] for each in (best, stock) if each):
        found = next(each for each in last if each["mode"] == group)
        workers = format_count(found["workers"], "worker")
        facts.append(Fact(f"together, {words(group, 30)}", size(found, "total_pss_bytes"), f"sum of PSS, {workers}"))
        if found.get(_THERE) is not None:
            there = f"all of them; {workers}"
            facts.append(Fact(f"on the GPU, {words(group, 30)}", size(found, _THERE), there))
    shown = best or stock
    if shown is not None:
        facts.append(Fact("one more worker", size(shown, "per_worker_uss_bytes"), f"USS, {words(shown['mode'], 30)}"))
        facts.append(
            Fact("least possible", size(shown, "floor_bytes"), "one copy of the weights + the smallest workers")
        )
    return tuple(fact for fact in facts if fact.cell.value is not None)


def _actions(document: Document, best: Document | None, stock: Document | None) -> tuple[Action, ...]:
    actions = []
    for each in document.get("recommendations") or ():
        mode = words(each["mode"], 30)
        text = f"{words(each['text'], 400)} Trade-off: {words(each['trade_off'])}. Avoid if {words(each['avoid_if'])}."
        packed = mode != document.get("baseline") and not _on_gpu(document)  # packages are for the CPU
        do = command(document, "pack", "--mode", mode, "-o", "package") if packed else ""
        actions.append(Action(text, command=do))
    return tuple(actions)


def _charts(groups: list[Document], document: Document) -> tuple[Chart, ...]:
    if all(number(group, "total_pss_bytes") is None for group in groups):
        return ()
    told = ", ".join(
        f"{words(g['mode'], 30)} with {g['workers']} {known(g, 'total_pss_bytes', 'unknown')}" for g in groups
    )
    alt = f"Total PSS against the number of workers, one line per mode: {told}."
    return (Chart("workers", "Workers against the memory they take together", alt, document),)


def _memory(document: Document) -> list[Table]:
    groups = document["modes"]
    columns: Columns = (
        *([("on the GPU", _THERE, size)] if _on_gpu(document) else []),
        ("total PSS", "total_pss_bytes", size),
        (_base(document), "of_baseline", times),
        ("of least", "of_floor", times),
        ("USS each", "per_worker_uss_bytes", size),
        ("anonymous each", "per_worker_anon_bytes", size),
        ("files", "model_files_pss_bytes", size),
        ("outputs", "outputs_equal_baseline", _equal),
    )
    return [
        figures(f"Memory of {format_count(int(workers), 'worker')}", "mode", columns,
              [group for group in groups if group["workers"] == workers])
        for workers in dict.fromkeys(group["workers"] for group in groups)
    ]  # fmt: skip


def _on_gpu(document: Document) -> bool:
    return bool(document.get("device", HOST) != HOST)


def _loading(document: Document) -> Table:
    """Each mode's smallest group: the fewer there are, the less one's loading is another's."""
    smallest: dict[str, Document] = {}
    for group in sorted(document["modes"], key=lambda group: group["workers"]):
        file = number(document, "file_bytes")
        load = number(group, "load_peak_bytes")
        smallest.setdefault(group["mode"], {**group, "of_file": load / file if load is not None and file else None})
    columns: Columns = (
        ("load", "load_seconds", seconds),
        ("load, cold", "load_cold_seconds", seconds),
        ("load peak", "load_peak_bytes", size),
        ("of file", "of_file", times),
        ("private", "load_peak_anon_bytes", size),
        ("first run", "first_run_seconds", seconds),
        ("first run, cold", "first_run_cold_seconds", seconds),
    )
    return figures("Loading and first run of one worker", "mode", columns, list(smallest.values()))


def _latencies(document: Document) -> Table:
    """How modes compare, and then what each number of workers was measured at."""
    turns = {each["mode"]: each for each in document.get("latency") or ()}
    rows = []
    for mode in dict.fromkeys(group["mode"] for group in document["modes"]):
        counts = {f"w{g['workers']}": g.get("latency_seconds") for g in document["modes"] if g["mode"] == mode}
        rows.append({"mode": mode, **turns.get(mode, {}), **counts})
    counted = dict.fromkeys(group["workers"] for group in document["modes"])
    alone: Columns = [
        ("one of each mode, in turns", "latency_seconds", seconds),
        (_base(document), "of_baseline", times),
    ]
    columns = (*(alone if turns else []), *((format_count(n, "worker"), f"w{n}", seconds) for n in counted))
    return figures("Latency", "mode", columns, rows)


def _base(document: Document) -> str:
    return f"of {words(document.get('baseline') or 'baseline', 30)}"


def _equal(group: Document, key: str) -> Cell:
    if not isinstance(group.get(key), bool):
        return count({}, key)
    return Cell("equal" if group[key] else "differ")


def _notes(document: Document) -> list[str]:
    groups, baseline = document["modes"], words(document.get("baseline") or "", 30)
    notes = [f"{words(g['mode'], 30)}: {words(failure)}" for g in groups for failure in g.get("failures") or ()]
    if baseline:
        notes.append(f"The baseline is {baseline}, as ONNX Runtime loads if nothing else is said.")
    differ = dict.fromkeys(words(g["mode"], 30) for g in groups if g.get("outputs_equal_baseline") is False)
    if differ:
        notes.append(f"Outputs that differ from {baseline or 'the baseline'}, by mode: {', '.join(differ)}.")
    if len(document.get("latency") or ()) > 1:
        notes.append(PAIRED)
    files = f"file {known(document, 'file_bytes')}, weights {known(document, 'weights_bytes')}"
    return [*notes, f"Model: {files}.", *about_inputs(document), *about_machine(document)]
