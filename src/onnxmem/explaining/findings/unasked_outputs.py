"""An output that other nodes read, too, is an intermediate tensor that the model also gives away."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown


def find(explained: Explained) -> Finding | None:
    """Intermediate tensors among the outputs: they stay when a caller asks for all of them."""
    if explained.subject is None or len(explained.subject.graph.outputs) < 2:
        return None
    graph = explained.subject.graph
    read = {name for node in graph.nodes for name in node.reads}
    sizes: dict[str, int] = {}
    for name in graph.outputs:
        tensor = graph.tensors.get(name)
        if name in read and tensor is not None and not isinstance(tensor.size, Unknown):
            sizes[name] = int(str(tensor.size))
    wanted = [name for name in graph.outputs if name not in sizes]
    if not sizes or not wanted:
        return None
    largest = max(sizes, key=lambda name: sizes[name])
    asked = ", ".join(f'"{name}"' for name in wanted[:4])
    return Finding(
        rule="unasked_outputs",
        what="intermediate tensors among the outputs",
        evidence=f"{len(sizes)} of {len(graph.outputs)} outputs are read inside the model, too, and take "
        f"{format_bytes(sum(sizes.values()))}; the largest is '{largest}'.",
        advice="Ask for the outputs that are needed, and only for these",
        saving=sum(sizes.values()),
        when="if nobody needs them",
        command=f"session.run([{asked}], feeds)",
    )
