"""The section on a measurement: what a model really took, phase by phase."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, listed, name, number, reasons, seconds, sentence, size, text, words
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections.common import Columns, about_inputs, about_machine, command, figures, model, of_limit
from onnxmem.report.sections.explain import next_steps
from onnxmem.report.sections.peak_parts import parts_table, peak_parts
from onnxmem.units import format_bytes, format_count, format_percent, format_seconds

_NODES = 10
_WORTH = 2**20 // 20
# Less than this is not worth a change.
_SAVING = 2**20
# The borders at which it is worth asking what the memory is: before the model, with it, in use, and after it.
_BORDERS = ("import", "load", "steady runs", "release", "trim")
_RUNTIME = (
    ("weights", "weights_bytes", "that kernels read as they are"),
    ("packed weights", "packed_bytes", "in the arena before the first node, with small constants"),
    ("arena held", "arena_held_bytes", "taken from the system"),
    ("arena in use", "arena_peak_bytes", "at most since the session began, packed weights included"),
)
# How runs were served.
_SERVED = (
    ("runs_recorded", "recorded"),
    ("runs_replayed", "inside the plan"),
    ("runs_deviated", "deviating from it"),
    ("runs_from_heap", "from the heap"),
)
_DATA = "RLIMIT_DATA"
_WELL_BELOW = 0.95
_ENDINGS = {"out of memory": "ran out of memory", "killed": "was killed"}


def section(document: Document) -> Section:
    """`onnxmem.measure/1`."""
    failed = document["verdict"]["kind"] != "ok"
    # Where it ran on a device, what it has on the host is not what it is about.
    parts = () if document.get("device") else (parts_table([(how_run(document), document)]),)
    tables = (*parts, _phases(document), _kinds(document), _runtime(document), _nodes(document))
    return Section(
        f"{label(document)}, measured",
        f"The process {ending(document)}" if failed else _summary(document),
        facts=_facts(document),
        actions=_actions(document),
        charts=_charts(document),
        tables=tables,
        notes=_notes(document),
        alarm=failed,
    )


def label(document: Document) -> str:
    """A measurement in a few words: the model, and how and where it was run."""
    where = f" on {words(document['scenario']['device'], 30)}" if document.get("device") else ""
    return f"{model(document)} in mode {how_run(document)}{where}"


def how_run(document: Document) -> str:
    """The mode; what it really was, if it could not be planned."""
    mode, planned = words(document["scenario"]["mode"], 30), document.get("planned")
    return f"{mode} (ran as {words(planned['loaded_mode'], 30)})" if planned and planned["reason"] else mode


def peak(document: Document) -> Document:
    """The phase with the highest peak; an empty one if no peak is known."""
    phases = [phase for phase in document["phases"] if number(phase, "peak_rss_bytes") is not None]
    return max(phases, key=lambda phase: phase["peak_rss_bytes"], default={})


def limit(document: Document) -> int | float | None:
    """The memory limit it was given, in bytes."""
    return number(document.get("memory_limit") or {}, "bytes")


def ending(document: Document) -> str:
    """How, where and why a process ended early, for a sentence that begins with "The process"."""
    verdict, given = document["verdict"], limit(document)
    how = _ENDINGS.get(verdict["kind"], words(verdict["kind"], 30))
    within = f" within the limit of {format_bytes(given)}" if given and verdict["kind"] == "out of memory" else ""
    where = f" in phase '{words(verdict['phase'], 30)}'" if verdict.get("phase") else ""
    return f"{how}{within}{where}: {words(verdict.get('message') or 'no message')}{_reserved(document)}"


def _reserved(document: Document) -> str:
    """Why there was no memory although little was resident."""
    height, given = number(peak(document), "peak_rss_bytes"), limit(document)
    by = (document.get("memory_limit") or {}).get("enforced_by")
    out = document["verdict"]["kind"] == "out of memory" and by == _DATA
    if not out or height is None or given is None or height > _WELL_BELOW * given:
        return ""
    return f" ({format_bytes(height)} were resident: {_DATA} counts memory that is reserved but not used, too)"


def how_planned(planned: Document) -> str:
    """How good the plan was and how runs were served, or why there was none: the document's `planned` in words."""
    if planned["reason"]:
        return f"Not planned, it ran as {words(planned['loaded_mode'], 30)}: {words(planned['reason'])}"
    plan, bound = planned["plan_bytes"], planned["lower_bound_bytes"]
    parts = ["no plan was made"]
    if plan and bound is not None:
        parts = ["provably minimal" if plan <= bound else f"at least {format_bytes(bound)} are needed"]
    served = [f"{planned[key]:,} {what}" for key, what in _SERVED if planned[key]]
    return "; ".join([*parts, *([f"runs: {', '.join(served)}"] if served else []), *map(words, planned["notes"])])


