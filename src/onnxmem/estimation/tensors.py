"""Every tensor of a model as CSV: dimensions, type, size, lifetime and offset."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from onnxmem.files import write_text
from onnxmem.model.graph import Tensor
from onnxmem.placement.plan import Plan
from onnxmem.schedule.scheduled import Scheduled
from onnxmem.unknown import Unknown

_COLUMNS = [
    *("name", "buffer", "kind", "dtype", "shape", "size", "lower", "upper", "offset", "reason"),
    *("symbolic_shape", "symbolic_size"),
]


def write_tensors(scheduled: Scheduled, plan: Plan, path: Path) -> None:
    """Write one line per tensor; those of unknown size have a reason instead of a size."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_rows(scheduled, plan))
    write_text(path, text.getvalue())


def _rows(scheduled: Scheduled, plan: Plan) -> Iterator[list[object]]:
    for span, offset in zip(scheduled.timeline.spans, plan.offsets.tolist(), strict=True):
        # Tensors that share a buffer, as views or in place, have a line each, with the buffer's lifetime and offset.
        for tensor in span.tensors:
            general = scheduled.symbolic.get(tensor.name)
            symbolic = [f"[{', '.join(map(str, general.shape or ()))}]", str(general.size)] if general else ["", ""]
            yield [
                *(tensor.name, span.id, span.kind, tensor.dtype, _shape(tensor), span.size),
                *(span.lower, span.upper, offset, "", *symbolic),
            ]
    for tensor in scheduled.timeline.unknown:
        reason = tensor.size.reason if isinstance(tensor.size, Unknown) else ""
        yield [tensor.name, "", "activation", tensor.dtype, _shape(tensor), *[""] * 4, reason, "", ""]


def _shape(tensor: Tensor) -> str:
    return "x".join("?" if "?" in str(dim) else str(dim) for dim in tensor.shape or ())
