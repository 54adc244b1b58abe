"""What does a model really ask its allocator for? One run, every buffer of it, kernels' scratch included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import ClassVar

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError
from onnxmem.measurement.device import HOST, check_runtime, device_number
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.model.load import refuse_package
from onnxmem.result import Result
from onnxmem.session.planned.trace import Trace, record
from onnxmem.unknown import Unknown


@dataclass(frozen=True, kw_only=True)
class Tracing(Result):
    """The buffers of one run in figures; `trace` has them one by one, and `trace.problem()` as a placement problem."""

    SCHEMA: ClassVar[str] = "onnxmem.trace/1"

    model: str
    device: str = HOST
    """Where it ran, and whose memory it is."""
    inputs: Mapping[str, tuple[int, ...]]
    """The shapes it was run with."""
    buffers: int
    steps: int
    """How many times it allocated or freed."""
    outputs: int
    """How many buffers outlived the run."""
    output_bytes: int
    total_bytes: int
    """All buffers together, if nothing were ever reused."""
    lower_bound_bytes: int
    """The most that is alive at once within the run: no plan can take less."""
    trace: Trace | Unknown = field(
        default=Unknown("a saved tracing has the figures only"), init=False, repr=False, compare=False
    )


def trace(
    model: str | PathLike[str],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    device: str = HOST,
    time_limit: float = 600.0,
) -> Tracing:
    """Run a model once, in this process, and write down every allocation and free that it makes.

    `shapes` by input or `dims` by name say how large its inputs are; they are generated (within `ranges`, from `seed`)
    or come from `inputs`, an .npz file. On another `device` (`cuda`, `cuda:1`) it is what is
    asked for there. A run that takes longer than `time_limit` seconds is ended, which is an error.
    """
    path, deadline = Path(model), Deadline(time_limit)
    refuse_package(path, ort=True)
    check_runtime(device)
    scenario = Scenario.of(locals())
    generated = make_feeds(read_signature(path), scenario)
    feeds = generated.arrays
    try:
        run = record(str(path), feeds, time_limit=deadline.left, device=device_number(device))
    except ModelError as error:
        raise ModelError(str(error), hint=error.hint or generated.described().assumptions) from error
    tracing = Tracing(
        model=path.name,
        device=device,
        inputs={name: tuple(array.shape) for name, array in feeds.items()},
        buffers=len(run),
        steps=run.steps,
        outputs=len(run) - len(run.inside),
        output_bytes=run.output_bytes,
        total_bytes=int(run.padded().sum()),
        lower_bound_bytes=run.bound(),
    )
    object.__setattr__(tracing, "trace", run)
    return tracing
