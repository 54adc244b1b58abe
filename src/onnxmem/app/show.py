"""Results in the page: sections of a report with live charts, and jobs while they work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import streamlit as st

from onnxmem.app.jobs import Job
from onnxmem.report.charts import theme
from onnxmem.report.charts.picture import NARROW, draw, spec_of
from onnxmem.report.render.to_markdown import escape, table_lines
from onnxmem.report.report import Action, Chart, Section, Table

_DEFAULT = 960
_STEP = 40
# What axes, legends and labels beside a chart take.
_MARGINS = 190
_POLL = 0.3
# Altair looks into pandas if it is loaded, and would fail in one tab of the browser while another one loads it.
_PANDAS = threading.Lock()
_VIEWPORT = """
export default function ({ setStateValue }) {
  const main = document.querySelector('[data-testid="stMainBlockContainer"]') ?? document.body;
  let last = 0;
  const look = () => {
    const style = getComputedStyle(main);
    const inside = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const width = Math.floor(inside / STEP) * STEP;
    if (width > 0 && width !== last) { last = width; setStateValue("width", width); }
  };
  const observer = new ResizeObserver(look);
  observer.observe(main);
  look();
  return () => observer.disconnect();
}
""".replace("STEP", str(_STEP))


def measure_page() -> None:
    """Ask the browser how wide the page is; charts are drawn for that width."""
    mount = st.components.v2.component("onnxmem_viewport", js=_VIEWPORT)
    answer = mount(key="viewport", default={"width": _DEFAULT}, on_width_change=lambda: None, height=1)
    st.session_state["page width"] = answer.get("width") or _DEFAULT


def page_width() -> int:
    """How wide the page is, in pixels."""
    width: int = st.session_state.get("page width", _DEFAULT)
    return width


def is_dark() -> bool:
    """Does the reader look at light text on dark?"""
    return st.context.theme.type == "dark"


def show_section(section: Section, key: str, *, heading: bool = True, skip: Iterable[str] = ()) -> None:
    """All of a section, the answer first; `skip`: kinds of charts that are shown elsewhere."""
    if heading:
        st.header(escape(section.heading), anchor=False)
    (st.error if section.alarm else st.markdown)(escape(section.summary))
    show_facts(section)
    show_actions(section.actions)
    for paragraph in section.story:
        st.markdown(escape(paragraph))
    for number, chart in enumerate(chart for chart in section.charts if chart.kind not in skip):
        show_chart(chart, f"{key} {number}")
    for table in section.tables:
        show_table(table)
    show_notes(section.notes)


def show_facts(section: Section) -> None:
    """Its figures, side by side."""
    facts = section.facts[:5]
    for column, fact in zip(st.columns(max(len(facts), 1)), facts, strict=False):
        column.metric(escape(fact.label), fact.cell.text, help=escape(fact.cell.why or fact.about) or None)


def show_actions(actions: Iterable[Action]) -> None:
    """What to do next, each with its command to copy."""
    for action in actions:
        saving = f": saves {action.saving}" if action.saving else ""
        st.markdown(f"**{escape(action.text + saving)}**")
        if action.command:
            st.code(action.command, language=None, wrap_lines=True)


def show_chart(chart: Chart, key: str, *, title: bool = True, **more: Any) -> Any:
    """A picture of the reports, live; `more` is for the function that draws it. What was selected is returned."""
    if title:
        st.markdown(f"**{escape(chart.title)}**")
    if "width" not in more and chart.kind in NARROW:
        more["width"] = max(min(page_width() - _MARGINS, 900), NARROW[chart.kind])
    return show_spec(drawn(chart, **more), key, chart.alt)


def drawn(chart: Chart, **more: Any) -> dict[str, Any]:
    """A picture of the reports as Vega-Lite."""
    with _PANDAS:
        return spec_of(draw(chart, **more))


def load_pandas() -> None:
    """What Streamlit needs for a table that can be sorted. It is large: not before there is one."""
    with _PANDAS:
        import pandas  # noqa: F401, PLC0415


def show_spec(spec: dict[str, Any], key: str, alt: str, on_select: Any = "ignore") -> Any:
    """Any picture, in the reader's theme."""
    spec = {key: part for key, part in spec.items() if key not in ("title", "description")}
    # The page would turn named data into tables of another kind; as rows they stay what they are.
    spec = _inlined(spec, spec.pop("datasets", {}))
    spec = theme.recoloured(spec, theme.DARK) if is_dark() else spec
    spec["background"] = "transparent"
    # As in the reports: what is written beside a chart comes on top of its width, which the page would count in.
    spec.setdefault("autosize", {"type": "pad"})
    with st.container(key=f"chart {key}".replace(" ", "-"), horizontal_alignment="left"):
        return st.vega_lite_chart(spec, theme=None, width="content", key=key, on_select=on_select, alt=alt[:1000])


def _inlined(part: Any, datasets: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        if part.keys() == {"name"} and part["name"] in datasets:
            return {"values": datasets[part["name"]]}
        return {key: _inlined(each, datasets) for key, each in part.items()}
    return [_inlined(each, datasets) for each in part] if isinstance(part, list) else part


def show_table(table: Table) -> None:
    """Its rows; folded away if it is long and for reference."""
    text = "\n".join(table_lines(table))
    if table.folded:
        with st.expander(escape(table.title)):
            st.markdown(text)
    else:
        st.markdown(f"**{escape(table.title)}**\n\n{text}")


def show_notes(notes: Iterable[str]) -> None:
    """The small print."""
    lines = [f"- {escape(note)}" for note in notes]
    if lines:
        with st.expander("Notes"):
            st.markdown("\n".join(lines))


def show_error(job: Job) -> None:
    """Why there is no result, and what to do about it."""
    if job.cancelled:
        st.info("Cancelled: nothing is left running.")
    elif job.error:
        st.error(escape(f"{job.error}.") + (f"\n\n{escape(job.hint)}" if job.hint else ""))


def finished(job: Job, key: str, what: str) -> bool:
    """Has it ended? If not, its progress is shown until it has, and then the page is drawn anew."""
    if job.ended:
        return True
    progress(job, key, what)
    return False


def redraw_when_ended(job: Job) -> None:
    """Draw the page anew once it has ended; until then nothing is to be seen of this."""

    @st.fragment(run_every=_POLL)
    def watch() -> None:
        if job.ended:
            st.rerun()

    if not job.ended:
        watch()


def estimated(estimate: Job) -> bool:
    """Is there an estimate to show? If not, the page says what it is waiting for, or what is wrong."""
    if not finished(estimate, "estimate", "Estimating"):
        return False
    if estimate.document is None:
        show_error(estimate)
    return estimate.document is not None


def progress(job: Job, key: str, what: str, more: Callable[[], None] | None = None) -> None:
    """What a job is doing, with a button to end it; drawn again every moment, without the rest of the page."""

    @st.fragment(run_every=_POLL)
    def watch() -> None:
        if job.ended:
            st.rerun()
        with st.status(f"{what} · {job.seconds:.0f} s", expanded=True):
            stages = [stage.rpartition(": ")[2] for stage in job.stages]
            for stage in stages[:-1][-8:]:
                st.markdown(f":material/check: {escape(stage)}")
            if stages:
                st.markdown(f":material/pending: **{escape(stages[-1])}**")
            # Called before anything is drawn: what draws may be ended half-way by the next moment.
            st.button("Cancel", key=f"{key} cancel", icon=":material/stop_circle:", on_click=job.cancel)
        if more is not None:
            more()

    watch()