def _summary(document: Document) -> str:
    highest, latency = peak(document), number(document, "latency_seconds")
    device = document.get("device")
    parts = [f"Peak memory: {known(highest, 'peak_rss_bytes')}"] if highest else []
    if device:
        parts = [f"Peak memory on the device: {known(device, 'peak_bytes')}"]
    load, run = (known(device or document, f"{what}_growth_bytes") for what in ("load", "run"))
    parts.append(f"loading took {load}, running {run}")
    parts += [f"one run takes {format_seconds(latency)}"] if latency else []
    return sentence("; ".join(parts))


def _facts(document: Document) -> tuple[Fact, ...]:
    highest, given = peak(document), limit(document)
    height = number(highest, "peak_rss_bytes")
    facts = [
        Fact("peak RSS", size(highest, "peak_rss_bytes"), f"in phase '{words(highest.get('name', '?'), 30)}'"),
        Fact("loading took", size(document, "load_growth_bytes"), "peak RSS while loading − RSS before"),
        Fact("running took", size(document, "run_growth_bytes"), "peak RSS in all runs − RSS before the first"),
    ]
    if device := document.get("device"):
        facts = [
            Fact("peak on the device", size(device, "peak_bytes"), words(device["name"], 60)),
            Fact("loading took there", size(device, "load_growth_bytes"), "at most while loading − before"),
            Fact("running took there", size(device, "run_growth_bytes"), "at most in all runs − before the first"),
            facts[0],
        ]
    if document["verdict"]["kind"] != "ok":
        facts = [fact for fact in facts if fact.cell.value is not None]
    if given is not None:
        by = document["memory_limit"].get("enforced_by")
        about = "; ".join(
            text for text in (of_limit(height, given), f"enforced by {words(by, 30)}" if by else "") if text
        )
        facts.insert(1, Fact("limit", size(document["memory_limit"], "bytes"), about))
    planned = document.get("planned")
    if planned and not planned["reason"] and planned["plan_bytes"]:
        facts.append(Fact("plan", size(planned, "plan_bytes"), words(how_planned(planned))))
    if number(document, "latency_seconds") is not None:
        facts.append(Fact("latency", seconds(document, "latency_seconds"), _spread_of_latency(document)))
    return tuple(facts)


def _spread_of_latency(document: Document) -> str:
    spread, runs = document.get("latency_spread_seconds"), len(document.get("latencies_seconds") or ())
    median = f"median of {format_count(runs, 'run')}" if runs else "median"
    return f"{median}, {format_seconds(spread['min'])} to {format_seconds(spread['max'])}" if spread else median


def _actions(document: Document) -> tuple[Action, ...]:
    """What may take less, the largest saving first: what was found, or else what the figures alone suggest."""
    if document.get("findings"):
        return next_steps(document["findings"])
    mode, runtime, found = document["scenario"]["mode"], document.get("runtime") or {}, []
    if document.get("device"):
        again = command(document, "measure", "--device", document["scenario"]["device"], "--mode", "planned")
        return (Action("Run it inside its plan", "", again),) if mode != "planned" else ()
    ran, used = number(document, "run_growth_bytes"), number(runtime, "arena_peak_bytes")
    if mode not in ("planned",):
        saving = 0 if ran is None or used is None else ran - (used - (number(runtime, "packed_bytes") or 0))
        found.append((saving, "Run it inside its plan", command(document, "measure", "--mode", "planned")))
    copies = sum(number(runtime, key) or 0 for key in ("weights_bytes", "packed_bytes"))
    if document["verdict"]["kind"] != "ok":
        found.append((0, "Estimate what it needs, without running it", command(document, "estimate")))
    elif mode in ("stock", "tuned", "planned") and copies:
        text = "Share its weights between processes, if several run it"
        found.append((copies, f"{text}: one copy less for each", command(document, "pack", "-o", "package")))
    ranked = sorted(found, key=lambda each: -each[0])
    return tuple(Action(text, f"up to {format_bytes(saving)}" if saving >= _SAVING else "", do)
                 for saving, text, do in ranked if saving >= _SAVING or not saving)  # fmt: skip


def _charts(document: Document) -> tuple[Chart, ...]:
    if not document["phases"]:
        return ()
    phases = ", ".join(f"{words(p['name'], 30)} {known(p, 'peak_rss_bytes', 'unknown')}" for p in document["phases"])
    alt = f"Resident memory over time, split into anonymous and file-backed, and its peak in each phase: {phases}."
    timeline = Chart("timeline", "Resident memory over time and by phase", alt, document)
    parts = () if document.get("device") else peak_parts([(how_run(document), document)])
    return (*parts, timeline)


def _phases(document: Document) -> Table:
    unfinished = {True: "", False: " (not completed)"}
    rows = ({**phase, "at its end": phase["name"] + unfinished[phase.get("completed", True)]}
            for phase in _seen(document))  # fmt: skip
    return figures("Phases", "at its end", _PHASES, rows).without_empty_columns()


