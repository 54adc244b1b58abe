"""One run of a model in one engine, in a process that has done nothing else: what `benchmarks.engines` starts.

    PYTHON benchmarks/engine_run.py ENGINE MODEL FEEDS.npz OUTPUT.npy

It needs the engine and NumPy, and nothing of this project but with the engines that are: other engines are installed
where onnxmem is not. One thread, float32, as a user would who knows the engine's options. Printed are bytes: resident
after the imports and after all, and the peak.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, Any]


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{field}:"))


def stock() -> Callable[[str, Feeds], Any]:
    import onnxruntime as ort  # noqa: PLC0415

    def run(model: str, feeds: Feeds) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        return ort.InferenceSession(model, options, ["CPUExecutionProvider"]).run(None, feeds)[0]

    return run


def ours() -> Callable[[str, Feeds], Any]:
    """A planned session of a model, or of a package."""
    import onnxruntime as ort  # noqa: PLC0415

    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    def run(model: str, feeds: Feeds) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        more: dict[str, Any] = {} if Path(model).is_dir() else {"mode": "planned", "keep_plans": False}
        return InferenceSession(model, options, ["CPUExecutionProvider"], **more).run(None, feeds)[0]

    return run


def openvino() -> Callable[[str, Feeds], Any]:
    import openvino as ov  # noqa: PLC0415

    def run(model: str, feeds: Feeds) -> Any:
        core = ov.Core()
        read = core.read_model(model)
        if read.is_dynamic():
            read.reshape({name: list(array.shape) for name, array in feeds.items()})
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        return core.compile_model(read, "CPU", settings)(feeds)[0]

    return run


def mnn() -> Callable[[str, Feeds], Any]:
    """The model is a file that MNN's converter has written."""
    from MNN import expr, nn  # noqa: PLC0415

    kinds = {"float32": expr.float, "int64": expr.int, "int32": expr.int}

    def variable(array: Any) -> Any:
        kind = kinds[str(array.dtype)]
        narrow = array.astype(np.int32) if kind == expr.int else array
        return expr.const(narrow, list(array.shape), expr.NCHW, kind)

    def run(model: str, feeds: Feeds) -> Any:
        runtime = nn.create_runtime_manager(({"backend": 0, "numThread": 1, "precision": "high"},))
        loaded = nn.load_module_from_file(model, list(feeds), [], runtime_manager=runtime)
        found = loaded.forward([variable(array) for array in feeds.values()])
        first = found[0] if isinstance(found, list | tuple) else found
        return expr.convert(first, expr.NCHW).read().copy()

    return run


ENGINES = {"stock": stock, "ours": ours, "openvino": openvino, "mnn": mnn}


def main() -> None:
    engine, model, given, output = sys.argv[1:]
    with np.load(given) as arrays:
        feeds = dict(arrays)
    run = ENGINES[engine]()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    imported = status("VmRSS")
    result = run(model, feeds)
    peak = status("VmHWM")
    np.save(output, np.asarray(result))
    print(json.dumps({"imported_bytes": imported, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
