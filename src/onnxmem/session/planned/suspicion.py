"""Is a run with shared places the same as one without? What a session with `debug` looks at before it shares anything.

Each kernel was asked, and each buffer is certain to be the one that is meant. This asks once more, of the model itself
and its own data: it would show a rule that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxmem.placement.shares import Int64Array

Outputs = Sequence[Any]
RunWith = Callable[[Int64Array], Outputs]


def wrong_nodes(run: RunWith, pairs: Int64Array, nodes: Mapping[int, str]) -> list[str]:
    """Names of the nodes whose output is another one if it is written over their input; mostly none.

    `run` does one run in which only the pairs that it is given share places.
    """
    nothing = pairs[:0]
    apart = _bits(run, nothing)
    if _bits(run, pairs) == apart:
        return []
    if _bits(run, nothing) != apart:
        return []  # the model itself gives another answer each time
    alone = [int(pairs[row, 1]) for row in range(len(pairs)) if _bits(run, pairs[row : row + 1]) != apart]
    named = dict.fromkeys(nodes.get(after, f"the one that makes buffer {after}") for after in alone)
    return list(named) or ["several nodes together"]


def _bits(run: RunWith, pairs: Int64Array) -> list[bytes] | None:
    """What is computed, to be compared; what is no tensor is left out. None if it fails, as it may on wrong numbers."""
    try:
        outputs = run(pairs)
    except Exception:
        return None
    arrays = (output.numpy() if hasattr(output, "numpy") else output for output in outputs)
    return [array.tobytes() for array in arrays if isinstance(array, np.ndarray) and array.dtype != object]
