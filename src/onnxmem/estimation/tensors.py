"""Every tensor of an estimate as CSV: dimensions, type, size, lifetime and offset."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from onnxmem.estimation.estimate import Estimate
from onnxmem.files import write_text
from onnxmem.unknown import Unknown

_COLUMNS = ["name", "buffer", "kind", "dtype", "shape", "size", "lower", "upper", "offset", "reason"]


def write_tensors(estimate: Estimate, path: Path) -> None:
    """Write one line per tensor; those of unknown size have a reason instead of a size."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_rows(estimate))
    write_text(path, text.getvalue())


def _rows(estimate: Estimate) -> Iterator[list[object]]:
    offsets = estimate.best.offsets.tolist()
    for span, offset in zip(estimate.scheduled.timeline.spans, offsets, strict=True):
        # Tensors that share a buffer, as views or in place, have a line each, with the buffer's lifetime and offset.
        for tensor in span.tensors:
            shape = "x".join(map(str, tensor.shape or ()))
            yield [tensor.name, span.id, span.kind, tensor.dtype, shape, span.size, span.lower, span.upper, offset, ""]
    for tensor in estimate.unknown:
        shape = "" if tensor.shape is None else "x".join("?" if "?" in str(dim) else str(dim) for dim in tensor.shape)
        reason = tensor.size.reason if isinstance(tensor.size, Unknown) else ""
        yield [tensor.name, "", "activation", tensor.dtype, shape, "", "", "", "", reason]
