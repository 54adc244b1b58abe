"""The other side of `export`: a process that has PyTorch, makes one ONNX file and ends.

python -P -m onnxmem.torch.exporting < task.json
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

import numpy as np

from onnxmem.torch.model import PROGRAM, TorchSource, call_with, import_torch, load_module


def export(task: dict[str, Any]) -> dict[str, Any]:
    """Write the twin; returns what had to be given up for it."""
    torch = import_torch()
    source = TorchSource.of(task["source"])
    feeds = {name: torch.from_numpy(np.load(path)) for name, path in task["feeds"]}
    if source.form == PROGRAM:
        program = torch.export.load(source.where)
        torch.onnx.export(program, f=task["target"], dynamo=True, verbose=False)
        return {"dynamic": "as exported"}
    model = load_module(source)
    places, names = call_with(model, feeds)
    refused = []
    ways = _ways(task["dynamic"], torch)
    for dynamic in ways:
        # Arguments by place need their dimensions by place, those by name by name.
        dims: Any = {name: dynamic.get(name) for name in feeds} if names else tuple(dynamic.get(name) for name in feeds)
        try:
            torch.onnx.export(
                model,
                tuple(places),
                task["target"],
                kwargs=names or None,
                input_names=list(feeds),
                dynamic_shapes=dims if dynamic else None,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # whatever a model and an exporter can raise is a reason to try the next way
            refused.append(" ".join(str(error).split())[:300])
            continue
        return {"dynamic": "named" if dynamic and dynamic is ways[0] else "guessed" if dynamic else "fixed"}
    raise RuntimeError(refused[0])


def _ways(named: dict[str, dict[str, str]], torch: Any) -> list[dict[str, Any]]:
    """First the dimensions as they are named, then whatever PyTorch finds free, at last fixed."""
    ways: list[dict[str, Any]] = []
    # JSON has no numbers for keys.
    for auto in (None, torch.export.Dim.AUTO):
        ways.append({key: {int(place): auto or name for place, name in dims.items()} for key, dims in named.items()})
    return [*ways, {}] if any(named.values()) else [{}]


def main() -> None:
    """One task from stdin, one answer on stdout; whatever else is printed goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    try:
        answer = export(json.loads(sys.stdin.read()))
    except Exception as error:
        text = " ".join(str(error).split())
        answer = {"error": f"{type(error).__name__}: {text}" if not hasattr(error, "hint") else text}
    os.write(out, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
