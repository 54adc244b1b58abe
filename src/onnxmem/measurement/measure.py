"""How much memory does this model really take? It is loaded and run in fresh processes, and watched from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from onnxmem.deadline import Deadline
from onnxmem.environment import read_environment
from onnxmem.errors import UsageError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.device import HOST, check_device, device_number
from onnxmem.measurement.feeds import Fed, make_feeds
from onnxmem.measurement.measurement import Measurement, shown, thinned
from onnxmem.measurement.nodes import RuntimeMemory, read_memory, unknown_memory
from onnxmem.measurement.protocol import FAILED, LOAD, PHASES, SavedFeeds, Task
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.trial import OnPhase, Trial, run_trial
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import Setting


def measure(
    model: str | os.PathLike[str],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    mode: str | None = None,
    runs: int = 5,
    repeat: int = 1,
    threads: int | None = None,
    device: str = HOST,
    options: Mapping[str, Setting] | None = None,
    config: Mapping[str, str] | None = None,
    time_limit: float = 600.0,
    memory_limit: int | None = None,
    nodes: bool = True,
    on_progress: OnProgress | None = None,
) -> Measurement:
    """Measure a model: `measure("model.onnx", shapes={"x": (1, 3, 640, 640)}, mode="tuned", repeat=3)`.

    Inputs are generated in these shapes and ranges, or read from an .npz file. Each of `repeat` trials is a process of
    its own, in which the model runs once and then `runs` times. With `nodes`, one more process runs with ONNX
    Runtime's profiler to tell which nodes take the memory; no other figure comes from it. Without a `mode` the model is
    loaded as stock, and a package in its own. On another `device` (`cuda`, `cuda:1`) what the process takes there is
    measured, too, and nothing by node. `options` are attributes of SessionOptions, `config` its configuration
    entries; `memory_limit` is in bytes, `time_limit` in seconds, for all processes together: when it is over, there are
    no more trials.

    That the model crashes, takes too long or more memory than it may is a result: look at `verdict`.
    """
    scenario = Scenario.of(locals())
    if repeat < 1:
        raise UsageError(f"repeat must be at least 1; it is {repeat}")
    check_device(scenario.device)
    deadline = Deadline(scenario.time_limit)
    signature = read_signature(scenario.model)
    feeds = make_feeds(signature, scenario)
    fed = feeds.described()
    trials: list[Trial] = []
    with temporary_folder() as folder:
        task = worker_task(scenario, feeds.save(folder))
        for number in range(repeat):
            trial = run_trial(
                task,
                timeout=deadline.left,
                memory_limit=scenario.memory_limit,
                model_files=signature.files,
                on_phase=phase_progress(on_progress, number, repeat),
            )
            if trials and deadline.passed and not trial.verdict.ok:
                break  # there was no time for this one
            trials.append(with_hint(trial, fed))
            if not trial.verdict.ok or deadline.passed:
                break
        if not trials[-1].verdict.ok:
            runtime = unknown_memory("the model did not run to the end")
        elif deadline.passed:
            runtime = unknown_memory("the time limit was over before the run with the profiler")
        elif scenario.device != HOST:
            runtime = unknown_memory("ONNX Runtime tells it of the CPU only")
        elif nodes:
            if on_progress:
                on_progress(Progress("profiling"))
            runtime = _profile(task, scenario.mode, deadline.left, signature.files, folder)
        else:
            runtime = unknown_memory("it was not asked for")
    return Measurement(
        scenario=scenario,
        file_bytes=signature.file_size,
        fed=fed,
        trials=tuple(replace(trial, timeline=()) for trial in trials),
        timeline=thinned(shown(trials).timeline),
        runtime=runtime,
        environment=read_environment(trials[-1].onnxruntime),
    )


def worker_task(scenario: Scenario, feeds: SavedFeeds) -> Task:
    """The worker's task."""
    return Task(
        str(scenario.model),
        feeds,
        mode=scenario.mode,
        runs=scenario.runs,
        threads=scenario.threads,
        device=device_number(scenario.device),
        options=scenario.options,
        config=scenario.config,
    )


def phase_progress(on_progress: OnProgress | None, trial: int = 0, trials: int = 1) -> OnPhase | None:
    """Phases as progress, of all trials together."""
    if on_progress is None:
        return None
    total = len(PHASES) * trials

    def on_phase(name: str, pid: int) -> None:
        done = len(PHASES) * trial + (PHASES.index(name) if name in PHASES else 0)
        again = f" ({trial + 1} of {trials})" if trials > 1 else ""
        on_progress(Progress(f"{name}{again}", done, total, pid=pid))

    return on_phase


def with_hint(trial: Trial, fed: Fed) -> Trial:
    """A model that failed on inputs that nobody chose: the verdict says which they were, and what to give instead."""
    reached = trial.phase(LOAD) is not None and trial.verdict.phase != LOAD
    if trial.verdict.kind != FAILED or not reached or not fed.assumptions:
        return trial
    return replace(trial, verdict=replace(trial.verdict, hint=fed.assumptions))


def _profile(task: Task, mode: str, timeout: float, files: tuple[Path, ...], folder: Path) -> RuntimeMemory:
    """Run twice more with ONNX Runtime's profiler and node statistics, without the memory pattern."""
    statistics = folder / "nodes.csv"
    profiling = {"enable_profiling": True, "profile_file_prefix": str(folder / "profile"), "enable_mem_pattern": False}
    task = task._replace(
        # Only ONNX Runtime's own allocator keeps the figures that are asked for here.
        mode="tuned" if mode == "planned" else mode,
        runs=1,
        profile=True,
        options={**task.options, **profiling},
        config={**task.config, "session.collect_node_memory_stats_to_file": str(statistics)},
    )
    trial = run_trial(task, timeout=timeout, model_files=files)
    if not trial.verdict.ok or trial.profile is None:
        return unknown_memory(f"the run with the profiler did not end well: {trial.verdict}")
    return read_memory(Path(trial.profile), statistics)
