"""What does a built model ask for when it runs, in which order do its nodes run, and where does it all fit?

Asked in a process of its own, with the very settings the model will be loaded with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onnxmem.deadline import MORE_TIME
from onnxmem.documents import Record
from onnxmem.errors import ModelError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.nodes import read_kernels, read_statistics
from onnxmem.measurement.protocol import SavedFeeds
from onnxmem.process.child import run_child, serve
from onnxmem.session.modes import Mode, Setting
from onnxmem.session.planned.trace import Trace

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class LoadSettings(Record):
    """The settings that a session is made with."""

    options: Mapping[str, Setting]
    config: Mapping[str, str]

    def under(self, mode: Mode) -> LoadSettings:
        """With what a mode says on top."""
        return LoadSettings({**self.options, **mode.options}, {**self.config, **mode.config})


@dataclass(frozen=True)
class RecordTask(Record):
    """Runs to be recorded."""

    model: Path
    settings: LoadSettings
    feeds: tuple[tuple[tuple[str, str], ...], ...]
    """Of each run."""
    folder: Path
    """For what ONNX Runtime writes on the way."""
    seconds: float | None
    """How long to search for a plan; None: tell which nodes run when instead."""


@dataclass(frozen=True)
class Recording(Record):
    """One run: what it asked for, and which nodes ran when."""

    trace: Trace
    ran: tuple[str, ...]
    """Names of nodes, those of subgraphs too, in the order in which they ran."""
    scratch: Mapping[str, int]
    """The bytes a node took besides its outputs, by its name; empty before ONNX Runtime 1.28, which cannot tell."""


def record_nodes(model: Path, settings: LoadSettings, feeds: SavedFeeds, *, timeout: float) -> Recording:
    """Record one run, and once more with the profiler on."""
    return _run(Recording, model, settings, [feeds], None, timeout)


def record_plan(
    model: Path, settings: LoadSettings, feeds: Sequence[SavedFeeds], *, seconds: float, timeout: float
) -> Mapping[str, Any]:
    """Record runs with inputs of the same shapes, and search for a plan of what they have in common for so long.

    It is a document for `plans` of a planned session.
    """
    return _run(dict[str, Any], model, settings, feeds, seconds, timeout)


def _run(
    kind: type[_Answer],
    model: Path,
    settings: LoadSettings,
    feeds: Sequence[SavedFeeds],
    seconds: float | None,
    timeout: float,
) -> _Answer:
    with temporary_folder() as folder:
        task = RecordTask(model.absolute(), settings, tuple(map(tuple, feeds)), folder, seconds)
        ended = run_child("onnxmem.packing.recording", task, timeout=timeout)
    if ended.code and ended.timed_out:
        raise ModelError(f"recording a run of '{model.name}' was not done within the time limit", hint=MORE_TIME)
    if ended.code:
        raise ModelError(
            f"recording a run of '{model.name}' did not end well: {ended.last_line}",
            hint="give inputs it can run on: --shape, --dim or --inputs",
        )
    return ended.read(kind)


def _options(task: RecordTask) -> Any:
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.options import apply  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    apply(options, task.settings.options, task.settings.config)
    return options


def _nodes(task: RecordTask, feeds: Mapping[str, Any], trace: Trace) -> Recording:
    import onnxruntime  # noqa: PLC0415

    options, statistics = _options(task), task.folder / "nodes.csv"
    options.enable_profiling, options.profile_file_prefix = True, str(task.folder / "profile")
    # The memory pattern is one allocation that no node makes.
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.add_session_config_entry("session.collect_node_memory_stats_to_file", str(statistics))
    session = onnxruntime.InferenceSession(str(task.model), options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    kernels, _ = read_kernels(Path(session.end_profiling()))
    del session  # which writes the statistics
    scratch = {name: node.temporary for name, node in read_statistics(statistics).items()}
    return Recording(trace, tuple(kernel.name for kernel in kernels), scratch)


def _plan(task: RecordTask, runs: Sequence[Mapping[str, Any]], seconds: float) -> Mapping[str, Any]:
    from onnxmem.session.planned.made import sharer_of  # noqa: PLC0415
    from onnxmem.session.planned.pairs import NOTHING  # noqa: PLC0415
    from onnxmem.session.planned.plan_book import solved  # noqa: PLC0415
    from onnxmem.session.planned.run_key import RunKey  # noqa: PLC0415
    from onnxmem.session.planned.source import look_at  # noqa: PLC0415
    from onnxmem.session.planned.trace import record_all  # noqa: PLC0415

    options = _options(task)
    nodes: list[Any] = []
    traces = record_all(str(task.model), runs, options, nodes=nodes)
    sharer = sharer_of(options, look_at(task.model))
    key = RunKey(tuple(sorted((name, array.shape) for name, array in runs[0].items())), ())
    return solved(key, traces, seconds=seconds, sharing=sharer.find(traces[0], nodes) if sharer else NOTHING)


def _record(task: RecordTask) -> Recording | Mapping[str, Any]:
    """Runs in the child."""
    import numpy as np  # noqa: PLC0415

    from onnxmem.session.planned.trace import record_all  # noqa: PLC0415

    runs = [{name: np.load(path) for name, path in feeds} for feeds in task.feeds]
    if task.seconds is not None:
        return _plan(task, runs, task.seconds)
    return _nodes(task, runs[0], record_all(str(task.model), runs, _options(task))[0])


def main() -> None:
    """Do one task for the parent."""
    serve(RecordTask, _record)