def _peak_cell(phase: Document, key: str) -> Cell:
    cell = size(phase, key)
    sampled = cell.value is not None and not phase.get("peak_exact", True)
    return Cell(f"~{cell.text}", cell.value, cell.unit) if sampled else cell


_PHASES: Columns = (
    ("device", "device_bytes", size),
    ("peak there", "peak_device_bytes", size),
    ("RSS", "rss_bytes", size),
    ("peak RSS", "peak_rss_bytes", _peak_cell),
    ("anonymous", "anon_bytes", size),
    ("file", "file_bytes", size),
    ("PSS", "pss_bytes", size),
    ("USS", "uss_bytes", size),
    ("virtual", "virtual_bytes", size),
    ("time", "seconds", seconds),
)
_NODE: Columns = (
    ("operator", "op", text),
    ("outputs", "dynamic_bytes", size),
    ("scratch", "temporary_bytes", size),
    ("in use after", "in_use_bytes", size),
    ("time", "seconds", seconds),
)


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


def _runtime(document: Document) -> Table:
    runtime = document.get("runtime") or {}
    rows = ((Cell(title), size(runtime, key), Cell(about)) for title, key, about in _RUNTIME if number(runtime, key))
    title = "ONNX Runtime's own figures, from a separate run without memory pattern"
    return Table(title, ("", "size", "what it is"), tuple(rows))


def _nodes(document: Document) -> Table:
    runtime = document.get("runtime") or {}
    largest = {node: place for place, node in enumerate(runtime.get("blamed") or ())}
    nodes = [{**node, "node": node["name"]} for node in runtime.get("nodes") or () if node["name"] in largest]
    nodes.sort(key=lambda node: largest[node["name"]])
    return figures("Largest nodes", "node", _NODE, nodes[:_NODES])


def _notes(document: Document) -> list[str]:
    notes, scenario = about_inputs(document), document["scenario"]
    if (planned := document.get("planned")) and (planned["reason"] or not planned["plan_bytes"]):
        notes.insert(0, sentence(how_planned(planned)))
    runs, repeats = scenario.get("runs"), len(document.get("repeats") or ())
    if runs:
        processes = f"in {repeats} fresh processes" if repeats > 1 else "in a fresh process"
        notes.append(f"Run once, and then {format_count(runs, 'time')} more, {processes}.")
    settings = {**(scenario.get("options") or {}), **(scenario.get("config") or {})}
    if settings:
        notes.append(f"Options: {', '.join(f'{words(k, 60)}={words(v, 40)}' for k, v in settings.items())}.")
    notes += _spreads(document)
    digest = document.get("outputs_sha256")
    notes.append(f"Outputs: SHA-256 {words(digest[:12], 12)}…, the same in all runs." if digest else "")
    notes.append(f"Model files: {known(document, 'file_bytes')}, external weights included.")
    if device := document.get("device"):
        notes.append(sentence(f"memory on the device: {words(device['method'])}"))
    groups = [value for phase in document["phases"] if (value := number(phase, "cgroup_peak_bytes"))]
    if groups:
        notes.append(f"Control group: memory.peak {format_bytes(max(groups))}, all its processes and page cache.")
    return [*notes, *about_machine(document), *_instrument(document), *_missing(document)]


def _spreads(document: Document) -> list[str]:
    spreads = [
        f"{words(phase['name'], 30)} {format_bytes(spread[1] - spread[0])}"
        for phase in document["phases"]
        if (spread := (phase.get("spread") or {}).get("peak_rss_bytes"))
    ]
    return [f"Spread of peak RSS between repetitions: {', '.join(spreads)}."] if spreads else []


def _instrument(document: Document) -> list[str]:
    """What measuring itself took."""
    overhead, timeline = document.get("overhead") or {}, document.get("timeline") or ()
    if not overhead:
        return []
    watched = timeline[-1]["seconds"] if timeline else 0
    share = overhead["sampler_seconds"] / watched if watched else 0.0
    return [
        f"Measuring took {known(overhead, 'child_bytes')} of the process; {overhead['readings']} readings took "
        f"{format_seconds(overhead['reading_seconds'])} between phases; sampling {format_percent(share)} of one core."
    ]


def _missing(document: Document) -> list[str]:
    """Why a figure is missing or only sampled; each reason once."""
    sampled = dict.fromkeys(
        words(phase["peak_method"])
        for phase in _seen(document)
        if not phase.get("peak_exact", True) and phase.get("peak_method") and phase.get("peak_rss_bytes") is not None
    )
    missing = reasons(document)
    for phase in _seen(document):
        missing |= reasons(phase, *(key for _, key, _ in _PHASES))
    unknown = [sentence(f"not known: {listed([reason])}") for reason in missing]
    nodes = [
        sentence(f"there are no figures by node: {why}") for why in reasons(document.get("runtime") or {}, "nodes")
    ]
    return [*(f"~ {method}." for method in sampled), *unknown, *nodes]
