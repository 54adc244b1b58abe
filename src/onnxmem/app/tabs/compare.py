"""Compare: the model in several modes, other models, and PyTorch: who takes less, and are the answers the same?"""

from __future__ import annotations

import importlib.util

import streamlit as st

from onnxmem.app.asking import last_asked, outcome
from onnxmem.app.choice import MODES, Choice
from onnxmem.app.jobs import Job
from onnxmem.app.show import show_section
from onnxmem.app.sidebar import known_models
from onnxmem.app.workspace import Workspace
from onnxmem.errors import missing_extra
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.sections import section

_REPEAT, _RUNS = 2, "3"


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Choose candidates and sizes, and compare them in fresh processes."""
    job = last_asked(space, choice.words("compare"), _ask(space, choice))
    document = outcome(job, "compare", "Comparing")
    if document is not None:
        show_section(section(document), "compare")


def _ask(space: Workspace, choice: Choice) -> tuple[str, ...] | None:
    """The command line of what is to be compared, at the moment that the button is pressed."""
    others = {name: path for name, path in known_models(space).items() if path != choice.path}
    with st.form("compare", border=False):
        modes = st.multiselect(f"{escape(choice.name)} in these modes", MODES, default=["stock", "planned"],
                               key="compared modes")  # fmt: skip
        models = []
        if others:
            models = st.multiselect("Other models that do the same job", others, key="compared models",
                                    placeholder="None",
                                    help="Those that this dashboard knows: given, uploaded, from the zoo.")  # fmt: skip
        torch = _ask_torch()
        left, right = st.columns(2)
        sizes = left.text_input("Input sizes", key="compared sizes", placeholder="128, 256",
                                help="Height and width, or the length: one comparison for each. "
                                "Empty: at the sizes chosen on the left.")  # fmt: skip
        repeat = right.number_input("Processes for each candidate and size", 1, 20, _REPEAT, key="compared repeat",
                                    help="With fewer than 3 little is decided; each takes its time.")  # fmt: skip
        advice = st.checkbox("Try what would save more", key="compared advice")
        pressed = st.form_submit_button("Compare", type="primary")
    if not pressed:
        return None
    candidates = [f"{choice.path}{f'+{mode}' if mode != 'stock' else ''}" for mode in modes]
    candidates += [str(others[name]) for name in models]
    candidates += [torch.strip()] if torch.strip() else []
    if not candidates:
        st.warning("Choose at least one candidate.")
        return None
    given = (word for name, size in choice.dims.items() for word in ("--dim", f"{name}={size}")) if not sizes else ()
    asked = ("--sizes", sizes.replace(" ", "")) if sizes.strip() else ()
    more = ("--repeat", str(repeat), "--runs", _RUNS, "--advice" if advice else "--no-advice")
    return ("compare", *(_as_argument(each) for each in candidates), *given, *asked, *more)


def _as_argument(candidate: str) -> str:
    """Whatever was typed is a candidate, never an option."""
    return f"./{candidate}" if candidate.startswith("-") else candidate


def _ask_torch() -> str:
    """Whether there is PyTorch is found out without loading it."""
    there = importlib.util.find_spec("torch") is not None
    text: str = st.text_input(
        "A PyTorch model", key="compared torch", disabled=not there,
        placeholder="module:factory, a .pt2 or a TorchScript file" if there else "PyTorch is not installed here",
        help="Its code is run, in a process of its own.",
    )  # fmt: skip
    if not there:
        st.caption(f"To compare with PyTorch: {escape(missing_extra('torch', 'torch').hint)}")
    return text
