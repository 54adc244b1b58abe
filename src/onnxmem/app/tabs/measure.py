"""Measure: the model in fresh processes, one per mode, phase by phase; the timelines on one scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from onnxmem.app.choice import MODES, Choice
from onnxmem.app.headline import measurement
from onnxmem.app.jobs import Document, Job
from onnxmem.app.show import finished, show_chart, show_error, show_section
from onnxmem.app.workspace import Workspace
from onnxmem.report.build import make_report
from onnxmem.report.charts.timeline import SCALE, aligned
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.report import Chart, Report
from onnxmem.report.sections.measure import how_run
from onnxmem.units import format_bytes


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Choose modes, measure them one after the other, and look at them side by side."""
    modes = st.multiselect("Modes to measure", MODES, default=["stock", "planned"], key="measured modes")
    runs = st.number_input("Steady runs", 1, 1000, 5, key="measured runs")
    wanted = [choice.words("measure", "--mode", mode, "--runs", str(runs)) for mode in modes]
    if st.button("Measure", type="primary", key="measure", disabled=not modes):
        st.session_state["measuring"] = wanted
        for words in wanted:
            if (job := space.find(*words)) and job.document is None and job.ended:
                space.forget(*words)
    documents = _measure(space, [tuple(words) for words in st.session_state.get("measuring", [])])
    shown = [found for mode in modes if (found := measurement(space, choice, mode))]
    if documents is not None and shown:
        _compare(shown)


def _measure(space: Workspace, queue: list[tuple[str, ...]]) -> list[Document] | None:
    """One after the other, so that none disturbs the next; None while one of them is at work."""
    documents = []
    for words in queue:
        job = space.ask(*words)
        mode = words[words.index("--mode") + 1]
        if not finished(job, f"measure {mode}", f"Measuring {mode}"):
            return None
        if job.cancelled:
            # The others were not asked for any more.
            show_error(job)
            st.session_state["measuring"] = []
            space.forget(*words)
            break
        if job.document is None:
            show_error(job)
        else:
            documents.append(job.document)
    return documents


def _compare(documents: list[Document]) -> None:
    """What they took together, their timelines aligned by phase, what is resident after a phase, and each in full."""
    report = make_report(documents)
    for each in (each for each in report.sections if each.source is None):
        show_section(each, "measured together")
    for number, (found, document) in enumerate(zip(_timelines(report), aligned(documents), strict=True)):
        scaled = {**document, SCALE: found.document[SCALE]}
        show_chart(replace(found, title=f"In mode {how_run(document)}", document=scaled), f"timeline {number}")
    if len(documents) > 1:
        st.caption("Phases begin at the same place in each: a faster one is followed by nothing.")
    _resident(documents)
    for number, each in enumerate(each for each in report.sections if each.source is not None):
        with st.expander(escape(each.heading)):
            show_section(each, f"measured {number}", heading=False, skip=("timeline",))


def _timelines(report: Report) -> list[Chart]:
    return [chart for each in report.sections for chart in each.charts if chart.kind == "timeline"]


@st.fragment
def _resident(documents: list[Document]) -> None:
    """A slider over the phases, and a bar for each measurement: what it holds at the end of that one."""
    told = [[phase for phase in document["phases"] if phase.get("made_of")] for document in documents]
    names = list(dict.fromkeys(phase["name"] for phases in told for phase in phases))
    if len(names) < 2:  # a slider needs two ends
        return
    st.markdown("**What is resident**")
    start = "steady runs" if "steady runs" in names else names[-1]
    chosen = (
        st.select_slider("At the end of phase", names, value=start, key="resident phase") if names[1:] else names[0]
    )
    sums = [sum(kind["rss_bytes"] for kind in phase["made_of"]) for phases in told for phase in phases]
    bars: list[dict[str, Any]] = [
        {
            "label": how_run(document),
            "parts": [{"name": kind["kind"], "bytes": kind["rss_bytes"]} for kind in phase["made_of"]],
        }
        for document, phases in zip(documents, told, strict=True)
        for phase in phases
        if phase["name"] == chosen
    ]
    alt = "; ".join(f"{bar['label']}: {format_bytes(sum(part['bytes'] for part in bar['parts']))}" for bar in bars)
    shown = {"bars": bars, "reach_bytes": max(sums)}
    show_chart(Chart("peak parts", "What is resident", alt, shown), "resident", title=False)
