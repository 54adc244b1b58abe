"""Does a package compute what its source does, bit for bit? Asked in processes of their own, with several inputs each.

With one thread and with as many as there are: where work is split between threads, kernels may add in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.deadline import MORE_TIME
from onnxmem.documents import Record
from onnxmem.errors import ModelError
from onnxmem.measurement.protocol import SavedFeeds
from onnxmem.packing.recording import LoadSettings
from onnxmem.process.child import run_child, serve
from onnxmem.session.memory import BatchMemory
from onnxmem.session.packed_graphs import DeclaredTensor

THREADS = (1, 0)
"""As onnxruntime counts them: 0 stands for all."""


@dataclass(frozen=True)
class OutputsTask(Record):
    """What to run."""

    model: Path
    mode: str | None
    """None: as a session that nobody says anything about, which is planned where it can be."""
    settings: LoadSettings
    feeds: tuple[tuple[tuple[str, str], ...], ...]
    threads: tuple[int, ...]
    budget: int | None


@dataclass(frozen=True)
class Outputs(Record):
    """What came out."""

    digests: tuple[str, ...]
    """Of all outputs of each run, for each number of threads."""
    unplanned: str
    """Why a run did not happen inside its plan; empty if all did."""
    batches: tuple[BatchMemory, ...]
    """The batches that were run a few rows at a time, because of a budget."""
    declared_inputs: tuple[DeclaredTensor, ...]
    declared_outputs: tuple[DeclaredTensor, ...]


def outputs_of(
    model: Path,
    feeds: Sequence[SavedFeeds],
    *,
    mode: str | None,
    settings: LoadSettings | None = None,
    threads: tuple[int, ...] = THREADS,
    budget: int | None = None,
    timeout: float,
) -> Outputs:
    """Run a model or package on each of these inputs, within a budget if there is one; `threads` are one or more."""
    settings = settings or LoadSettings({}, {})
    task = OutputsTask(model.absolute(), mode, settings, tuple(map(tuple, feeds)), threads, budget)
    ended = run_child("onnxmem.packing.outputs", task, timeout=timeout)
    if ended.code and ended.timed_out:
        raise ModelError(f"running '{model.name}' was not done within the time limit", hint=MORE_TIME)
    if ended.code:
        raise ModelError(f"running '{model.name}' did not end well: {ended.last_line}")
    return ended.read(Outputs)


def _compute(task: OutputsTask) -> Outputs:
    """Runs in the child."""
    import numpy as np  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    digests, unplanned = [], ""
    for threads in task.threads:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        settings = task.settings
        session = InferenceSession(
            task.model,
            options,
            mode=task.mode,
            settings=settings.options,
            config=settings.config,
            budget=task.budget,
        )
        for feeds in task.feeds:
            digests.append(_digest(list(session.run(None, {name: np.load(path) for name, path in feeds}))))
        memory = session.memory
        batches = memory.batches
        if task.mode is None and not batches and memory.runs_replayed != len(task.feeds):
            unplanned = memory.reason or "its runs do not ask for memory in the same order each time"
        inputs, outputs = map(_declared, (session.get_inputs(), session.get_outputs()))
        del session
    return Outputs(tuple(digests), unplanned, batches, inputs, outputs)


def _declared(values: Sequence[Any]) -> tuple[DeclaredTensor, ...]:
    return tuple(DeclaredTensor(value.name, value.type, tuple(value.shape)) for value in values)


def _digest(value: Any) -> str:
    import hashlib  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    if isinstance(value, list):
        return hashlib.sha256("".join(map(_digest, value)).encode()).hexdigest()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return hashlib.sha256(f"{value.dtype} {value.shape}".encode() + value.tobytes()).hexdigest()
    return hashlib.sha256(repr(value.tolist() if hasattr(value, "tolist") else value).encode()).hexdigest()


def main() -> None:
    """Do one task for the parent."""
    serve(OutputsTask, _compute)
