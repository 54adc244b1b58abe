"""The picture of sharing: workers against the total PSS of each mode, with the floor below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxmem.errors import missing_extra
from onnxmem.report import theme
from onnxmem.report.layout import printable, shorten, spread
from onnxmem.share.sharing import Sharing
from onnxmem.units import format_bytes

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT = 620, 360
FLOOR = "floor"
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def share_chart(sharing: Sharing) -> altair.LayerChart:
    """How does memory grow with the number of workers? One line for each mode, named at its end."""
    try:
        import altair as alt  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("altair", "report") from error
    lines = _lines(sharing)
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
    base = alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
    colour = alt.Color("mode:N", scale=scale, legend=None)
    drawn = base.mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour, strokeDash=dash)
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=x, y=y, color=colour, tooltip=["mode:N", "workers:Q", "total:N"]
    )
    head = alt.TitleParams(
        f"{shorten(printable(sharing.model), 60)}: memory of N workers",
        subtitle=_summary(sharing),
        anchor="start",
        fontSize=16,
        subtitleFontSize=12,
        subtitlePadding=5,
        offset=14,
    )
    chart = alt.layer(drawn, points, *_names(alt, lines, colours, top * 1.05)).properties(
        title=head, background=theme.PAPER
    )
    styled: altair.LayerChart = theme.styled(chart)
    return styled


def _lines(sharing: Sharing) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for group in sorted(sharing.groups, key=lambda group: group.count):
        total, floor = group.total_pss, sharing.floor(group.count)
        if isinstance(total, int):
            found.setdefault(group.mode, []).append((group.count, total))
        if isinstance(floor, int) and (group.count, floor) not in found.setdefault(FLOOR, []):
            found[FLOOR].append((group.count, floor))
    return {mode: points for mode, points in found.items() if points}


def _colours(lines: dict[str, list[tuple[int, int]]]) -> dict[str, str]:
    modes = [mode for mode in lines if mode != FLOOR]
    colours = {mode: theme.KINDS[number % len(theme.KINDS)] for number, mode in enumerate(modes)}
    # The baseline is what everybody has; it is the one to get away from.
    colours |= {mode: theme.PEAK for mode in modes if mode in ("stock", "ort")}
    return colours | ({FLOOR: theme.MUTED} if FLOOR in lines else {})


def _names(alt: Any, lines: dict[str, list[tuple[int, int]]], colours: dict[str, str], top: float) -> list[Any]:
    """Each line's name and last value in the right margin, moved apart where lines end together."""
    ends = sorted(((points[-1][1], mode) for mode, points in lines.items()), reverse=True)
    heights = spread([value / top * HEIGHT for value, _ in ends], 16, HEIGHT)
    layers = []
    for (value, mode), height in zip(ends, heights, strict=True):
        text = alt.Chart(alt.InlineData(values=[{}])).mark_text(
            align="left", baseline="middle", dx=12, fontSize=12, color=colours[mode], aria=False
        )
        place = {"x": alt.value(WIDTH), "y": alt.value(HEIGHT - height)}
        layers.append(text.encode(**place, text=alt.value(f"{mode}  {format_bytes(value)}")))
    return layers


def _summary(sharing: Sharing) -> list[str]:
    largest = max((group.count for group in sharing.groups), default=0)
    last = {group.mode: group for group in sharing.groups if group.count == largest}
    said = [f"weights {format_bytes(sharing.weights_bytes)}"]
    for mode in ("prepacked", "ort-mapped"):
        ratio = sharing.of_stock(last[mode]) if mode in last else None
        if ratio:
            said.append(f"{largest} workers {mode}: {ratio:.2f} × {sharing.baseline}")
    said.append("floor: one copy of the weights + the smallest workers")
    return ["; ".join(said)]
