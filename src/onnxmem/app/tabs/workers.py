"""Workers: what several processes of the model take together, mode by mode: first by prediction, then measured."""

from __future__ import annotations

import streamlit as st

from onnxmem.app.asking import last_asked, outcome
from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Job
from onnxmem.app.show import estimated, show_chart, show_section
from onnxmem.app.workspace import Workspace
from onnxmem.report.sections import section
from onnxmem.report.sections.forecast import forecast_workers
from onnxmem.session.modes import MODES

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
_RUNS = "3"


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """The last measurement of what is chosen; until there is one, the prediction."""
    job = last_asked(space, choice.words("share"), _ask(choice))
    document = outcome(job, "share", "Measuring workers")
    if document is not None:
        show_section(section(document), "share")
    elif estimated(estimate) and estimate.document is not None:
        for chart in forecast_workers(estimate.document):
            show_chart(chart, "predicted workers")
        st.caption("Predicted, without starting any of them. Measure them to know, and to see the floor.")


def _ask(choice: Choice) -> tuple[str, ...] | None:
    """The command line of what is to be measured, at the moment that the button is pressed."""
    modes = _modes(choice)
    with st.form("workers", border=False):
        counts = st.multiselect("Workers at once", _COUNTS, default=[1, 2, 4], key="worker counts",
                                help="One group of processes for each number.")  # fmt: skip
        chosen = st.multiselect("Modes", modes, default=_usual(modes), key=f"worker modes {modes}",
                                help="The floor is known only with a mode that leaves all weights in files: "
                                "prepacked, mapped or ort-mapped.")  # fmt: skip
        cold = st.checkbox("Load with a cold page cache, too; that takes longer", key="worker cold")
        pressed = st.form_submit_button("Measure workers", type="primary")
    if not pressed:
        return None
    if not counts or not chosen:
        st.warning("Choose at least one number of workers and one mode.")
        return None
    return choice.words("share", "--workers", ",".join(map(str, sorted(counts))), "--modes", ",".join(chosen),
                        "--runs", _RUNS, "--cold" if cold else "--no-cold")  # fmt: skip


def _modes(choice: Choice) -> list[str]:
    """Those that can be made of this file: an .ort file is never anything else."""
    ort = choice.path.suffix.lower() == ".ort"
    return [mode.name for mode in MODES if (mode.form == "ort") == ort]


def _usual(modes: list[str]) -> list[str]:
    return [mode for mode in modes if mode in ("stock", "mapped", "prepacked", "ort", "ort-mapped")]
