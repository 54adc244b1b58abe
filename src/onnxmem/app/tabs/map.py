"""Map: where every buffer lies and when, what a tensor is made from and for, and how good other orders are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Document, Job
from onnxmem.app.placed import Placed, Window
from onnxmem.app.show import drawn, estimated, finished, load_pandas, page_width, show_chart, show_error, show_spec
from onnxmem.app.stops import chosen_stop
from onnxmem.app.workspace import Workspace
from onnxmem.report.charts.live_map import CHOSEN, WINDOW, Live, beginning_with
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.report import Chart
from onnxmem.report.sections import section
from onnxmem.report.sections.forecast import forecast_of
from onnxmem.report.sections.plan import verdict
from onnxmem.units import format_bytes, format_count

_OWN = "as ONNX Runtime orders them"
_MARGINS, _MARGIN = 195, 65
"""What axes and notes beside the map take; on a phone there are no notes."""
_PILLS = 16
_HEIGHT = 640
_PHONE, _ROOMY = 600, 1080
"""So wide a page shows a tensor beside the map; others, below it."""


@dataclass
class Look:
    """What is being looked at. The map in the browser tells of changes; the page's own begin a new map."""

    of: tuple[Any, ...]
    window: Window = None
    chosen: int | None = None
    map: int = 0
    """Counts the maps that the page has begun."""
    begins: Live = field(default_factory=Live)
    """With which the present one began."""
    fields: int = 0
    """Counts the fields to search in. A map takes over what stands in its field, and only hears what is typed into it:
    for an empty one there has to be a new field."""

    @property
    def key(self) -> str:
        """That of the present map."""
        return f"map {self.map}"

    @property
    def find(self) -> str:
        """The key of the field."""
        return f"map-find-{self.fields}"

    def begin(self, window: Window, chosen: int | None) -> None:
        """Let a new map begin with this."""
        self.window, self.chosen, self.map = window, chosen, self.map + 1
        self.begins = Live(window=window, chosen=chosen)


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """The map, the nodes, and the other plans."""
    if not estimated(estimate) or estimate.document is None:
        return
    document = chosen_stop(space, choice) or _chosen_plan(space, choice, estimate.document)
    of = (choice.path, tuple(choice.dims.items()), document.get("order"), document.get("date"))
    look: Look = st.session_state.get("map look") or Look(of)
    if look.of != of:
        look = Look(of, map=look.map + 1)
        st.session_state.pop("map placed", None)
    st.session_state["map look"] = look
    placed: Placed | None = st.session_state.setdefault("map placed", Placed.of(document))
    if placed is None or not any(placed.live):
        note = (document.get("activations") or document).get("placement_note")
        st.info(f"There is no map to draw: {escape(note or 'this model has no buffers to place')}.")
    else:
        _explore(placed, look, _room(choice, estimate.document))
    _compare(space, choice, estimate.document)


def _chosen_plan(space: Workspace, choice: Choice, estimate: Document) -> Document:
    """The estimate's own plan, or that of another order of the nodes once there is one."""
    plans = _orders(space, choice)
    if not plans:
        return estimate
    order = st.selectbox("Order of the nodes", [_OWN, *plans], key="map order")
    return plans.get(order, estimate)


def _room(choice: Choice, estimate: Document) -> int | None:
    """What the budget leaves for activations when the rest of a planned process has its part."""
    planned = forecast_of(estimate, "planned")
    if choice.budget is None or planned is None:
        return None
    own = sum(part["bytes"] for part in planned["parts"] if part["name"] == "activations")
    rest: int = planned["peak_bytes"] - own
    return max(choice.budget - rest, 0)


