"""What if: the batch, the image or the sequence grows. What each mode takes then, and how far a budget goes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from onnxmem.app.choice import Choice, Dimension, dimensions
from onnxmem.app.jobs import Document, Job
from onnxmem.app.show import estimated, finished, show_chart, show_error, show_notes
from onnxmem.app.workspace import Workspace
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.sections import section
from onnxmem.units import format_bytes

_SHOWN = ("stock", "tuned", "planned")
_STEPS = 64
"""A range has about so many sizes at most."""
_POLL = 0.3


@dataclass(frozen=True)
class Grows:
    """What is made larger: a dimension, or several that are always equal."""

    label: str
    dims: tuple[Dimension, ...]

    @property
    def step(self) -> int:
        """Between sizes: one for which formulas are exact, so that a range has not too many of them."""
        each = max(dim.step for dim in self.dims)
        return each * -(-self.dims[0].last // (_STEPS * each))

    def words(self, choice: Choice, last: int) -> tuple[str, ...]:
        """How a verb is asked for all sizes up to one, with the other dimensions as they were chosen."""
        first, *equal = (dim.name for dim in self.dims)
        ranges = [f"{first}={self.step}..{max(last, self.step)}:{self.step}", *(f"{name}={first}" for name in equal)]
        fixed = [f"{name}={size}" for name, size in choice.dims.items() if name not in (first, *equal)]
        return ("fit", str(choice.path), *(word for each in (*ranges, *fixed) for word in ("--dim", each)))


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Curves of all sizes once; then sliders and the budget are answered from them."""
    if not estimated(estimate) or estimate.document is None:
        return
    grows, last = _choose(choice, estimate.document)
    if grows is None:
        st.info("All shapes of this model are fixed: nothing can grow.")
        return
    words = grows.words(choice, last)
    job = space.ask(*words)
    if not finished(job, "what if", f"Following {grows.label} up to {last:,}"):
        return
    if job.document is None:
        show_error(job)
        st.button("Try again", key="what if again", on_click=lambda: space.forget(*words))
        return
    curves = job.document
    if choice.budget is None:
        st.caption("Set a budget in the sidebar to see how large it lets the model be.")
    elif fitted := _largest(space, choice, grows, words, curves):
        curves = with_points(curves, fitted)
    _explore(curves, grows.label, choice.budget)
    show_notes(section(job.document).notes)


def growing(known: list[Dimension]) -> list[Grows]:
    """What may grow: the sides of an image together first, then every dimension by itself."""
    sides = tuple(each for each in known if each.label.startswith(("height", "width")))
    image = [Grows("image size", sides)] if len(sides) == 2 and len({each.value for each in sides}) == 1 else []
    single = [Grows(each.label, (each,)) for each in known]
    # A batch is what most people ask for.
    batch = [each for each in single if each.label.startswith("batch")]
    return [*batch, *image, *(each for each in single if each not in batch)]


def _choose(choice: Choice, estimate: Document) -> tuple[Grows | None, int]:
    """What grows, and up to which size."""
    known: list[Dimension] = st.session_state.get(f"sizes {choice.path}") or dimensions(estimate)
    options = {each.label: each for each in growing(known)}
    if not options:
        return None, 0
    what, end = st.columns([3, 1], vertical_alignment="bottom")
    label = what.segmented_control(
        "What grows", list(options), default=next(iter(options)), key=f"what if grows {choice.path}",
        format_func=escape, required=True,
    )  # fmt: skip
    grows = options[label]
    last = end.number_input("Up to", grows.step, 10**6, grows.dims[0].last, grows.step, key=f"what if end {label}")
    return grows, int(last)


def _largest(
    space: Workspace, choice: Choice, grows: Grows, words: tuple[str, ...], curves: Document
) -> Document | None:
    """The largest size within the budget: roughly from the curves at once, and exactly as soon as it was searched."""
    job = space.ask(*words, "--budget", str(choice.budget))
    if job.ended:
        if job.document is None:
            show_error(job)
        else:
            st.markdown(largest_sentence(job.document, grows.label, choice.budget or 0))
        return job.document
    rough = largest_known(curves, choice.budget or 0)
    at_least = ", ".join(f"{mode} {size:,}" for mode, size in rough.items() if mode in _SHOWN and size)
    st.markdown(escape(f"Largest {grows.label} that fits: at least {at_least or '…'}"))

    @st.fragment(run_every=_POLL)
    def wait() -> None:
        if job.ended:
            st.rerun()
        st.caption("Looking closer …")

    wait()
    return None


