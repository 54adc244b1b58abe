"""One operator's working memory: it is taken and given back while the operator runs."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.units import format_bytes
from onnxmem.unknown import Unknown


def find(explained: Explained) -> Finding | None:
    """The operator that takes most, if it raises the peak: some share its work out to fewer threads in less memory."""
    scratch, nodes = explained.part("scratch"), explained.measurement.runtime.nodes
    threads = explained.subject.threads if explained.subject else 1
    if not scratch or isinstance(nodes, Unknown) or threads < 2:
        return None
    sizes = [(node.temporary, node) for node in nodes if not isinstance(node.temporary, Unknown)]
    size, node = max(sizes, key=lambda each: each[0], default=(0, None))
    if node is None or size < scratch // 2:
        return None
    return Finding(
        rule="scratch",
        what="working memory of one operator",
        evidence=f"'{node.name}' ({node.op}) takes {format_bytes(size)} while it runs with {threads} threads; "
        f"{format_bytes(scratch)} of it raise the peak.",
        advice="Try fewer threads: many kernels take this for each of them",
        saving=scratch - scratch // threads,
        when="if the kernel takes it for each thread",
        command=explained.command("measure", "--mode", explained.mode, "--threads", "1"),
    )