@st.fragment
def _explore(placed: Placed, look: Look, room: int | None) -> None:
    """Drawn anew by itself at every click, without the rest of the page."""
    search = _controls(placed, look)
    beside = page_width() >= _ROOMY
    shown, told = st.columns([5, 2], gap="medium") if beside else (st.container(), st.container())
    spec = _spec(placed, look, room, page_width() * 5 // 7 if beside else page_width())
    key = look.key
    # A new map takes its place: the page below must not jump meanwhile.
    st.html(f"<style>.st-key-map-frame {{ min-height: {_HEIGHT}px; }}</style>")
    with shown.container(key="map-frame"):
        show_spec(spec, key, placed.chart.alt, on_select=lambda: _heard(look, key))
    with told:
        _about(placed, look, 2 if beside else 4)
    _nodes(placed, look, search)


def _controls(placed: Placed, look: Look) -> str:
    find, peak, whole = st.columns([4, 1.4, 1.2], vertical_alignment="bottom")
    with find:
        search: str = st.text_input(
            "Find a tensor", key=look.find, live=True, icon=":material/search:",
            placeholder="part of its name, or of the node that makes it",
        )  # fmt: skip
    peak.button("Jump to peak", key="map peak", icon=":material/vertical_align_top:", width="stretch",
                on_click=lambda: look.begin(placed.around_peak(), look.chosen))  # fmt: skip
    whole.button("Show all", key="map all", icon=":material/zoom_out_map:", width="stretch",
                 on_click=lambda: _show_all(look))  # fmt: skip
    _choose_steps(placed, look)
    if search.strip():
        st.caption(f"{placed.found(search.strip()):,} of {format_count(len(placed.rows), 'tensor')} found")
    return search.strip()


def _choose_steps(placed: Placed, look: Look) -> None:
    """The same as marking the curve, for whoever has no mouse."""
    steps = len(placed.live)
    if steps < 2:
        return
    first, last = (min(max(round(each), 0), steps) for each in look.window or (0, steps))
    # Another one for every window: this one takes over what was marked on the curve.
    key = f"map steps {look.map} {first} {last}"

    def mark() -> None:
        first, last = st.session_state[key]
        look.begin((first, max(last, first + 1)) if (first, last) != (0, steps) else None, look.chosen)

    st.slider("Steps in sight", 0, steps, (first, max(last, first + 1)), key=key, on_change=mark)


def _show_all(look: Look) -> None:
    look.fields += 1
    look.begin(None, None)


def _spec(placed: Placed, look: Look, room: int | None, wide: int) -> dict[str, Any]:
    """The map as Vega-Lite. It is drawn once for a plan and a width: a click must not wait for that."""
    width = max(wide - (_MARGINS if wide > _PHONE else _MARGIN), 200)
    key = (look.of, width, room, look.find)
    if st.session_state.get("map drawn", (None,))[0] != key:
        chart = replace(placed.chart, document={**placed.chart.document, "capacity_bytes": room})
        made = drawn(chart, width=width, live=Live(search=f".st-key-{look.find} input"), limit="the budget leaves")
        st.session_state["map drawn"] = (key, made)
    spec: dict[str, Any] = st.session_state["map drawn"][1]
    return beginning_with(spec, look.begins)


def _heard(look: Look, key: str) -> None:
    """What the reader marked or clicked on the map; what is not mentioned is as it was."""
    if key != look.key:
        return  # on one that was already being replaced
    selection: Mapping[str, Any] = st.session_state[key]["selection"]
    if WINDOW in selection:
        steps = (selection[WINDOW] or {}).get("x")
        look.window = (float(steps[0]), float(steps[1])) if steps else None
    if CHOSEN in selection:
        first = next(iter(selection[CHOSEN] or ()), None)
        index = first.get("id") if isinstance(first, Mapping) else None
        look.chosen = index if isinstance(index, int) and index >= 0 else None


def _about(placed: Placed, look: Look, across: int) -> None:
    """All about the chosen tensor, with so many figures in a row, and a way to its relatives."""
    if look.chosen is None or look.chosen >= len(placed.rows):
        if page_width() < 600:
            st.caption(
                escape(f"The line: {format_bytes(max(row['offset'] + row['bytes'] for row in placed.rows))}, the peak.")
            )
        st.caption("Click a tensor to see who makes and who reads it. Drag over the curve of live bytes to zoom; "
                   "double-click it to see everything again.")  # fmt: skip
        return
    row, chosen = placed.rows[look.chosen], look.chosen
    with st.container(border=True, key="map-tensor"):
        st.markdown(f"##### {escape(row['name'])}")
        facts = {
            "Size": (format_bytes(row["bytes"]), f"{row['bytes']:,} bytes"),
            "Steps alive": (
                f"{row['lower']:,} – {row['upper'] - 1:,}",
                format_count(row["upper"] - row["lower"], "step"),
            ),
            "Offset": (format_bytes(row["offset"]), f"{row['offset']:,} bytes from the start of the arena"),
            "Type": (str(row.get("dtype") or "?"), str(row.get("kind") or "")),
        }
        columns = [column for _ in range(0, len(facts), across) for column in st.columns(across)]
        for column, (label, (value, about)) in zip(columns, facts.items(), strict=True):
            column.metric(label, value, help=escape(about) or None)
        st.markdown("\n".join(_lines(row)))
        related = placed.relatives[chosen]
        _walk(placed, look, "Made from (dashed)", related["sources"])
        _walk(placed, look, "Used for (outlined)", related["results"])


def _lines(row: Document) -> list[str]:
    """Where a tensor comes from and goes, and its size for any size of the input."""
    readers = [f"`{_code(each)}`" for each in row.get("consumers") or ()]
    kept = " It is an output, and kept to the end." if row.get("kind") == "output" else ""
    lines = [
        f"- Shape `{_code(_shape(row.get('shape')))}`.",
        f"- Made by `{_code(row['producer'])}` at step {row['lower']:,}." if row.get("producer") else "- An input.",
        f"- Read by {format_count(len(readers), 'node')}: {', '.join(readers)}.{kept}" if readers
        else f"- Nobody reads it.{kept}",
    ]  # fmt: skip
    if row.get("symbolic_shape") is not None:
        lines.append(f"- For any size: `{_code(_shape(row['symbolic_shape']))}`, "
                     f"`{_code(str(row.get('symbolic_bytes')))}` bytes.")  # fmt: skip
    return lines


def _code(text: str) -> str:
    """Text from a model between backticks: nothing in it may end them."""
    return " ".join(text.replace("`", "ʼ").split())


def _shape(shape: Sequence[Any] | None) -> str:
    if shape is None:
        return "?"
    return " × ".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def _walk(placed: Placed, look: Look, label: str, others: list[int]) -> None:
    """Relatives as buttons: from one tensor to the next."""
    if not others:
        return
    key = f"map {label} {look.map} {look.chosen}"

    def go() -> None:
        if (to := st.session_state[key]) is not None:
            look.begin(look.window, to)

    def name(index: int) -> str:
        row = placed.rows[index]
        return f"{escape(row['name'])} · {format_bytes(row['bytes'])}"

    more = f", and {len(others) - _PILLS} more" if len(others) > _PILLS else ""
    st.pills(label + more, others[:_PILLS], key=key, on_change=go, format_func=name)


def _nodes(placed: Placed, look: Look, search: str) -> None:
    """The nodes that run in what is in sight; choosing one chooses what it makes."""
    steps = placed.steps(look.window, search)
    where = "" if look.window is None else f" from step {round(look.window[0]):,} to {round(look.window[1]) - 1:,}"
    st.markdown(f"**{format_count(len(steps), 'node')}{where}**")
    if not steps:
        return
    key = f"map nodes {look.map} {look.window} {search}"

    def pick() -> None:
        picked = st.session_state[key]["selection"]["rows"]
        if picked:
            step = steps[picked[0]]
            look.begin(look.window, placed.tensor_of(step["step"], step["node"]))

    columns = {
        "step": st.column_config.NumberColumn("step", format="localized", width="small"),
        "bytes": st.column_config.NumberColumn("size (MiB)", format="%.2f", width="small"),
        "live": st.column_config.ProgressColumn("alive (MiB)", format="%.1f", min_value=0,
                                                max_value=max(placed.live) / 2**20 or 1),
    }  # fmt: skip
    table = {name: [step[name] for step in steps] for name in ("step", "node", "op", "makes", "bytes", "live")}
    table |= {name: [value / 2**20 for value in table[name]] for name in ("bytes", "live")}
    load_pandas()
    st.dataframe(table, key=key, on_select=pick, selection_mode="single-row", hide_index=True, column_config=columns,
                 height=min(36 + 35 * len(steps), 390), placeholder="–")  # fmt: skip


def _orders(space: Workspace, choice: Choice) -> dict[str, Document]:
    """The plans there are of this model in other orders of its nodes."""
    from onnxmem.schedule.orders import ORDERS  # noqa: PLC0415

    jobs = ((order, space.find(*_words(choice, order))) for order in ORDERS)
    return {order: job.document for order, job in jobs if job and job.document}


def _words(choice: Choice, order: str) -> tuple[str, ...]:
    return choice.words("plan", "--order", order)


def _compare(space: Workspace, choice: Choice, estimate: Document) -> None:
    """Strategies beside orders, with the distance to the bound."""
    strategies = next((each for each in section(estimate).charts if each.kind == "strategies"), None)
    if strategies is None:
        return
    # Side by side where there is room for both.
    room = page_width() // 2 - 190
    left, right = st.columns(2, gap="large") if room >= 300 else (st.container(), st.container())
    width: dict[str, Any] = {"width": room} if room >= 300 else {}
    with left:
        show_chart(strategies, "map strategies", **width)
    with right:
        plans = _compared_orders(space, choice)
        if plans:
            show_chart(_order_chart(plans), "map orders", **width)
            st.markdown(_verdict(plans, estimate))


def _compared_orders(space: Workspace, choice: Choice) -> dict[str, Document]:
    """Every order's plan, once somebody asked for them; those there are meanwhile."""
    from onnxmem.schedule.orders import ORDERS  # noqa: PLC0415

    wanted = (choice.path, tuple(choice.dims.items()))
    if st.session_state.get("map orders") != wanted:
        st.markdown("**Activations by order of the nodes**")
        st.caption("A model can run its nodes in many orders, and some need less memory than others.")
        if st.button("Compare orders", key="map compare", icon=":material/swap_vert:"):
            st.session_state["map orders"] = wanted
            st.rerun()
        return {}
    for order in ORDERS:
        job = space.ask(*_words(choice, order))
        if not finished(job, f"plan {order}", f"Planning, {order} order"):
            break
        if job.document is None:
            show_error(job)
            st.session_state["map orders"] = None
            space.forget(*_words(choice, order))
            break
    return _orders(space, choice)


def _order_chart(plans: Mapping[str, Document]) -> Chart:
    """The bars of the strategies, of orders. Optimal is what no order can do better, not only its own."""
    search = plans.get("best", {}).get("order_search")
    proven = plans["best"]["peak_bytes"] if search and search["optimal"] and plans["best"]["optimal"] else None
    least = min(plan["lower_bound_bytes"] for plan in plans.values())
    bound = proven or (search or {}).get("proven_bound_bytes") or least
    rows = [{"name": order, "peak_bytes": plan["peak_bytes"], "optimal": plan["peak_bytes"] == proven}
            for order, plan in plans.items()]  # fmt: skip
    listed = ", ".join(f"{row['name']} {format_bytes(row['peak_bytes'])}" for row in rows)
    alt = f"One bar per order of the nodes: {listed}. The lower bound is {format_bytes(bound)}."
    document = {"strategies": rows, "lower_bound_bytes": bound}
    return Chart("strategies", "Activations by order of the nodes", alt, document)


def _verdict(plans: Mapping[str, Document], estimate: Document) -> str:
    """The best order against that in which ONNX Runtime runs them."""
    best = min(plans, key=lambda order: plans[order]["peak_bytes"])
    plan, own = plans[best], min(each["peak_bytes"] for each in estimate["activations"]["strategies"])
    saved = own - plan["peak_bytes"]
    gain = f"{format_bytes(saved)} less than" if saved > 0 else "no less than"
    return escape(f"Smallest: {best}, {format_bytes(plan['peak_bytes'])}, {verdict(plan)}; {gain} {_OWN}.")
