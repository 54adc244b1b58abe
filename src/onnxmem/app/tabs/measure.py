"""Measure: the model in fresh processes, one per mode, phase by phase; the timelines on one scale."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from onnxmem.app.choice import MODES, Choice
from onnxmem.app.headline import measurement
from onnxmem.app.jobs import Document, Job
from onnxmem.app.show import finished, show_chart, show_error, show_section
from onnxmem.app.workspace import Workspace
from onnxmem.report.build import make_report
from onnxmem.report.report import Section


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
    """Their timelines on one scale, what is resident at the end of a phase, and each in full."""
    report = make_report(documents)
    sections = [each for each in report.sections if each.source is not None]
    overview = [each for each in report.sections if each.source is None]
    for each in overview:
        show_section(each, "measured together")
    for number, each in enumerate(sections):
        timeline = next((chart for chart in each.charts if chart.kind == "timeline"), None)
        if timeline:
            show_chart(replace(timeline, title=each.heading), f"timeline {number}")
    for number, each in enumerate(sections):
        with st.expander(each.heading):
            show_section(_without_timeline(each), f"measured {number}", heading=False)


def _without_timeline(section: Section) -> Section:
    return replace(section, charts=tuple(chart for chart in section.charts if chart.kind != "timeline"))
