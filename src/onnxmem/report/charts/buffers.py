"""What the memory map says about each buffer: its rectangle, its group and colour, where it comes from and goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxmem.errors import UsageError
from onnxmem.placement.plan import Plan
from onnxmem.report.charts import theme
from onnxmem.report.charts.canvas import Document, Row
from onnxmem.report.charts.layout import Boxes, Frame, clumps, thickened
from onnxmem.report.names import printable, shorten
from onnxmem.units import format_bytes, format_count

SINGLE = 2500  # where there are more buffers, the smallest of them are drawn together
AT_PEAK = "live at the peak step"
TOLD = ("name", "kind", "shape", "size", "lifetime", "readers", "offset", "place")
_READERS = 6
_PIECES = {"stripe": "stripes", "block": "blocks"}
"""Kinds of buffers that have a colour of their own, and what the legend calls them."""


@dataclass(frozen=True)
class Grouping:
    """A group for every buffer, and the colours of the groups in legend order."""

    of: list[str]
    colours: dict[str, str]


def grouped(plan: Plan, about: Sequence[Document]) -> Grouping:
    """The buffers that are live at the peak stand out; pieces of others do, too; the rest is shaded by size."""
    # Powers of two near 1/4, 1/16 and 1/64 of the peak: round numbers in binary units.
    limits = [1 << max(plan.peak.bit_length() - shift, 0) for shift in (7, 5, 3)]
    texts = [format_bytes(limit).replace(".0 ", " ") for limit in limits]
    bands = [f"below {texts[0]}", f"{texts[0]} up to {texts[1]}", f"{texts[1]} up to {texts[2]}", f"{texts[2]} or more"]
    sizes = plan.problem.footprints
    groups = [bands[band] for band in np.searchsorted(limits, sizes, side="right").tolist()]
    for index, row in enumerate(about):
        groups[index] = _PIECES.get(row.get("kind") or "", groups[index])
    for index in plan.problem.live_at(plan.problem.peak_step[0]):
        groups[index] = AT_PEAK
    colours = (
        {AT_PEAK: theme.AT_PEAK}
        | {group: theme.PIECES[kind] for kind, group in _PIECES.items()}
        | dict(zip(reversed(bands), reversed(theme.SIZES), strict=True))
    )
    present = set(groups)
    return Grouping(groups, {group: colour for group, colour in colours.items() if group in present})


def rows(plan: Plan, frame: Frame, grouping: Grouping, about: Sequence[Document]) -> list[Row]:
    """One row per rectangle, in bytes: first the areas that stand for the smallest buffers, then the largest ones."""
    boxes = thickened(Boxes.of(plan, frame), frame)
    order = boxes.by_area()
    single, together = order[:SINGLE], order[SINGLE:]
    result: list[Row] = []
    if len(together):
        group = small_ones(len(together))
        grouping.colours[group] = theme.TOGETHER
        result += [frame.row(*clump) | {"group": group, "edge": 0, "name": group, "hover": group}
                   for clump in clumps(boxes, together, frame)]  # fmt: skip
    for index in single.tolist():
        box = [float(side[index]) for side in (boxes.left, boxes.right, boxes.bottom, boxes.top)]
        pixels = (box[1] - box[0], box[3] - box[2])
        row = frame.row(*box) | tell(about[index])
        # An edge as wide as its rectangle would paint it over.
        row |= {"shared": True} if "place" in row else {}
        row |= {"group": grouping.of[index], "edge": 0.8 if min(pixels) >= 4 else 0.4 if min(pixels) >= 2.5 else 0}
        result.append(row | {"pixels": pixels, "bytes": plan.problem[index].size, "index": index})
    return result


def details_of(plan: Plan, placement: Sequence[Document] | None) -> Sequence[Document]:
    """One row per buffer, as documents have them under `placement`; made of the plan where there are none.

    Those that share a place have more: `over` and `under` name the other one, and `until` when that is written.
    """
    if placement is None:
        offsets = plan.offsets.tolist()
        placement = [{"name": b.id, "bytes": b.size, "lower": b.lower, "upper": b.upper, "offset": offset}
                     for b, offset in zip(plan.problem, offsets, strict=True)]  # fmt: skip
    if len(placement) != len(plan.problem):
        given, were = format_count(len(placement), "row"), "was" if len(placement) == 1 else "were"
        raise UsageError(f"{given} {were} given for {format_count(len(plan.problem), 'buffer')}")
    rows = list(placement)
    for before, after in plan.shared.tolist():
        rows[before] = {**rows[before], "under": rows[after]["name"], "until": rows[after]["lower"]}
        rows[after] = {**rows[after], "over": rows[before]["name"]}
    return rows


def tell(about: Document) -> dict[str, str]:
    """What a reader learns about a buffer: by name for tooltips, and in lines under `hover`."""
    size, offset = about["bytes"], about["offset"]
    told = {
        "name": shorten(printable(about["name"]), 120),
        "size": f"{format_bytes(size)} ({size:,} bytes)",
        "lifetime": lifetime(about),
        "offset": f"{format_bytes(offset)} ({offset:,} bytes)",
    }
    if about.get("shape") is not None:
        dims = "×".join("?" if dim is None else str(dim) for dim in about["shape"]) or "scalar"
        told["shape"] = shorten(printable(f"{dims} {about.get('dtype') or ''}".strip()), 60)
    if about.get("kind"):
        told["kind"] = shorten(printable(str(about["kind"])), 60)
    if readers := [shorten(printable(each), 40) for each in about.get("consumers") or ()]:
        more = f" and {len(readers) - _READERS} more" if len(readers) > _READERS else ""
        told["readers"] = ", ".join(readers[:_READERS]) + more
    over, under = (shorten(printable(about.get(key) or ""), 40) for key in ("over", "under"))
    shared = [f"written over {over}"] if over else []
    shared += [f"{under} is written over it at step {about['until']:,}"] if under else []
    told |= {"place": "; ".join(shared)} if shared else {}
    lines = [told["name"], ", ".join(told[key] for key in ("kind", "shape", "size") if key in told), told["lifetime"]]
    lines += [f"read by {told['readers']}"] if "readers" in told else []
    return told | {"hover": "\n".join([*lines, f"offset {told['offset']}", *shared])}


def lifetime(about: Document) -> str:
    """From its producer to its last reader. `upper` is the first step without the buffer: no reader's step."""
    first, last = about["lower"], about["upper"] - 1
    producer, readers = about.get("producer"), about.get("consumers") or ()
    begin = f"from {_step(producer, first)}" if producer else f"from step {first:,}"
    if about.get("kind") == "output":
        return f"{begin}, kept to the end as an output"
    if readers:
        return f"{begin} to its last reader, {_step(readers[-1], last)}"
    return f"{begin} to its last reader at step {last:,}" if last > first else f"only at step {first:,}"


def _step(label: object, number: int) -> str:
    return f"{shorten(printable(str(label)), 40)} (step {number:,})"


def nothing_to_draw(plan: Plan) -> str:
    """What is said instead of a map without buffers; nothing where there are any."""
    nothing = (
        "all buffers are empty: no memory is needed" if len(plan.problem) else "no buffers: there is nothing to place"
    )
    return "" if plan.peak else nothing


def distance(plan: Plan) -> str:
    """How far a plan is above its lower bound. A gap that rounds to nothing is still not optimal."""
    above = f"{plan.gap:.1%}" if plan.gap >= 0.001 else f"{plan.peak - plan.proven_bound:,} bytes"
    return f"{above} above the lower bound {format_bytes(plan.proven_bound)}"


def small_ones(count: int) -> str:
    """The group of buffers that are drawn together."""
    return f"the {count:,} smallest, drawn together"
