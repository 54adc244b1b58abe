"""Ladders made of plain numbers."""

from __future__ import annotations

from pathlib import Path

from onnxmem.measurement.feeds import ArrayType, Dims, Fed
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.protocol import Released
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.smaps import KINDS, Kind
from onnxmem.releasing.ladder import Ladder, Step
from onnxmem.releasing.rungs import EXIT, RUNGS
from onnxmem.unknown import Unknown, subtract

MIB = 2**20


def reading(anon: int, file: int = 40) -> Reading:
    """So many MiB."""
    no = Unknown("it was not asked for")
    return Reading((anon + file) * MIB, no, no, anon * MIB, file * MIB, 500 * MIB, 0, no, at=1.0, source="a test")


def step(name: str, anon: int, mapped: int = 0, libraries: int = 40, before: Step | None = None) -> Step:
    """After this step: MiB of anonymous memory, of the model's files and of libraries."""
    now = reading(anon, mapped + libraries)
    past = before.reading if before else now
    resident = {"heap": anon, "model files": mapped, "libraries and other files": libraries}
    kinds = [
        Kind(kind, 1 if resident.get(kind) else 0, 0, resident.get(kind, 0) * MIB, 0, anon * MIB * (kind == "heap"))
        for kind in KINDS
    ]
    return Step(
        name=name,
        reading=now,
        freed=subtract(past.rss, now.rss),
        freed_anon=subtract(past.anon, now.anon),
        freed_file=subtract(past.file, now.file),
        made_of=tuple(kinds),
        seconds=0.5,
    )


def ladder(full: int = 300, closed: int = 100, trimmed: int = 12, libraries: int = 47) -> Ladder:
    """10 MiB before the model, and then so many of anonymous memory after the steps."""
    states = [step("inputs", 10), step("load", 200, 0, libraries)]
    states.append(step("steady runs", full, 0, libraries))
    for name, anon in zip((*RUNGS, EXIT), (full, full, full, closed, trimmed, trimmed, 0), strict=True):
        states.append(step(name, anon, 0, libraries if name != EXIT else 0, states[-1]))
    before, loaded, top, *steps = states
    return Ladder(
        model="net.onnx",
        file_bytes=100 * MIB,
        scenario=Scenario(Path("/models/net.onnx"), shapes={"x": (1, 3)}, runs=3),
        fed=Fed(inputs={"x": ArrayType("float32", (1, 3))}, dims=Dims({}, {"N": 1}), generated={}),
        before=before,
        loaded=loaded,
        full=top,
        steps=tuple(steps),
        released=Released(clear_cache=False, shrinkage=None, held_by=(), trim=True),
    )
