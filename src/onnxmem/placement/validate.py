"""Is this plan right? The oracle: it shares no code with any strategy and trusts nothing they computed."""

from __future__ import annotations

from bisect import bisect_left, insort

from onnxmem.errors import PlanError
from onnxmem.placement.plan import Plan


def validate_plan(plan: Plan) -> None:
    """Raise PlanError unless every offset is aligned and no two live buffers overlap."""
    problem = plan.problem
    rows = list(zip(problem, plan.offsets.tolist(), strict=True))
    for buffer, offset in rows:
        if offset < 0 or offset % problem.alignment:
            raise PlanError(f"buffer '{buffer.id}' lies at {offset}, which is not a multiple of {problem.alignment}")

    # Sweep over time with the live intervals sorted by offset: a new one can only touch its two neighbours.
    # Empty buffers overlap nothing. Frees sort before allocations of the same step: lifetimes are half-open.
    events = sorted(
        event
        for index, (buffer, _) in enumerate(rows)
        if buffer.size
        for event in ((buffer.upper, 0, index), (buffer.lower, 1, index))
    )
    live: list[tuple[int, int, int]] = []
    for _, begins, index in events:
        buffer, offset = rows[index]
        interval = (offset, offset + buffer.size, index)
        if not begins:
            del live[bisect_left(live, interval)]
            continue
        place = bisect_left(live, interval)
        for start, end, other in live[max(place - 1, 0) : place + 1]:
            if start < interval[1] and offset < end:
                raise PlanError(f"buffers '{rows[other][0].id}' and '{buffer.id}' overlap at step {buffer.lower}")
        insort(live, interval)
