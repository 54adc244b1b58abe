"""How do I get the ONNX twin of a PyTorch model? PyTorch's own exporter makes it, in a process of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxmem.documents import Record
from onnxmem.errors import ModelError
from onnxmem.process.child import run_child, serve
from onnxmem.torch.model import PROGRAM, TorchSource, call_with, import_torch, load_module


@dataclass(frozen=True)
class ExportTask(Record):
    """One ONNX file to be written."""

    source: TorchSource
    target: Path
    feeds: tuple[tuple[str, str], ...]
    """Names of inputs, and the files their arrays are in."""
    dynamic: Mapping[str, Mapping[str, str]]
    """Names for the dimensions that stay open, by input and place."""


def export(task: ExportTask, name: str, *, timeout: float) -> None:
    """Write the ONNX twin of the model called `name`."""
    ended = run_child("onnxmem.torch.exporting", task, timeout=timeout)
    if ended.timed_out:
        raise ModelError(f"exporting '{name}' took more than {timeout:g} s")
    if ended.code:
        raise ModelError(f"'{name}' could not be exported: {ended.last_line}")


def _export(task: ExportTask) -> None:
    """Runs in the child."""
    warnings.filterwarnings("ignore")
    torch = import_torch()
    feeds = {name: torch.from_numpy(np.load(path)) for name, path in task.feeds}
    target = str(task.target)
    if task.source.form == PROGRAM:
        program = torch.export.load(task.source.where)
        torch.onnx.export(program, f=target, dynamo=True, verbose=False)
        return
    model = load_module(task.source)
    places, names = call_with(model, feeds)
    errors = []
    for dynamic in _ways(task.dynamic, torch):
        # Arguments by place need their dimensions by place, those by name by name.
        dims: Any = {name: dynamic.get(name) for name in feeds} if names else tuple(dynamic.get(name) for name in feeds)
        try:
            torch.onnx.export(
                model,
                tuple(places),
                target,
                kwargs=names or None,
                input_names=list(feeds),
                dynamic_shapes=dims if dynamic else None,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # whatever a model and an exporter can raise is a reason to try the next way
            errors.append(" ".join(str(error).split())[:300])
        else:
            return
    raise RuntimeError(errors[0])


def _ways(named: Mapping[str, Mapping[str, str]], torch: Any) -> list[dict[str, Any]]:
    """First the dimensions as they are named, then whatever PyTorch finds free, at last fixed."""
    ways: list[dict[str, Any]] = []
    # JSON has no numbers for keys.
    for auto in (None, torch.export.Dim.AUTO):
        ways.append({key: {int(place): auto or name for place, name in dims.items()} for key, dims in named.items()})
    return [*ways, {}] if any(named.values()) else [{}]


def main() -> None:
    """Do one task for the parent."""
    serve(ExportTask, _export)