def with_points(curves: Document, fitted: Document) -> Document:
    """The curves, with the sizes besides that the search for the largest one looked at."""
    more = {mode["mode"]: mode["points"] for mode in fitted["answers"][0]["modes"]}
    answer = curves["answers"][0]
    modes = []
    for mode in answer["modes"]:
        points = {point["size"]: point for point in (*more.get(mode["mode"], ()), *mode["points"])}
        modes.append({**mode, "points": [points[size] for size in sorted(points)]})
    return {**curves, "answers": [{**answer, "modes": modes}]}


def largest_known(curves: Document, budget: int) -> dict[str, int | None]:
    """For each mode, the largest size on its curve that a budget holds, with what predictions may be off."""
    modes = curves["answers"][0]["modes"]
    return {mode["mode"]: max((p["size"] for p in mode["points"] if p["needed_bytes"] <= budget), default=None)
            for mode in modes}  # fmt: skip


def largest_sentence(fitted: Document, label: str, budget: int) -> str:
    """ "Largest batch that fits into 512.0 MiB: 12", with the mode that does it, and those that are shown beside it."""
    answer = fitted["answers"][0]
    holds = {mode["mode"]: mode for mode in answer["modes"]}
    into = f"Largest {label} that fits into {format_bytes(budget)}"
    best = answer["recommended"]
    if best is None:
        return f"**{escape(into)}: none.** {escape('Even the smallest takes more, in every mode.')}"
    sizes = {mode: f"{row['holds']:,}{' or more' if row['open_end'] else ''}" if row["holds"] else "none"
             for mode, row in holds.items()}  # fmt: skip
    others = ", ".join(f"{mode} {sizes[mode]}" for mode in _SHOWN if mode in sizes and mode != best)
    return f"#### {escape(f'{into}: {sizes[best]}')}\n{escape(f'Run it {best}; {others}.')}"


@st.fragment
def _explore(curves: Document, label: str, budget: int | None) -> None:
    """What each mode takes at a size, and all sizes; answered from the curves alone."""
    answer = curves["answers"][0]
    modes = [mode["mode"] for mode in answer["modes"]]
    chosen = st.pills("Modes", modes, selection_mode="multi", default=[m for m in _SHOWN if m in modes],
                      key="what if modes")  # fmt: skip
    shown = [mode for mode in answer["modes"] if mode["mode"] in chosen] or list(answer["modes"])
    sizes = sorted({point["size"] for mode in shown for point in mode["points"]})
    if not sizes:
        st.info("The model cannot run at any of these sizes.")
        return
    size = sizes[0]
    if len(sizes) > 1:
        size = st.select_slider(escape(f"Look at {label}"), sizes, sizes[len(sizes) // 3], key=f"what if size {sizes}",
                                format_func=lambda each: f"{each:,}")  # fmt: skip
    _figures(shown, size, budget)
    chart = next((each for each in section(curves).charts if each.kind == "fit"), None)
    if chart is not None:
        document = {**chart.document, "budget_bytes": budget, "answer": {**answer, "modes": shown}}
        show_chart(replace(chart, document=document), "what if curves", at=size)


def _figures(modes: list[Document], size: int, budget: int | None) -> None:
    """What each mode takes at a size: against the budget where there is one, or else against the first of them."""
    taken = {mode["mode"]: next((p for p in mode["points"] if p["size"] == size), None) for mode in modes}
    first = next((point for point in taken.values() if point), None)
    for column, (mode, point) in zip(st.columns(max(len(taken), 1)), taken.items(), strict=True):
        if point is None:
            column.metric(mode, "?", help="Not known at this size.")
            continue
        value = f"{'' if point.get('exact', True) else '≈ '}{format_bytes(point['bytes'])}"
        if budget is not None:
            fits = point["needed_bytes"] <= budget
            column.metric(mode, value, "fits" if fits else "does not fit",
                          delta_color="normal" if fits else "inverse", delta_arrow="off",
                          help=f"Safe with {format_bytes(point['needed_bytes'])}.")  # fmt: skip
        else:
            less = point["bytes"] - first["bytes"] if first else 0
            column.metric(mode, value, f"{'-' if less < 0 else '+'}{format_bytes(abs(less))}" if less else None,
                          delta_color="inverse", delta_arrow="down" if less < 0 else "up")  # fmt: skip
