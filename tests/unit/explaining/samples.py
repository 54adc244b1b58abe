"""Measurements of processes that never ran, with any figures, and what rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnxmem.explaining.explained import Explained
from onnxmem.measurement.feeds import ArrayType, Dims, Fed
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.nodes import NodeMemory, RuntimeMemory, unknown_memory
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.protocol import PHASES
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.smaps import KINDS, Kind
from onnxmem.measurement.trial import Overhead, Phase, Trial
from onnxmem.measurement.verdict import Verdict
from onnxmem.model.model import Model
from onnxmem.prediction.predict import Subject
from onnxmem.prediction.prediction import Part
from onnxmem.schedule.scheduled import Question
from onnxmem.unknown import Bytes, Unknown

MIB = 2**20
# Libraries, model files, heap, arenas; and by how much the peak was higher.
STOCK: Mapping[str, tuple[float, float, float, float, float]] = {
    "start": (8, 0, 1, 2, 0),
    "import": (36, 0, 12, 8, 0),
    "inputs": (36, 0, 12, 10, 0),
    "load": (42, 0, 62, 14, 3),
    "first run": (43, 0, 62, 34, 0),
    "steady runs": (43, 0, 62, 50, 1),
    "release": (43, 0, 40, 10, 0),
    "trim": (43, 0, 13, 10, 0),
}


def measurement(
    phases: Mapping[str, tuple[float, float, float, float, float]] = STOCK,
    *,
    mode: str = "stock",
    verdict: str = "ok",
    runtime: RuntimeMemory | None = None,
    outputs: Bytes = 0,
    file: int = 20 * MIB,
    dims: Mapping[str, int] | None = None,
    **scenario: Any,
) -> Measurement:
    """One with these figures in MiB at the end of each phase."""
    made, before = [], 0
    for name in (name for name in PHASES if name in phases):
        *sizes, over = (int(size * MIB) for size in phases[name])
        kinds = dict(zip(("libraries and other files", "model files", "heap", "arenas"), sizes, strict=True))
        rss = sum(sizes)
        made.append(_phase(name, kinds, rss, max(rss, before) + over, before))
        before = rss
    trial = Trial(
        phases=tuple(made),
        verdict=Verdict(verdict, message="" if verdict == "ok" else "no memory"),
        latencies=(0.01,),
        first_run=0.01,
        output_shapes={"y": (1, 8)},
        output_bytes=outputs,
        timeline=(),
        overhead=Overhead(child_bytes=0, readings=0, reading_seconds=0.0, samples=0, sampler_seconds=0.0),
        limited_by=None,
    )
    fed = Fed(inputs={"x": ArrayType("float32", (1, 8))}, dims=Dims(dims or {}, {}), generated={})
    asked = Scenario(**{"model": Path("gone.onnx"), "mode": mode, **scenario})
    none = unknown_memory("it was not asked for")
    return Measurement(scenario=asked, file_bytes=file, fed=fed, trials=(trial,), timeline=(), runtime=runtime or none)


def _phase(name: str, kinds: Mapping[str, int], rss: int, peak: int, before: int) -> Phase:
    why = Unknown("it was not read")
    reading = Reading(
        rss=rss, pss=rss, uss=rss, anon=rss, file=0, virtual=rss, swap=0, peak_rss=peak, at=0.0, source="a test"
    )
    return Phase(
        name=name,
        completed=True,
        reading=reading,
        peak_exact=True,
        peak_method="",
        seconds=0.1,
        began=0.0,
        ended=0.1,
        cgroup_peak=why,
        made_of=tuple(Kind(kind, 1, kinds.get(kind, 0), kinds.get(kind, 0), 0, 0) for kind in KINDS),
        before=before,
    )


def runtime(*, packed: int = 0, used: int = 0, held: int = 0, scratch: int = 0) -> RuntimeMemory:
    """ONNX Runtime's figures, with one node that takes so much scratch."""
    node = NodeMemory(name="conv1", op="Conv", times=1, dynamic=MIB, temporary=scratch, in_use=MIB, seconds=0.01)
    return RuntimeMemory(weights=2 * MIB, packed=packed, arena_held=max(held, used), arena_peak=used, nodes=(node,))


def explained(parts: Mapping[str, float] | None = None, subject: Subject | None = None, **how: Any) -> Explained:
    """What rules look at, with parts of these sizes in MiB, or those that follow from the figures."""
    made = Explained(measurement=measurement(**how), subject=subject)
    if parts is not None:
        vars(made)["parts"] = tuple(Part(name=name, bytes=int(size * MIB)) for name, size in parts.items())
    return made


def subject(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    threads: int = 1,
    **question: Any,
) -> Subject:
    """A model of these nodes, as the file has it."""
    return Subject.of(
        Model.of(_model(nodes, inputs, outputs, weights or {})), Question(view="raw", **question), threads
    )


def _model(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    weights: Mapping[str, np.ndarray[Any, Any]],
) -> ModelProto:
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "sample", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, kind, list(shape))
