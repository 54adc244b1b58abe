"""The section on a plan: how small the buffers can be packed, and how good that is."""

from __future__ import annotations

from onnxmem.report.cells import Document, known, number, percent, seconds, size, words
from onnxmem.report.report import Fact, Section, Table
from onnxmem.report.sections.common import about_inputs, few, memory_map, model, tensors
from onnxmem.units import format_bytes

_LISTED = 1000


def section(document: Document) -> Section:
    """`onnxmem.plan/1`."""
    fits, capacity = document.get("fits", True), number(document, "capacity_bytes")
    text = f"{document['buffers']:,} buffers lie in {known(document, 'peak_bytes')}, {_verdict(document)}"
    if capacity is not None:
        text += f"; that {'fits' if fits else 'does not fit'} into {format_bytes(capacity)}"
    return Section(
        f"Plan of {model(document)}",
        f"{text}.",
        facts=_facts(document),
        charts=memory_map(document, known(document, "peak_bytes"), _verdict(document)),
        tables=_tables(document),
        notes=few(_notes(document)),
        alarm=not fits,
        source=document,
    )


def _verdict(document: Document) -> str:
    if document["optimal"]:
        return "which is proven optimal"
    return f"at most {percent(document, 'gap').text} above the best possible"


def _facts(document: Document) -> tuple[Fact, ...]:
    facts = [
        Fact("peak", size(document, "peak_bytes"), f"strategy {words(document['strategy'], 40)}"),
        Fact("lower bound", size(document, "lower_bound_bytes"), "alive at once: no plan can be smaller"),
        Fact("without reuse", size(document, "naive_bytes"), f"{document['buffers']:,} buffers"),
        Fact("time to plan", seconds(document, "seconds")),
    ]
    if number(document, "capacity_bytes") is not None:
        facts.append(Fact("capacity", size(document, "capacity_bytes"), "fits" if document["fits"] else "does not fit"))
    return tuple(facts)


def _tables(document: Document) -> tuple[Table, ...]:
    placement = document.get("placement")
    if not placement:
        return ()
    largest = sorted(placement, key=lambda row: -row["bytes"])[:_LISTED]
    title = f"All {len(placement):,} buffers" if len(placement) <= _LISTED else f"The {_LISTED:,} largest buffers"
    return (tensors(f"{title}, largest first", largest, shapes="shape" in placement[0], folded=True),)


def _notes(document: Document) -> list[str]:
    notes = about_inputs(document)
    notes.append(f"Offsets are multiples of {document['alignment']} bytes.")
    if (number(document, "proven_bound_bytes") or 0) > (number(document, "lower_bound_bytes") or 0):
        notes.append(f"A search proved that no plan takes less than {known(document, 'proven_bound_bytes')}.")
    if document.get("placement_note"):
        notes.append(words(document["placement_note"]))
    unknown = document.get("unknown") or ()
    if unknown:
        notes.append(f"{len(unknown)} tensors of unknown size are not in the plan.")
    return notes + [words(note) for note in document.get("notes") or ()]
