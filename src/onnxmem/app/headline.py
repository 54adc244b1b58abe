"""On top: the peak, how far that is from the budget, what a plan would save, the latency, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import streamlit as st

from onnxmem.app.choice import Choice, Document
from onnxmem.app.jobs import Job
from onnxmem.app.show import redraw_when_ended
from onnxmem.app.workspace import Workspace
from onnxmem.report.sections import section
from onnxmem.report.sections.forecast import forecast_of
from onnxmem.report.sections.measure import peak
from onnxmem.units import format_bytes, format_seconds


def show_headline(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Four figures and one command. While another size is estimated, the last figures stay, and say that."""
    if estimate.document is not None:
        st.session_state["last estimate"] = (choice.path, estimate.document)
    path, last = st.session_state.get("last estimate", (None, {}))
    # Not after an error: figures beside it would be taken for its own.
    document = estimate.document or (last if path == choice.path and not estimate.ended else {})
    waiting = bool(document) and estimate.document is None
    stock, planned, own = (forecast_of(document, mode) for mode in ("stock", "planned", choice.mode))
    measured = measurement(space, choice)
    taken = peak(measured).get("peak_rss_bytes") if measured else None
    value = taken or (own["peak_bytes"] if own else None)
    how = "measured" if taken else "predicted"
    columns = st.columns(4)
    label = f"Peak, {choice.mode}" + (" (estimating …)" if waiting else "")
    columns[0].metric(label, format_bytes(value) if value else "…", help=f"RSS of the process, {how}")
    if value and choice.budget:
        room = choice.budget - value
        text = f"{format_bytes(abs(room))} {'below' if room >= 0 else 'above'}"
        columns[1].metric("To the budget", text, "fits" if room >= 0 else "does not fit",
                          delta_color="normal" if room >= 0 else "inverse", delta_arrow="off")  # fmt: skip
    else:
        columns[1].metric("To the budget", "—" if not choice.budget else "…", help="Set a budget in the sidebar.")
    columns[2].metric(*gain_of_plan(stock, planned),
                      help="The predicted peak of stock − that of planned")  # fmt: skip
    latency = measured.get("latency_seconds") if measured else None
    columns[3].metric("Latency", format_seconds(latency) if latency else "—",
                      help="Median of the steady runs" if latency else "Measure it to know.")  # fmt: skip
    # Not every tab waits for it, and all of them stand below these figures.
    redraw_when_ended(estimate)
    if command := next_command(choice, [each for each in (measured, estimate.document) if each]):
        st.code(command, language=None, wrap_lines=True)


def gain_of_plan(stock: Document | None, planned: Document | None) -> tuple[str, str]:
    """What a plan saves by prediction, or costs where a process takes more with it."""
    saved = stock["peak_bytes"] - planned["peak_bytes"] if stock and planned else None
    label = "A plan saves" if saved is None or saved >= 0 else "A plan costs"
    return label, "…" if saved is None else format_bytes(abs(saved))


def measurement(space: Workspace, choice: Choice, mode: str = "") -> Document | None:
    """The last measurement of this model at these sizes in this mode, if there is one."""
    wanted = choice.words("measure", "--mode", mode or choice.mode)
    found = [job for job in space.jobs("measure") if job.words[: len(wanted)] == wanted and job.document]
    return found[-1].document if found else None


def next_command(choice: Choice, documents: Sequence[Document]) -> str:
    """The command that the last result recommends; that which checks the budget where there is one."""
    if choice.budget:
        whole, rest = divmod(choice.budget, 2**20)
        budget = str(choice.budget) if rest else f"{whole}MiB"
        return shlex.join(["onnxmem", *choice.words("check", "--mode", choice.mode, "--budget", budget)])
    actions = (action for document in documents for action in section(document).actions if action.command)
    return next((action.command for action in actions), "")
