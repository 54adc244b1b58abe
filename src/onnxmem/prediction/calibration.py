"""What does a process take before it has loaded anything? Asked once per environment, of a tiny model, and kept.

Interpreter, NumPy, ONNX Runtime's library and the pages of it that loading and running touch are the same for every
model. They depend on versions and on the machine, so they are measured here rather than written down. They also depend
on how the system's cache holds the library just now: since Linux 6.18 a touch of a page maps all that was read or
written together with it, anything from 64 KiB to 2 MiB, and the same import may take 50 or 65 MiB. So what a few
touches bring is looked at each time, and where that has changed, the rest is measured again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import TensorProto, helper, numpy_helper

from onnxmem.documents import Record
from onnxmem.environment import read_environment
from onnxmem.errors import OnnxmemError, RuntimeUnsupported
from onnxmem.files import write_text
from onnxmem.folders import cache_folder, private_cache, temporary_folder
from onnxmem.measurement.measure import measure
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.protocol import FIRST_RUN, IMPORT, LOAD, STEADY_RUNS
from onnxmem.measurement.smaps import read_mappings
from onnxmem.unknown import Unknown

_FILES = ("libraries and other files", "stacks", "other")
_REAL = 320 << 10
"""Real models touch this much more of the libraries, give or take, than the tiny one does."""
FAULT_AROUND = 64 << 10
"""What a touch of a page has always brought in, if it was in the cache."""
_LARGEST_AROUND = 2 << 20
_TOUCHES = 512 << 10
"""One touch in so many bytes."""
_SAME = 0.1
_FORMAT = 3


@dataclass(frozen=True, kw_only=True)
class Process(Record):
    """The part that every model's process has, in bytes."""

    imported: int
    """Resident after the imports."""
    shared: int
    """Of it, pages of files that processes share."""
    loading: int
    """Pages of libraries and stacks that loading a model touches."""
    running: int
    """The same for running it."""


@dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    """The same for sessions as they come and for planned ones."""

    stock: Process
    planned: Process
    around: int = FAULT_AROUND
    """What a touch of a page of a large new file maps, at most."""
    touched: int = 0
    """What a few touches of ONNX Runtime's library brought in when this was measured; 0 if that was not looked at."""

    def of(self, mode: str) -> Process:
        """That of a mode."""
        return self.planned if mode == "planned" else self.stock


def calibration() -> Calibration:
    """This environment's, from the cache or measured now, which takes a second or two."""
    path, touched = calibration_file(), touched_bytes(_library())
    with suppress(OSError, ValueError, OnnxmemError):
        private_cache()  # or somebody else may have put it there
        kept = Calibration.from_document(json.loads(path.read_text()))
        if not kept.touched or abs(touched - kept.touched) <= _SAME * kept.touched:
            return kept
    with temporary_folder() as folder:
        model = folder / "tiny.onnx"
        model.write_bytes(tiny_model())
        stock, planned = (measure(model, mode=mode, runs=2, threads=1, nodes=False) for mode in ("stock", "planned"))
    found = Calibration(
        stock=_process(stock),
        planned=_process(planned if planned.verdict.ok else stock),
        touched=touched_bytes(_library()),
    )
    with suppress(OSError, OnnxmemError):  # a home that cannot be written to costs a second each time, no more
        private_cache()
        found = replace(found, around=_largest_around(path))
        write_text(path, json.dumps(found.document()))
    return found


def calibration_file() -> Path:
    """Where this environment's is kept: versions, machine and settings are in its name."""
    facts = json.dumps([_FORMAT, read_environment().document()], sort_keys=True)
    return cache_folder() / f"process-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"


def _library() -> Path | None:
    """The file of ONNX Runtime that Python loads, by far the largest of all."""
    found = importlib.util.find_spec("onnxruntime")
    if found is None or found.origin is None:
        return None
    files = (Path(found.origin).parent / "capi").glob("onnxruntime_pybind11_state*")
    return max(files, key=lambda file: file.stat().st_size, default=None)


def _largest_around(beside: Path) -> int:
    """What one touch maps of a file that has just been written, as a package is: more than ever comes of an old one."""
    with temporary_folder(beside) as folder:
        file = folder / "large"
        file.write_bytes(bytes(_LARGEST_AROUND))
        return max(FAULT_AROUND, touched_bytes(file, _LARGEST_AROUND))


def touched_bytes(path: Path | None, step: int = _TOUCHES) -> int:
    """What becomes resident of a file if a page here and there is read; 0 where that cannot be seen."""
    try:
        with (path or Path(os.devnull)).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            for place in range(0, len(view), step):
                view[min(place + step // 2, len(view) - 1)]
            inode, whole = os.fstat(file.fileno()).st_ino, -(-len(view) // mmap.PAGESIZE) * mmap.PAGESIZE
            # The library may be loaded here, too, but in several mappings.
            same = (m.rss for m in read_mappings() if m.inode == inode and m.end - m.start == whole)
            return min(same, default=0)
    except (OSError, ValueError):
        return 0


def _process(measurement: Measurement) -> Process:
    phases = {phase.name: phase for phase in measurement.phases}
    if not measurement.verdict.ok or IMPORT not in phases or STEADY_RUNS not in phases:
        raise RuntimeUnsupported(f"the process of a tiny model could not be measured: {measurement.verdict}")
    kinds: dict[str, Mapping[str, int]] = {}
    for name in (IMPORT, LOAD, FIRST_RUN, STEADY_RUNS):
        made_of = phases[name].made_of
        if isinstance(made_of, Unknown):
            raise RuntimeUnsupported(f"the process of a tiny model cannot be looked into: {made_of.reason}")
        kinds[name] = {kind.name: kind.rss for kind in made_of}
    reading = phases[IMPORT].reading
    if isinstance(reading.rss, Unknown) or isinstance(reading.anon, Unknown):
        raise RuntimeUnsupported("the memory of a process cannot be read here")

    def grown(before: str, after: str) -> int:
        return max(0, sum(kinds[after].get(kind, 0) - kinds[before].get(kind, 0) for kind in _FILES))

    return Process(
        imported=reading.rss,
        shared=reading.rss - reading.anon,
        loading=grown(IMPORT, LOAD),
        running=grown(LOAD, STEADY_RUNS) + _REAL,
    )


def tiny_model() -> bytes:
    """A model with a convolution and a product of matrices."""
    import numpy as np  # noqa: PLC0415

    weights = {"w": np.ones((8, 3, 3, 3), np.float32), "b": np.ones((8, 8), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "b"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
