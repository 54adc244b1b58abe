"""Is this plan right? The oracle: it shares no code with any strategy and trusts nothing they computed."""

from __future__ import annotations

from bisect import bisect_left, insort

from onnxmem.errors import PlanError
from onnxmem.placement.plan import Plan


def validate_plan(plan: Plan) -> None:
    """Raise PlanError unless every offset is aligned and no two live buffers overlap, except pairs that share.

    Such a pair lies at one offset, and never more than two live buffers do.
    """
    problem = plan.problem
    rows = list(zip(problem, plan.offsets.tolist(), strict=True))
    for buffer, offset in rows:
        if offset < 0 or offset % problem.alignment:
            raise PlanError(f"buffer '{buffer.id}' lies at {offset}, which is not a multiple of {problem.alignment}")
    may_share = set(map(tuple, problem.shares.tolist()))

    # Sweep over time with the live intervals sorted by offset: a new one can only touch its two neighbours.
    # Empty buffers overlap nothing. Frees sort before allocations of the same step: lifetimes are half-open.
    # What began first ends first: a buffer before what is written over it.
    events = sorted(
        event
        for index, (buffer, _) in enumerate(rows)
        if buffer.size
        for event in ((buffer.upper, 0, buffer.lower, index), (buffer.lower, 1, 0, index))
    )
    live: list[tuple[int, int, int]] = []
    written_over: dict[int, int] = {}
    for step, begins, _, index in events:
        buffer, offset = rows[index]
        interval = (offset, offset + buffer.size, index)
        if not begins:
            # What was written over it has the place to itself from here on.
            del live[bisect_left(live, interval)]
            if index in written_over:
                successor = written_over.pop(index)
                insort(live, (offset, offset + rows[successor][0].size, successor))
            continue
        place = bisect_left(live, interval)
        touched = [
            other for start, end, other in live[max(place - 1, 0) : place + 1] if start < interval[1] and offset < end
        ]
        if not touched:
            insort(live, interval)
            continue
        before, at = rows[touched[0]]
        if (touched[0], index) not in may_share or len(touched) > 1:
            raise PlanError(
                f"buffers '{before.id}' and '{buffer.id}' overlap at step {step}, with offsets {at} and {offset}"
            )
        if at != offset:
            raise PlanError(f"buffers '{before.id}' and '{buffer.id}' may share a place, but overlap at step {step} "
                            f"with offsets {at} and {offset}: they must be equal")  # fmt: skip
        if touched[0] in written_over:
            third = rows[written_over[touched[0]]][0].id
            raise PlanError(f"buffers '{before.id}', '{third}' and '{buffer.id}' lie at one place at step {step}: "
                            f"only two may share it at a time")  # fmt: skip
        written_over[touched[0]] = index
