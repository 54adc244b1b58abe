"""The picture of sharing: workers against the total PSS of each mode, with the floor below them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report.charts import theme
from onnxmem.report.charts.layout import printable, shorten, spread
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT = 620, 360
FLOOR = "floor"
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

Document = Mapping[str, Any]


def share_chart(document: Document, *, width: int = WIDTH) -> altair.LayerChart:
    """How does memory grow with the number of workers? One line for each mode, named at its end.

    It takes the document, so that a saved result is drawn as a fresh one is.
    """
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    lines = _lines(document)
    top = max((value for points in lines.values() for _, value in points), default=1)
    factor, unit = next((pair for pair in _UNITS if top >= pair[0]), (1, "bytes"))
    colours = _colours(lines)
    counts = sorted({count for points in lines.values() for count, _ in points})
    x = alt.X(
        "workers:Q",
        title="workers",
        axis=alt.Axis(values=counts, format="d", grid=False),
        scale=alt.Scale(domain=[0, max(counts, default=1)], nice=False),
    )
    y = alt.Y("pss:Q", title=f"total PSS ({unit})", scale=alt.Scale(domain=[0, top * 1.05 / factor], nice=False))
    rows = [
        {"mode": mode, "workers": count, "pss": value / factor, "total": format_bytes(value)}
        for mode, points in lines.items()
        for count, value in points
    ]
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    dash = alt.condition(alt.datum.mode == FLOOR, alt.value([5, 4]), alt.value([1, 0]))
    base = alt.Chart(alt.InlineData(values=rows), width=width, height=HEIGHT)
    colour = alt.Color("mode:N", scale=scale, legend=None)
    drawn = base.mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour, strokeDash=dash)
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=x, y=y, color=colour, tooltip=["mode:N", "workers:Q", "total:N"]
    )
    head = theme.heading(alt, f"{shorten(printable(document['model']), 60)}: memory of N workers", _summary(document))
    chart = alt.layer(drawn, points, *_names(alt, lines, colours, top * 1.05, width)).properties(
        title=head, background=theme.PAPER
    )
    styled: altair.LayerChart = theme.styled(chart)
    return styled


def _lines(document: Document) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for group in sorted(document["modes"], key=lambda group: int(group["workers"])):
        count, total, floor = group["workers"], group["total_pss_bytes"], group.get("floor_bytes")
        if total is not None:
            found.setdefault(shorten(printable(group["mode"]), 30), []).append((count, total))
        if floor is not None and (count, floor) not in found.setdefault(FLOOR, []):
            found[FLOOR].append((count, floor))
    return {mode: points for mode, points in found.items() if points}


def _colours(lines: dict[str, list[tuple[int, int]]]) -> dict[str, str]:
    modes = [mode for mode in lines if mode != FLOOR]
    colours = {mode: theme.KINDS[number % len(theme.KINDS)] for number, mode in enumerate(modes)}
    # The baseline is what everybody has; it is the one to get away from.
    colours |= {mode: theme.PEAK for mode in modes if mode in ("stock", "ort")}
    return colours | ({FLOOR: theme.MUTED} if FLOOR in lines else {})


def _names(
    alt: Any, lines: dict[str, list[tuple[int, int]]], colours: dict[str, str], top: float, width: int
) -> list[Any]:
    """Each line's name and last value in the right margin, moved apart where lines end together."""
    ends = sorted(((points[-1][1], mode) for mode, points in lines.items()), reverse=True)
    heights = spread([value / top * HEIGHT for value, _ in ends], 16, HEIGHT)
    layers = []
    for (value, mode), height in zip(ends, heights, strict=True):
        text = alt.Chart(alt.InlineData(values=[{}])).mark_text(
            align="left", baseline="middle", dx=12, fontSize=12, color=colours[mode], aria=False
        )
        place = {"x": alt.value(width), "y": alt.value(HEIGHT - height)}
        layers.append(text.encode(**place, text=alt.value(f"{mode}  {format_bytes(value)}")))
    return layers


def _summary(document: Document) -> list[str]:
    groups = document["modes"]
    largest = max((group["workers"] for group in groups), default=0)
    last = {group["mode"]: group for group in groups if group["workers"] == largest}
    baseline = document.get("baseline")
    said = [f"weights {format_bytes(document['weights_bytes'])}"]
    for mode in ("prepacked", "ort-mapped"):
        ratio = last[mode].get("of_baseline") if mode in last else None
        if ratio:
            said.append(f"{largest} workers {mode}: {ratio:.2f} × {baseline}")
    said.append("floor: one copy of the weights + the smallest workers")
    return ["; ".join(said)]
