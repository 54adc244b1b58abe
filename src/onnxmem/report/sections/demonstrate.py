"""The section on a model that was released in two ways: step by step in one process, and by ending another."""

from __future__ import annotations

from dataclasses import replace

from onnxmem.report.cells import Document, known, percent, size, words
from onnxmem.report.report import Fact, Section
from onnxmem.report.sections.release import section as ladder_section


def section(document: Document) -> Section:
    """`onnxmem.demonstrate/1`."""
    steps, isolation = ladder_section(document["ladder"]), document["isolation"]
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
        source=document,
    )
