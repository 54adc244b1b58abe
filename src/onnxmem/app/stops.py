"""A slider from what a run needs now to the least that is possible: what each stop costs, and the plan of it."""

from __future__ import annotations

import shlex

import streamlit as st

from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Document
from onnxmem.app.show import finished, show_error
from onnxmem.app.workspace import Workspace
from onnxmem.report.render.to_markdown import escape
from onnxmem.units import format_bytes, format_percent, typed_bytes

_KEPT = "map stops"
_NEAR = 1.02
"""A plan may be so much above what is alive at once."""


def chosen_stop(space: Workspace, choice: Choice) -> Document | None:
    """The plan of the stop that was chosen, once there is one; None: nothing is computed in pieces."""
    estimate = _searched(space, choice)
    if estimate is None:
        return None
    steps = stops_of(estimate)
    if len(steps) < 2:
        st.caption("No part of this model takes less when it is computed piece by piece.")
        return None
    step = _choose(steps)
    _say_cost(choice, step, steps[-1], estimate["budget"])
    if step["kind"] != "tiles":
        return None
    words = choice.words("plan", "--tile", "--capacity", str(round(_NEAR * step["needed_bytes"])))
    job = space.ask(*words)
    if not finished(job, "stop", f"Planning a run within {format_bytes(step['needed_bytes'])}"):
        return None
    if job.document is None:
        show_error(job)
    return job.document


def stops_of(estimate: Document) -> list[Document]:
    """All at once, and in more and more pieces: what needs least first."""
    steps = (estimate.get("budget") or {}).get("steps") or ()
    kept = [step for step in steps if step["kind"] != "rows"]
    return sorted(kept, key=lambda step: int(step["needed_bytes"]))


def _searched(space: Workspace, choice: Choice) -> Document | None:
    """The estimate with all stops, once somebody asked for it. It is kept: others make way for newer ones."""
    wanted = (choice.path, tuple(choice.dims.items()))
    of: object
    found: Document | None
    of, found = st.session_state.get(_KEPT, (None, None))
    if of != wanted:
        text, button = st.columns([3, 1.4], vertical_alignment="center")
        text.caption("Parts of a model can be computed piece by piece: less memory, for a little more work.")
        if button.button("See what less costs", key="map less", icon=":material/tune:", width="stretch"):
            st.session_state[_KEPT] = (wanted, None)
            st.rerun()
        return None
    if found is None:
        words = choice.words("estimate", "--budget", "least", "--strategy", "best")
        job = space.ask(*words)
        if not finished(job, "stops", "Looking for what less memory costs"):
            return None
        found = job.document
        st.session_state[_KEPT] = (wanted, found) if found is not None else (None, None)
        if found is None:
            show_error(job)
            space.forget(*words)
    return found


def _choose(steps: list[Document]) -> Document:
    sizes = {int(step["needed_bytes"]): step for step in steps}
    # Another one for other stops: a slider keeps its value only as long as that is one of them.
    size = st.select_slider("Budget of a run, with its outputs", list(sizes), max(sizes), key=f"map stop {list(sizes)}",
                            format_func=format_bytes)  # fmt: skip
    return sizes[size]


def _say_cost(choice: Choice, step: Document, whole: Document, budget: Document) -> None:
    less = whole["needed_bytes"] - step["needed_bytes"]
    needs, work, nodes = st.columns(3)
    needs.metric("A run needs", format_bytes(step["needed_bytes"]), f"-{format_bytes(less)}" if less else None,
                 delta_color="inverse", help="What is alive at once, and the outputs.")  # fmt: skip
    work.metric("More work", format_percent(step["extra_work"]) if less else "none", help="Multiplications.")
    nodes.metric("More nodes", f"{step['nodes']:,}" if less else "none", help="About 6 KiB each in a loaded session.")
    if less:
        asked = ("-o", "small.pack", "--budget", typed_bytes(step["needed_bytes"]))
        st.code(shlex.join(["onnxmem", *choice.words("pack", *asked)]), language=None, wrap_lines=True)
    rows = next((each for each in budget["steps"] if each["kind"] == "rows"), None)
    if rows is not None:
        st.caption(escape(f"Its batch can be split, too: {rows['rows_at_once']:,} of {budget['rows']:,} rows at a time "
                          f"need {format_bytes(rows['needed_bytes'])}."))  # fmt: skip
