"""Overview: what the model is made of, what the peak is made of in each mode, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from onnxmem.app.choice import Choice
from onnxmem.app.headline import measurement
from onnxmem.app.jobs import Job
from onnxmem.app.show import estimated, show_actions, show_chart, show_facts, show_notes, show_table
from onnxmem.app.workspace import Workspace
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.report import Chart
from onnxmem.report.sections import section


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """The estimate, and the findings of a measurement once there is one."""
    if not estimated(estimate) or estimate.document is None:
        return
    found = section(estimate.document)
    st.markdown(escape(found.summary))
    show_facts(found)
    for number, chart in enumerate(found.charts):
        if chart.kind == "peak parts":
            show_chart(with_budget(chart, choice.budget), f"overview {number}")
    measured = measurement(space, choice)
    st.header("Do this next", anchor=False)
    if measured:
        show_actions(section(measured).actions)
    else:
        show_actions(found.actions)
        st.caption("Findings with evidence come with a measurement: see the tab Measure.")
    for table in found.tables:
        show_table(replace(table, folded=True))
    show_notes(found.notes)


def with_budget(chart: Chart, budget: int | None) -> Chart:
    """The same bars with a line for the budget."""
    if budget is None:
        return chart
    bars = [{**bar, "budget_bytes": budget} for bar in chart.document["bars"]]
    return replace(chart, document={**chart.document, "bars": bars})
