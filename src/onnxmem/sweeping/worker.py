"""A process that works out cells, one after the other, until nobody asks any more. A crash ends only itself."""

from __future__ import annotations

import json
import os
import sys

from onnxmem.documents import encode
from onnxmem.sweeping.cell import Cell


def main(cores: tuple[int, ...]) -> None:
    """Read a cell from each line of stdin, and answer with the outcome on a line of stdout.

    What it starts has these cores, and no others.
    """
    if cores:
        os.sched_setaffinity(0, cores)
    # Whatever else prints on stdout, a library or a kernel, must not end up in the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from onnxmem.sweeping.work import work_out  # noqa: PLC0415  after the cores: libraries count them

    for line in sys.stdin.buffer:
        outcome = work_out(Cell.from_document(json.loads(line)))
        out.write(json.dumps(encode(outcome)).encode() + b"\n")
        out.flush()
