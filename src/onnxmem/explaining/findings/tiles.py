"""Parts of a graph that can be computed piece by piece: then less is alive at once, for a little more work."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import WORTH, Finding
from onnxmem.explaining.leaner import once_loaded, planning_costs
from onnxmem.prediction.requests import unknown_tensors
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import static_graph
from onnxmem.session.package import is_package, open_package
from onnxmem.units import format_bytes, format_count, format_percent

_SECONDS = 3.0
"""A search that an ordinary processor does in so long finds most; packing searches longer."""


def find(explained: Explained) -> Finding | None:
    """What the search finds in a short time, less what planned runs and the added nodes take themselves."""
    subject, path = explained.subject, explained.scenario.model
    if subject is None or (is_package(path) and open_package(path).manifest.tile is not None):
        return None
    cost, now = planning_costs(explained), explained.needed_at_once(subject.plain_runs.first.inner_peak)
    if now < cost + WORTH or unknown_tensors(subject.graph):  # what is not known may be what most of it is
        return None
    graph = static_graph(subject.model, subject.input_shapes, optimized=not subject.saved, threads=subject.threads)
    found = search(graph, time_limit=_SECONDS)
    if not found.parts:
        return None
    # Its nodes stand in another order than they run in: what is alive in that is no reason to claim more.
    before = min(found.before, now)
    saving = max(0, before - found.net - cost)
    kinds = " and ".join(dict.fromkeys(part.kind for part in found.parts))
    return Finding(
        rule="tiles",
        what="a graph that would tile",
        evidence=f"A run needs {format_bytes(before)} for what is alive at once; in {kinds} it would need "
        f"{format_bytes(found.after)}, with {format_percent(found.extra_work)} more work and "
        f"{format_count(found.added_nodes, 'more node')}.",
        advice="Compute parts of it piece by piece",
        saving=saving,
        when=once_loaded(explained, saving),
        command=explained.command("pack", "-o", "tiled.pack", "--tile"),
    )
